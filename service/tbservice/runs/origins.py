"""Origins of the runs of experiments: machine, commit, packages; cached by upload."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.reading.version_cache import VersionCache
from tbservice.runs.columns import ORIGIN_COLUMNS, normalize_package
from tbservice.runs.tables import run_origins
from tbservice.types.identifiers import ExperimentId

ORIGINS_CACHE_BYTES: Final = 64 * limits.MIB
"""Bytes of origins and packages of uploads that one worker caches, as estimated."""

_ENVIRONMENTS_ITEMS: Final = 100
"""Lists of packages (items) that were read last and are kept once."""

_PACKAGE_BYTES: Final = 200
_UPLOAD_BYTES: Final = 2_000


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """Texts by the names of ORIGIN_COLUMNS; versions of packages by their normalized names."""

    texts: Mapping[str, str]
    packages: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes, estimated."""
        return _UPLOAD_BYTES + _PACKAGE_BYTES * len(self.packages)


_CACHE: Final = VersionCache[ExperimentId, RunOrigin](ORIGINS_CACHE_BYTES, lambda each: each.size)


def read_origins(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> dict[ExperimentId, RunOrigin]:
    """Return the origin of each experiment: of its newest upload, else as it was created with.

    An upload is read again once its uploader was heard of: every change of it is that. For members
    of the workspace: readers of links and strangers are not shown origins.
    """
    versions = run_origins.list_newest_uploads(db, experiment_ids)
    cached = {id_: _CACHE.find(id_, version) for id_, version in versions.items()}
    unread = [id_ for id_, origin in cached.items() if origin is None]
    for id_, texts, packages in run_origins.read_newest_uploads(db, unread):
        origin = RunOrigin(_choose(texts), _parse_packages(tuple(packages)))
        _CACHE.put(id_, origin, versions[id_])
        cached[id_] = origin
    origins = {}
    for id_, texts in run_origins.list_origins(db, experiment_ids).items():
        upload = cached.get(id_) or RunOrigin({})
        origins[id_] = upload if upload.texts else RunOrigin(_choose(texts), upload.packages)
    return origins


def _choose(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: texts[name] for name in ORIGIN_COLUMNS if name in texts}


@functools.lru_cache(_ENVIRONMENTS_ITEMS)
def _parse_packages(packages: tuple[str, ...]) -> Mapping[str, str]:
    """Return versions by name: one object for the same packages, of which many trainings are."""
    return dict(map(_parse_package, packages))


def _parse_package(text: str) -> tuple[str, str]:
    """Return name and version; equal texts of several uploads are one in memory."""
    name, _, version = text.partition("==")
    return sys.intern(normalize_package(name)), sys.intern(version)
