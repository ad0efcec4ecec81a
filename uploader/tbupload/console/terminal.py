r"""Text for terminals: all that `tbupload` writes to stdout and stderr passes here.

Names, URLs and error details come from files and servers that are not trusted. Characters that
control a terminal or reorder what it shows (ESC, CR, LF, C1, U+202E …) are written as escapes such
as `\x1b`. Every text is one line.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import unicodedata
from typing import Any, Final, TextIO

_JOIN_CONTROLS: Final = frozenset("\u200c\u200d")
"""Format characters that scripts and emoji need; they do not reorder text (UAX #9)."""


def is_harmless(char: str) -> bool:
    """Return whether a character may be written to a terminal, or into a file's name, as it is.

    Control, format and surrogate characters, line separators and unassigned code points (Unicode
    categories C*, Zl, Zp) may not; spaces of any width and the joiners of scripts may.
    """
    return char.isprintable() or char in _JOIN_CONTROLS or unicodedata.category(char) == "Zs"


def escape(text: str) -> str:
    r"""Return the text with harmful characters as Python's escapes: `\x1b`, `\u202e`."""
    if text.isprintable():
        return text
    return "".join(char if is_harmless(char) else _escape_char(char) for char in text)


def write_line(stream: TextIO, text: str, *, end: str = "\n", is_escaped: bool = False) -> None:
    """Write and flush one line, escaped unless it is; also what the stream's encoding lacks.

    Raises OSError (BrokenPipeError without a reader).
    """
    _write(stream, text if is_escaped else escape(text), end)


def write_json(stream: TextIO, content: Any) -> None:
    """Write and flush one line of JSON, with JSON's escapes; raises OSError."""
    text = json.dumps(content, ensure_ascii=False)
    if not text.isprintable():
        # Outside of strings, JSON is printable ASCII: all that is replaced here is in a string.
        text = "".join(char if is_harmless(char) else json.dumps(char)[1:-1] for char in text)
    if _escape_unencodable(stream, text) != text:
        text = json.dumps(content)
    _write(stream, text, "\n")


def write_raw(line: bytes) -> None:
    """Write our own bytes to stderr without a lock, for signal handlers; errors are ignored."""
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), line)


def _write(stream: TextIO, text: str, end: str) -> None:
    stream.write(f"{_escape_unencodable(stream, text)}{end}")
    stream.flush()


def _escape_unencodable(stream: TextIO, text: str) -> str:
    """Return the text with escapes for what the stream's encoding lacks, such as Latin-1."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _escape_char(char: str) -> str:
    return char.encode("unicode_escape").decode()
