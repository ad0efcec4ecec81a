"""Messages between an upload and its readers; between processes they are pickled."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Union

from tbupload.upload.segments import EncodedSegment


class FileToRead(NamedTuple):
    """A file that a reader is to read, to its end.

    Attributes:
        number: Identifies the file in later messages.
        path: The file.
        run: Its run.
        stream: Its serialized `Stream`; empty for a file that is new to the server.
        offset: Where to begin, in bytes.
    """

    number: int
    path: Path
    run: str
    stream: bytes
    offset: int


class FilesToRead(NamedTuple):
    """To a reader: files to read in turns, small ones decoded together."""

    files: list[FileToRead]


class SegmentTaken(NamedTuple):
    """To a reader: the upload has taken a segment of this file, of `size` bytes in memory."""

    number: int
    size: int


class FileDropped(NamedTuple):
    """To a reader: nothing more of this file is wanted."""

    number: int


class SegmentRead(NamedTuple):
    """From a reader: the next segment of a file."""

    number: int
    segment: EncodedSegment


class FileEnded(NamedTuple):
    """From a reader: it reads no further in this file, because it ends or needs a decision.

    The upload reads on by itself, and so finds which it is.
    """

    number: int


ToReader = Union[FilesToRead, SegmentTaken, FileDropped]
FromReader = Union[SegmentRead, FileEnded]
