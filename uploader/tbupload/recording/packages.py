"""List the packages of an environment as `pip freeze` does, without places of this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Final

from tbupload.recording.masking import mask_url

PACKAGES_ITEMS_MAX: Final = 1_000
"""Packages that are listed; a server accepts no more."""

PACKAGES_CHARS_MAX: Final = 32_000
"""Characters of all packages together; a server accepts no more."""

PACKAGE_CHARS_MAX: Final = 500
"""Characters of one package."""


def list_packages(path: Sequence[str]) -> list[str]:
    """Return `name==version` of each package that is found on this path, sorted by name.

    One from a repository has its URL without user, password and query, and its commit; one from a
    directory is marked as local. If there are too many, the last entry says how many are left out.
    """
    found: dict[str, str] = {}
    for distribution in metadata.distributions(path=list(path)):
        try:
            name = distribution.metadata["Name"]
            key = re.sub(r"[-_.]+", "-", name).lower()  # PEP 503
            if key not in found:  # the first on the path is the one that is imported
                found[key] = f"{name}=={distribution.version}{_describe_source(distribution)}"
        except Exception:  # noqa: BLE001, S112 - a damaged package, of anybody
            continue
    return list(_bound([found[key][:PACKAGE_CHARS_MAX] for key in sorted(found)]))


def _describe_source(distribution: metadata.Distribution) -> str:
    """Return where it was installed from, by PEP 610, as far as that may be told; "" for PyPI."""
    text = distribution.read_text("direct_url.json")
    if not text:
        return ""
    source = json.loads(text)
    url = str(source.get("url", ""))
    commit = str(source.get("vcs_info", {}).get("commit_id", ""))
    if not commit or url.startswith("file:"):
        return " (local)" if url.startswith("file:") else f" @ {mask_url(url)}"
    vcs = re.sub(r"\W", "", str(source["vcs_info"].get("vcs", "")))
    return f" @ {vcs}+{mask_url(url)}@{re.sub('[^0-9A-Za-z]', '', commit)}"


def _bound(packages: list[str]) -> Iterator[str]:
    room = PACKAGES_CHARS_MAX - 100  # for the last entry
    for number, package in enumerate(packages):
        room -= len(package)
        if room < 0 or number == PACKAGES_ITEMS_MAX - 1:
            yield f"... and {len(packages) - number} more"
            return
        yield package
