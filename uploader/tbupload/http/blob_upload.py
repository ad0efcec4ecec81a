"""Puts one blob on the server: whole when it is small, otherwise in pieces from where the server says it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from tbupload.errors import Conflict, Refused, Unreachable
from tbupload.events.points import Blob, FileBlob
from tbupload.http.response_schema import Json, boolean, integer, record
from tbupload.http.transport import Transport

CHECK_FIRST_BYTES_MIN: Final = 4 << 20
"""A blob of this size is not sent before the server was asked whether it has it; to ask for smaller ones costs more."""

LOST_PARTS_MAX: Final = 5
"""How often a server may lose what it has received of one blob before it is left alone."""

PART_BYTES_MIN: Final = 1_000
"""A server that wants smaller pieces wants too many of them."""

UPLOAD_STATE: Final = record(
    {"is_stored": boolean, "piece_bytes": integer(PART_BYTES_MIN), "received_bytes": integer()},
)

UNPROCESSABLE_CONTENT: Final = 422

OCTET_STREAM: Final = {"Content-Type": "application/octet-stream"}


class BlobUpload:
    """One blob on its way to `path`, the address of its SHA-256; used once.

    With `is_repair` all of it is sent, whatever the server says it has: its object may be damaged.
    """

    def __init__(
        self, transport: Transport, path: str, blob: Blob, *, is_repair: bool = False
    ) -> None:
        self._transport = transport
        self._path = path
        self._blob = blob
        self._repair_query = "&repair=true" if is_repair else ""

    def run(self) -> None:
        """Sends what the server does not have of it. Doing it again changes nothing.

        Raises Conflict (`blob_missing`) when the file that the blob lies in has other bytes by now: read it again.
        """
        try:
            if len(self._blob) < CHECK_FIRST_BYTES_MIN:
                self._upload_whole()
            else:
                self._upload_missing(self._get_state())
        except Refused as refusal:
            if refusal.status == UNPROCESSABLE_CONTENT and isinstance(self._blob, FileBlob):
                raise _changed_file_error(self._blob) from refusal
            raise

    def _upload_missing(self, state: Json) -> None:
        if state["is_stored"]:
            return
        if len(self._blob) <= state["piece_bytes"]:
            self._upload_whole()
        else:
            with _open_reader(self._blob) as read:
                self._upload_parts(read, state)

    def _upload_whole(self) -> None:
        with _open_reader(self._blob) as read:
            content = read(0, len(self._blob))
        self._transport.request("PUT", self._path, body=content, headers=OCTET_STREAM)

    def _upload_parts(self, read: Callable[[int, int], bytes], state: Json) -> None:
        size, part_bytes = len(self._blob), int(state["piece_bytes"])
        last, losses = (size - 1) // part_bytes * part_bytes, 0
        requests_left = (LOST_PARTS_MAX + 1) * (last // part_bytes + 2)
        while not state["is_stored"]:
            self._transport.check_not_cancelled()
            offset = min(int(state["received_bytes"]), last)
            content = read(offset, min(part_bytes, size - offset))
            path = f"{self._path}?offset={offset}&size={size}{self._repair_query}"
            state = self._transport.request("PUT", path, body=content, headers=OCTET_STREAM).json(
                UPLOAD_STATE
            )
            losses += not state["is_stored"] and int(state["received_bytes"]) <= offset
            requests_left -= 1
            if losses > LOST_PARTS_MAX or not requests_left:
                raise Unreachable(
                    f"{self._transport.server}: keeps losing what it has received of a large blob"
                )

    def _get_state(self) -> Json:
        path = f"{self._path}?size={len(self._blob)}{self._repair_query}"
        return self._transport.request("GET", path).json(UPLOAD_STATE)


@contextmanager
def _open_reader(blob: Blob) -> Iterator[Callable[[int, int], bytes]]:
    """A function that reads the blob: so many bytes from an offset on. Raises Conflict as `BlobUpload.run` says."""
    if not isinstance(blob, FileBlob):
        yield lambda offset, size: blob[offset : offset + size]
        return
    try:
        file = blob.path.open("rb")
    except OSError as error:
        raise _changed_file_error(blob) from error
    with file:
        yield lambda offset, size: _read_range(file, blob, offset, size)


def _read_range(file: BinaryIO, blob: FileBlob, offset: int, size: int) -> bytes:
    try:
        content = b"".join(_iter_range(file, blob, offset, offset + size))
    except OSError as error:
        raise _changed_file_error(blob) from error
    if len(content) < size:
        raise _changed_file_error(blob)
    return content


def _iter_range(file: BinaryIO, blob: FileBlob, start: int, end: int) -> Iterator[bytes]:
    """The blob's bytes [start, end), fewer when its file ends."""
    for piece in blob.extents or (range(blob.offset, blob.offset + blob.size),):
        chosen = piece[max(start, 0) : max(end, 0)]
        start, end = start - len(piece), end - len(piece)
        if isinstance(chosen, bytes):
            yield chosen
        elif chosen:
            file.seek(chosen.start)
            yield file.read(len(chosen))


def _changed_file_error(blob: FileBlob) -> Conflict:
    explanation = (
        f"{blob.path}: was truncated, replaced or removed while a large blob in it was being sent"
    )
    return Conflict(explanation, code="blob_missing", segment=None, offset=None, checksum=None)
