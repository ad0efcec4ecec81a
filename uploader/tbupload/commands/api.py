"""The command `tbupload api`: one request to the HTTP API, with the token in use."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from tbupload.commands.connect import make_transport
from tbupload.console.output import print_bytes
from tbupload.errors import UsageError

ROOT: Final = "/api/v1"

_REPEATABLE: Final = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""Methods that may be repeated (RFC 9110, section 9.2.2)."""


def api(options: argparse.Namespace) -> int:
    """Run `tbupload api PATH`: print the body of the answer as it arrives."""
    path = _find_path(options.path)
    body = None if options.input is None else _read_body(options.input)
    method = options.method or ("GET" if body is None else "POST")
    headers = {"Accept": "*/*"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    may_retry = method in _REPEATABLE
    with make_transport(options).stream(
        method, path, body=body, headers=headers, may_retry=may_retry
    ) as chunks:
        print_bytes(chunks)
    return 0


def _find_path(text: str) -> str:
    """Return the path below the server's address. Raise UsageError for what can be none."""
    if "://" in text:
        raise UsageError(f"{text!r} is a URL: give the path below {ROOT}, such as /experiments")
    if not text.isascii() or not text.isprintable() or " " in text or "#" in text:
        raise UsageError(f"{text!r} is not a path: percent-encode other characters (%20, %C3%BC)")
    path = f"/{text.lstrip('/')}"
    return path if path.startswith(f"{ROOT}/") else ROOT + path


def _read_body(path: Path) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"--input {path}: {error.strerror}") from error
