"""Lines on stdout for programs and people, and on stderr for people."""

from __future__ import annotations

import json
import sys
from typing import Any


def put_line(text: str) -> None:
    """A result, on stdout, at once: whoever reads it through a pipe sees it before the command has ended."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def put_json(content: dict[str, Any]) -> None:
    """A result as one line of JSON."""
    put_line(json.dumps(content, ensure_ascii=False))


def tell(text: str, *, end: str = "\n") -> None:
    """A sentence on stderr."""
    sys.stderr.write(f"{text}{end}")
    sys.stderr.flush()
