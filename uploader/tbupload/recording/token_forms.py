"""Recognize tokens anywhere in a text: by known forms, and by how random a text looks."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"

_KNOWN_TOKEN: Final = re.compile(
    r"tb[a-z]_[0-9A-Za-z]{20,}|(?:AKIA|ASIA|AGPA|AIDA)[0-9A-Z]{12,}|gh[a-z]_[0-9A-Za-z]{20,}"
    r"|github_pat_\w{20,}|gl[a-z]{2,5}-[\w-]{16,}|hf_[0-9A-Za-z]{16,}|api_org_[0-9A-Za-z]{16,}"
    r"|[srpw]k[-_](?:live_|test_|proj-|ant-|lf-|or-)?[0-9A-Za-z_-]{16,}|whsec_\w{16,}"
    r"|xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}|AIza[\w-]{30,}|ya29\.[\w.-]{10,}|npm_\w{20,}|pypi-[\w-]{16,}"
    r"|dckr_pat_[\w-]{16,}|SG\.[\w.-]{16,}|nvapi-[\w-]{16,}|r8_\w{16,}|gsk_\w{16,}|xai-\w{16,}"
    r"|KGAT_[0-9a-f]{32}|shp[a-z]{2}_[0-9a-fA-F]{32}|rpa_\w{20,}|AGE-SECRET-KEY-1\w{20,}"
    r"|tskey-[\w-]{16,}|lin_api_\w{16,}|\b\d{8,10}:[\w-]{35}\b"
    r"|hooks\.slack\.com/services/[\w/]+|discord(?:app)?\.com/api/webhooks/[\w/-]+"
    r"|(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{86}=="
    r"|dapi[0-9a-f]{16,}|eyJ[\w-]{8,}\.[\w.-]+|local-[0-9a-f]{32,}"
)
"""Tokens of this service, clouds, code hosts, registries and messengers, and addresses that are
secrets; JSON Web Tokens; keys of 64 bytes, as of Azure's storage accounts."""

_CANDIDATE: Final = re.compile(r"[A-Za-z0-9+/_~-]{20,}={0,2}")
_HEX: Final = re.compile(r"(?:0x)?[0-9a-fA-F]{32,}")
_AWS_SECRET: Final = re.compile(r"[0-9A-Za-z/+]{40}")
_SEPARATORS_MAX: Final = 0.1
"""Share of separators up to which a text may be one random token: names of runs have more."""


def has_token(text: str) -> bool:
    """Return whether a part of a text, or of a path in it, looks like a token."""
    if _KNOWN_TOKEN.search(text):
        return True
    candidates = _CANDIDATE.findall(text)
    return any(_is_random(part) for each in candidates for part in (each, *each.split("/")))


def _is_random(text: str) -> bool:
    """Return whether a text looks like a token: long, and its classes of characters alternate."""
    characters = re.sub(r"[^A-Za-z0-9]", "", text)
    if _HEX.fullmatch(text):
        return True
    if len(text.rstrip("=")) - len(characters) > _SEPARATORS_MAX * len(text):
        return False
    classes = [each.isdigit() or (each.isupper() and 2) or 3 for each in characters]
    changes = sum(a != b for a, b in zip(classes, classes[1:]))
    kinds = len(set(classes))
    if kinds == 3:  # noqa: PLR2004 - upper case, lower case and digits
        length, share = 20, 0.3 if _AWS_SECRET.fullmatch(text) else 0.45
    elif kinds == 2:  # noqa: PLR2004 - of upper and lower case alone are names in camel case, too
        length, share = (24, 0.3) if any(map(str.isdigit, characters)) else (32, 0.4)
    else:
        return False
    return len(characters) >= length and changes >= share * len(characters)
