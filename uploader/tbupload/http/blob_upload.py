"""The upload of one blob: a small one in one request, a large one in parts that can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from tbupload.errors import Conflict, Refused, Unreachable
from tbupload.events.points import Blob, FileBlob
from tbupload.http.response_schema import Json, boolean, integer, record
from tbupload.http.transport import Transport

CHECK_FIRST_BYTES_MIN: Final = 4 << 20
"""Size from which the server is asked first whether it has the blob.

For smaller ones, asking costs more than sending them again.
"""

LOST_PARTS_MAX: Final = 5
"""Times that a server may lose what it has received of one blob, before the upload fails."""

PART_BYTES_MIN: Final = 1_000
"""Smallest part a server may ask for: it decides the number of requests."""

UPLOAD_STATE: Final = record(
    {"is_stored": boolean, "piece_bytes": integer(PART_BYTES_MIN), "received_bytes": integer()},
)

UNPROCESSABLE_CONTENT: Final = 422  # RFC 9110, section 15.5.21

OCTET_STREAM: Final = {"Content-Type": "application/octet-stream"}


class BlobUpload:
    """The upload of one blob; used once.

    Args:
        transport: The server.
        path: The URL path of the blob, which contains its SHA-256.
        blob: The content.
        is_repair: Send all of it, even if the server has it: its object may be damaged.
    """

    def __init__(
        self, transport: Transport, path: str, blob: Blob, *, is_repair: bool = False
    ) -> None:
        self._transport = transport
        self._path = path
        self._blob = blob
        self._repair_query = "&repair=true" if is_repair else ""

    def run(self) -> None:
        """Send what the server does not have of the blob. Idempotent.

        Raises:
            Conflict: The file that contains the blob has changed (`blob_missing`): read it again.
            Unreachable: The server keeps losing what it has received.
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
        last_offset, losses = (size - 1) // part_bytes * part_bytes, 0
        requests_left = (LOST_PARTS_MAX + 1) * (last_offset // part_bytes + 2)

        while not state["is_stored"]:
            self._transport.check_not_cancelled()
            offset = min(int(state["received_bytes"]), last_offset)
            content = read(offset, min(part_bytes, size - offset))
            path = f"{self._path}?offset={offset}&size={size}{self._repair_query}"
            state = self._transport.request("PUT", path, body=content, headers=OCTET_STREAM).json(
                UPLOAD_STATE
            )

            # A server may restart from zero occasionally, but not endlessly.
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
    """Yield a function of offset and size that reads the blob; raises as `BlobUpload.run` does."""
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
    """Yield the blob's bytes [start, end), fewer if its file ends before."""
    # An extent is bytes, or a range of the file: both have a length and can be sliced.
    for extent in blob.extents or (range(blob.offset, blob.offset + blob.size),):
        overlap = extent[max(start, 0) : max(end, 0)]
        start, end = start - len(extent), end - len(extent)
        if isinstance(overlap, bytes):
            yield overlap
        elif overlap:
            file.seek(overlap.start)
            yield file.read(len(overlap))


def _changed_file_error(blob: FileBlob) -> Conflict:
    explanation = (
        f"{blob.path}: was truncated, replaced or removed while a large blob in it was being sent"
    )
    return Conflict(explanation, code="blob_missing", segment=None, offset=None, checksum=None)
