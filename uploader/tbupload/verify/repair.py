"""`verify --repair`: sends lost blobs again from the files that they came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from tbupload.console.progress import ConsoleProgress
from tbupload.errors import Conflict
from tbupload.events.points import Blob
from tbupload.http.client import Client
from tbupload.logdir.scan import scan_logdir
from tbupload.upload.plugins.projector_stream import ProjectorStream
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.round_robin import read_runs
from tbupload.upload.segments import EncodedSegment
from tbupload.verify.verification import VerifyOptions

_CONCURRENT_UPLOADS: Final = 4
"""The number of connections of the client's pool."""


@dataclass
class RepairResult:
    """Number and bytes of the blobs that were sent again; `left` were not sent."""

    objects: int = 0
    bytes: int = 0
    left: int = 0


class Repair:
    """One pass over the files of the runs that refer to lost objects.

    `digests_by_run` has the SHA-256 digests of the lost objects, in hexadecimal.
    """

    def __init__(
        self,
        client: Client,
        options: VerifyOptions,
        digests_by_run: Mapping[str, set[str]],
        progress: ConsoleProgress,
    ) -> None:
        self._client = client
        self._options = options
        self._runs = digests_by_run
        self._progress = progress
        self._missing_digests = {
            bytes.fromhex(digest) for digests in digests_by_run.values() for digest in digests
        }

    def run(self) -> RepairResult:
        """Send the lost blobs that are in the files. Raise ServerError; earlier blobs are kept."""
        repaired = RepairResult()
        with ThreadPoolExecutor(_CONCURRENT_UPLOADS, "repair") as pool:
            for segment in self._segments():
                blobs = {
                    digest: blob
                    for digest, blob in segment.blobs.items()
                    if digest in self._missing_digests
                }
                for digest, size in pool.map(self._upload, blobs.items()):
                    if size is not None:
                        self._missing_digests.discard(digest)
                        repaired.objects += 1
                        repaired.bytes += size
                if not self._missing_digests:
                    break
        repaired.left = len(self._missing_digests)
        return repaired

    def _upload(self, item: tuple[bytes, Blob]) -> tuple[bytes, int | None]:
        digest, blob = item
        try:
            self._client.upload_blob(self._options.experiment_id, digest, blob, is_repair=True)
        except Conflict as conflict:  # the file has changed since it was read
            self._progress.warn(str(conflict))
            return digest, None
        return digest, len(blob)

    def _segments(self) -> Iterator[EncodedSegment]:
        """Read the files as an upload does, with all blobs separate from the segments' bodies."""
        limits = replace(
            self._client.get_limits(self._options.experiment_id),
            packed_points_max=0,
            blob_inline_bytes_max=-1,  # an empty blob is an object, too
        )
        series_filter = self._options.series_filter
        scan = scan_logdir(self._options.logdir, series_filter, limits.name_chars_max)
        read_options = ReadOptions(series_filter, limits, is_final=True, warn=self._progress.warn)
        files = (file for file in scan.files if file.run in self._runs)
        for _, segments in read_runs(files, read_options):
            yield from (segment for _, segment in segments if segment is not None)

        for folder in scan.projector_folders:
            stream = ProjectorStream(folder, self._options.logdir, series_filter, limits)
            if stream.folder.run in self._runs and (segment := stream.segment()[0]) is not None:
                yield segment
