r"""Text for terminals: the one way in which `tbupload` writes to stdout and stderr.

Names, URLs and error details come from files and servers that anybody may have written. Characters that steer a
terminal or reorder what it shows (ESC, CR, LF, C1, U+202E …) are written as escapes: `\x1b`. Every text is one line.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import unicodedata
from typing import Any, Final, TextIO

_JOIN_CONTROLS: Final = frozenset("\u200c\u200d")
"""Format characters that words of some languages, and emoji, are made of; they move nothing."""


def is_harmless(char: str) -> bool:
    """Return whether a character may go to a terminal, or into a file's name, as it is.

    Refused are control, format and surrogate characters, line separators and code points without a meaning (Unicode
    categories C*, Zl, Zp); spaces of any width and the joiners of scripts are fine.
    """
    return char.isprintable() or char in _JOIN_CONTROLS or unicodedata.category(char) == "Zs"


def escape(text: str) -> str:
    r"""Return the text with every character that is not harmless as an escape of Python's: `\x1b`, `\u202e`."""
    if text.isprintable():
        return text
    return "".join(char if is_harmless(char) else _escape_char(char) for char in text)


def write_line(stream: TextIO, text: str, *, end: str = "\n") -> None:
    """Write one escaped line at once. Characters the stream's encoding lacks become escapes as well.

    Raises OSError (BrokenPipeError when nobody reads).
    """
    _write(stream, escape(text), end)


def write_json(stream: TextIO, content: Any) -> None:
    """Write one line of JSON, in which characters that are not harmless are JSON's own escapes. Raises OSError."""
    text = json.dumps(content, ensure_ascii=False)
    if not text.isprintable():
        # Outside of strings there are only ASCII characters: whatever is replaced here stands in a string.
        text = "".join(char if is_harmless(char) else json.dumps(char)[1:-1] for char in text)
    if _escape_unencodable(stream, text) != text:
        text = json.dumps(content)
    _write(stream, text, "\n")


def write_raw(line: bytes) -> None:
    """Write bytes of the program's own to stderr without any lock, as a signal handler has to; errors are ignored."""
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), line)


def _write(stream: TextIO, text: str, end: str) -> None:
    stream.write(f"{_escape_unencodable(stream, text)}{end}")
    stream.flush()


def _escape_unencodable(stream: TextIO, text: str) -> str:
    """The text with escapes for what the stream's encoding lacks, as in a terminal of Latin-1."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _escape_char(char: str) -> str:
    return char.encode("unicode_escape").decode()
