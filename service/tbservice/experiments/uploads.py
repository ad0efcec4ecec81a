"""Record the uploads of an experiment: from where they come, and how the training ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Invalid, NotFound
from tbservice.experiment_values import NewUpload, UploadEnd, UploadRecord, UploadStatus
from tbservice.experiments.metadata import (
    check_pairs,
    remove_controls,
    remove_controls_of_lines,
)
from tbservice.experiments.tables import uploads
from tbservice.pagination import cut_page, decode_page_token, encode_page_token
from tbservice.types.experiments import Experiment
from tbservice.types.grants import AppendGrant, Grant, ReadGrant
from tbservice.types.identifiers import ExperimentId

UPLOADS_ITEMS_MAX: Final = 500
"""Uploads (items) that one experiment records: one more removes the oldest."""

UPLOAD_ORIGIN_CHARS_MAX: Final = 16_000
"""Characters of the origin of one upload, all names and values together."""

UPLOAD_PACKAGES_CHARS_MAX: Final = 32_000
"""Characters of an upload's packages together."""

_NOT_FOUND: Final = "the experiment has no record of such an upload: it may have been removed"


def record_upload(db: Connection, grant: AppendGrant, upload_id: str, new: NewUpload) -> None:
    """Record an upload, which is running from now on; repeating the call replaces its record.

    Beyond UPLOADS_ITEMS_MAX uploads of an experiment, the oldest are removed. Control characters
    become replacement characters. Raises Invalid for what is over its limit.
    """
    pairs = check_pairs("origin", new.origin)
    origin = {remove_controls(key): remove_controls(value) for key, value in pairs.items()}
    if _count_chars(origin) > UPLOAD_ORIGIN_CHARS_MAX:
        raise Invalid(f"the origin of an upload has at most {UPLOAD_ORIGIN_CHARS_MAX} characters")
    packages = _check_packages(new.packages)
    uploads.put(db, grant, upload_id, replace(new, origin=origin, packages=packages))
    uploads.delete_oldest(db, grant.experiment_id, UPLOADS_ITEMS_MAX)


def report_upload(
    db: Connection,
    grant: AppendGrant,
    upload_id: str,
    end: UploadEnd | None,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Note that an uploader is there, and with `end`, that the status has changed.

    `texts`, of several lines, are added to the origin by their names, or replace those there.

    Raises:
        NotFound: The experiment has no such upload, for example because somebody removed it.
        Invalid: The detail or a text is over its limit.
    """
    if any(len(content) > limits.UPLOAD_TEXT_CHARS_MAX for content in texts.values()):
        raise Invalid(f"a text has at most {limits.UPLOAD_TEXT_CHARS_MAX} characters")
    if texts:
        lines = {name: remove_controls_of_lines(content) for name, content in texts.items()}
        uploads.add_to_origin(db, grant.experiment_id, upload_id, lines)
    if end is None:
        is_known = uploads.touch(db, grant.experiment_id, upload_id)
    else:
        if len(end.detail) > limits.UPLOAD_DETAIL_CHARS_MAX:
            raise Invalid(f"a detail has at most {limits.UPLOAD_DETAIL_CHARS_MAX} characters")
        cleaned = replace(end, detail=remove_controls(end.detail))
        is_known = uploads.set_status(db, grant.experiment_id, upload_id, cleaned)
    if not is_known:
        raise NotFound(_NOT_FOUND)


def write_times(times: Sequence[float]) -> str:
    """Return times of lines, epoch seconds, as a text of the origin."""
    return " ".join(f"{each:.3f}" for each in times)


def read_times(upload: UploadRecord) -> list[float]:
    """Return the times of the lines of an upload's console; none if they are no numbers."""
    try:
        times = [float(each) for each in (upload.console_times or "").split()]
    except ValueError:  # a field of the origin, of any client
        return []
    return times if all(map(math.isfinite, times)) else []


def list_uploads(
    db: Connection, grant: ReadGrant, after: str | None, limit: int
) -> tuple[list[UploadRecord], str | None]:
    """Return one page of the experiment's uploads, newest first, and the next page's token.

    Raises MalformedRequest.
    """
    before = None if after is None else decode_page_token(after)
    found = uploads.list_page(db, grant.experiment_id, before, limit + 1)
    return cut_page(found, limit, lambda last: encode_page_token(last.created_at, last.upload_id))


def get_upload(db: Connection, grant: ReadGrant, upload_id: str) -> UploadRecord:
    """Return one upload of the experiment. Raises NotFound, as for readers who see none."""
    for upload in uploads.list_page(db, grant.experiment_id, None, 1, upload_id):
        return upload
    raise NotFound(_NOT_FOUND)


def find_statuses(
    db: Connection, grant: Grant, experiments: Sequence[Experiment]
) -> dict[ExperimentId, UploadStatus]:
    """Return the status of each of these experiments, which the grant is for, that has uploads.

    It is running if an uploader follows it now. Otherwise it is how the upload ended that was heard
    of last, or that its uploader is silent. Readers who are not shown uploads learn none.
    """
    if isinstance(grant, ReadGrant) and grant.is_stranger:
        return {}
    return uploads.find_statuses(db, [each.experiment_id for each in experiments])


def find_status(db: Connection, grant: Grant, experiment: Experiment) -> UploadStatus | None:
    """Return the status of one experiment, as `find_statuses`."""
    return find_statuses(db, grant, [experiment]).get(experiment.experiment_id)


def _check_packages(packages: Sequence[str]) -> list[str]:
    """Return the packages without control characters. Raises Invalid for too many or too long."""
    if len(packages) > limits.UPLOAD_PACKAGES_ITEMS_MAX:
        raise Invalid(f"an upload has at most {limits.UPLOAD_PACKAGES_ITEMS_MAX} packages")
    if sum(map(len, packages)) > UPLOAD_PACKAGES_CHARS_MAX:
        raise Invalid(f"packages have at most {UPLOAD_PACKAGES_CHARS_MAX} characters together")
    return [remove_controls(package) for package in packages]


def _count_chars(pairs: Mapping[str, str]) -> int:
    return sum(len(key) + len(value) for key, value in pairs.items())
