"""Puts one blob on the server: whole when it is small, otherwise in pieces from where the server says it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from tbupload.errors import Conflict, Refused, Unreachable
from tbupload.events.points import Blob, FileBlob
from tbupload.http.response_schema import Json, boolean, integer, record
from tbupload.http.transport import Transport

ASKED_BYTES_MIN: Final = 4 << 20
"""A blob of this size is not sent before the server was asked whether it has it; to ask for smaller ones costs more."""

LOSSES_MAX: Final = 5
"""How often a server may lose what it has received of one blob before it is left alone."""

PIECE_BYTES_MIN: Final = 1_000
"""A server that wants smaller pieces wants too many of them."""

STATE: Final = record(
    {"is_stored": boolean, "piece_bytes": integer(PIECE_BYTES_MIN), "received_bytes": integer()},
)

WRONG_BYTES: Final = 422

OCTETS: Final = {"Content-Type": "application/octet-stream"}


class BlobPut:
    """One blob on its way to `path`, the address of its SHA-256; used once.

    With `is_repair` all of it is sent, whatever the server says it has: its object may be damaged.
    """

    def __init__(self, transport: Transport, path: str, blob: Blob, *, is_repair: bool = False) -> None:
        self._transport = transport
        self._path = path
        self._blob = blob
        self._repair_query = "&repair=true" if is_repair else ""

    def run(self) -> None:
        """Sends what the server does not have of it. Doing it again changes nothing.

        Raises Conflict (`blob_missing`) when the file that the blob lies in has other bytes by now: read it again.
        """
        try:
            if len(self._blob) < ASKED_BYTES_MIN:
                self._put_whole()
            else:
                self._put_missing(self._ask())
        except Refused as refusal:
            if refusal.status == WRONG_BYTES and isinstance(self._blob, FileBlob):
                raise _changed(self._blob) from refusal
            raise

    def _put_missing(self, state: Json) -> None:
        if state["is_stored"]:
            return
        if len(self._blob) <= state["piece_bytes"]:
            self._put_whole()
        else:
            with _opened(self._blob) as read:
                self._put_pieces(read, state)

    def _put_whole(self) -> None:
        with _opened(self._blob) as read:
            content = read(0, len(self._blob))
        self._transport.request("PUT", self._path, body=content, headers=OCTETS)

    def _put_pieces(self, read: Callable[[int, int], bytes], state: Json) -> None:
        size, piece_bytes = len(self._blob), int(state["piece_bytes"])
        last, losses = (size - 1) // piece_bytes * piece_bytes, 0
        requests_left = (LOSSES_MAX + 1) * (last // piece_bytes + 2)
        while not state["is_stored"]:
            self._transport.check_wanted()
            offset = min(int(state["received_bytes"]), last)
            content = read(offset, min(piece_bytes, size - offset))
            path = f"{self._path}?offset={offset}&size={size}{self._repair_query}"
            state = self._transport.request("PUT", path, body=content, headers=OCTETS).json(STATE)
            losses += not state["is_stored"] and int(state["received_bytes"]) <= offset
            requests_left -= 1
            if losses > LOSSES_MAX or not requests_left:
                raise Unreachable(f"{self._transport.server}: keeps losing what it has received of a large blob")

    def _ask(self) -> Json:
        path = f"{self._path}?size={len(self._blob)}{self._repair_query}"
        return self._transport.request("GET", path).json(STATE)


@contextmanager
def _opened(blob: Blob) -> Iterator[Callable[[int, int], bytes]]:
    """A function that reads the blob: so many bytes from an offset on. Raises Conflict as `BlobPut.run` says."""
    if not isinstance(blob, FileBlob):
        yield lambda offset, size: blob[offset : offset + size]
        return
    try:
        file = blob.path.open("rb")
    except OSError as error:
        raise _changed(blob) from error
    with file:
        yield lambda offset, size: _read(file, blob, offset, size)


def _read(file: BinaryIO, blob: FileBlob, offset: int, size: int) -> bytes:
    try:
        content = b"".join(_pieces(file, blob, offset, offset + size))
    except OSError as error:
        raise _changed(blob) from error
    if len(content) < size:
        raise _changed(blob)
    return content


def _pieces(file: BinaryIO, blob: FileBlob, start: int, end: int) -> Iterator[bytes]:
    """The blob's bytes [start, end), fewer when its file ends."""
    for piece in blob.pieces or (range(blob.offset, blob.offset + blob.size),):
        chosen = piece[max(start, 0) : max(end, 0)]
        start, end = start - len(piece), end - len(piece)
        if isinstance(chosen, bytes):
            yield chosen
        elif chosen:
            file.seek(chosen.start)
            yield file.read(len(chosen))


def _changed(blob: FileBlob) -> Conflict:
    explanation = f"{blob.path}: was truncated, replaced or removed while a large blob in it was being sent"
    return Conflict(explanation, code="blob_missing", segment=None, offset=None, checksum=None)
