"""A log directory in an object store that answers slowly: read by the upload alone, and by threads."""

from __future__ import annotations

import json
import os
import statistics
from contextlib import closing
from pathlib import Path

from bench import Bench, say
from logdirs import Size, write_scalars
from machine import report
from service import Service
from upload import Uploaded, check_readable, upload

from support.servers import s3_client
from support.slow_link import slow_link
from tbupload.upload.readers.choice import THREADS

SIZE = Size(200, 5, 200)
ROUND_TRIP_SECONDS = 0.05
TARGET = "at most 0.2 x"


def measure(bench: Bench) -> None:
    """Upload the same small files from SeaweedFS, through a relay with a round trip time."""
    size = Size(max(2, round(SIZE.runs * bench.scale)), SIZE.tags, SIZE.steps)
    logdir = bench.directory / "logdir"
    write_scalars(logdir, size)
    counts = (0, THREADS)
    uploads: dict[int, list[Uploaded]] = {readers: [] for readers in counts}
    with (
        bench.new_service() as service,
        slow_link(service.live.settings.s3_endpoint, ROUND_TRIP_SECONDS) as endpoint,
    ):
        url = _store(service, logdir, endpoint)
        for number in range(bench.rounds):
            for readers in counts:
                uploads[readers].append(upload(service, url, readers))
                check_readable(service, uploads[readers][-1].experiment_id, size)
                say(
                    f"round {number + 1}, {readers} reader threads: {uploads[readers][-1].seconds:.2f} s"
                )
    medians = [statistics.median(each.seconds for each in uploads[n]) for n in counts]
    for readers, seconds in zip(counts, medians, strict=True):
        report(
            f"{size.runs} runs behind {ROUND_TRIP_SECONDS * 1000:.0f} ms, {readers} reader threads",
            f"{seconds:.2f} s",
            f"{seconds / size.runs * 1000:.0f} ms a file",
        )
    report(f"  time with {THREADS} : without", f"{medians[1] / medians[0]:.2f} x", TARGET)


def _store(service: Service, logdir: Path, endpoint: str) -> str:
    """Put the files into a bucket, and tell fsspec of it; return its URL."""
    settings = service.live.settings
    with closing(s3_client(settings)) as client:
        client.create_bucket(Bucket="runs")
        for path in logdir.rglob("*tfevents*"):
            client.upload_file(str(path), "runs", path.relative_to(logdir).as_posix())
    options = {
        "key": settings.s3_access_key.get_secret_value(),
        "secret": settings.s3_secret_key.get_secret_value(),
        "client_kwargs": {"endpoint_url": endpoint, "region_name": settings.s3_region},
    }
    os.environ["FSSPEC_S3"] = json.dumps(options)
    os.environ["PYTHONWARNINGS"] = "ignore"  # of a s3fs that is older than its boto3
    return "s3://runs"
