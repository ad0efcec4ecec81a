"""Mask secrets in lines of text: of a console, or of a difference between files.

A line keeps everything that does not look like a secret: unlike a command (see `masking`), it has
no form of which only the harmless could be kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tbupload.recording.masking import mask_url
from tbupload.recording.secret_names import is_password_name, is_secret_name
from tbupload.recording.token_forms import MASK, has_token

_PIECE: Final = re.compile(r"[^\s\"'`,;()<>{}\[\]=:|&]+={0,2}")
"""A word without quotes and brackets; a token in base64 may end with equals signs."""

_URL: Final = re.compile(r"[A-Za-z][A-Za-z\d+.-]{0,20}://[^\s\"'`<>]+")
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")
_LOGIN: Final = re.compile(r"(?i)\b(login|htpasswd|chpasswd|adduser)\s+(?=-|\S+\s+-).*")
"""A command after which options follow, of which one may be a password: `docker login -p 1234`."""

_NAMED: Final = re.compile(
    r"(?<![\w-])(?P<name>-{0,2}[A-Za-z_][\w.-]*)"
    r"(?P<mark>[\"'`\])]{0,3}\s{0,20}(?:=>|:=|[:=])+\s{0,20}|(?<=\w)\s{1,20}(?=\S))"
)
"""A name and what separates it from its value; white space does so after an option only."""

_HARMLESS: Final = re.compile(
    r"(?i)(?:[+-]?\d{1,20}(?:[.,_]\d{1,20}){0,6}(?:e[+-]?\d{1,4})?\s?[a-z%/]{0,6}"
    r"|true|false|none|null|yes|no)(?=[\s,;|)\]}\"']|$)"
)
"""A number, which may have a unit, or a boolean."""

_KEY_BEGIN: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")
_KEY_END: Final = re.compile(r"-----END [A-Z ]*PRIVATE KEY")


def mask_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, with what may be a secret replaced by `***`.

    Masked are tokens of known forms and texts that look random; user, password, query and fragment
    of URLs; private keys in PEM; and all behind a name like that of a secret, to the end of the
    line, if `=`, `:` or the white space after an option is between them. Numbers and booleans are
    kept there, unless the name may be that of a password.
    """
    is_key = False
    for line in lines:
        is_key = is_key or _KEY_BEGIN.search(line) is not None
        yield MASK if is_key else _mask_line(line)
        is_key = is_key and _KEY_END.search(line) is None


def _mask_line(line: str) -> str:
    line = _URL.sub(lambda match: mask_url(match[0]), line)
    line = _LOGIN.sub(rf"\1 {MASK}", line)
    line = _BEARER.sub(rf"\1 {MASK}", line)
    line = re.sub(r"\S+", lambda match: _mask_word(match[0]), line)
    return _mask_named(line)


def _mask_word(word: str) -> str:
    """Return a word without the tokens in it."""
    if not has_token(word):
        return word
    masked = _PIECE.sub(lambda match: MASK if has_token(match[0]) else match[0], word)
    return masked if masked != word else MASK


def _mask_named(line: str) -> str:
    """Return a line up to the value of the first secret name; a harmless value is passed over."""
    for match in _NAMED.finditer(line):
        name, is_spaced = match["name"], not match["mark"].strip()
        if (is_spaced and not name.startswith("-")) or not is_secret_name(name):
            continue
        value = line[match.end() :]
        is_harmless = _HARMLESS.match(value) and not is_password_name(name)
        if value.strip() and not is_harmless:
            return f"{line[: match.end()]}{MASK}"
    return line
