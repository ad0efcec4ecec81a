"""Memory of the uploader and of a server worker: a logdir of 10 GB, and one of 100,000 files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from bench import Bench, say
from logdirs import (
    FILE_NAME,
    STARTED,
    Size,
    encode_steps,
    write_images,
    write_scalars,
)
from machine import peak_memory, report, resident_memory
from service import Service
from upload import environment

from support.event_files import encode_record, version_event

GIGABYTE = 10**9
SCALARS = Size(1, 20, 100_000)
"""One file of about 100 MB, linked under many runs."""

IMAGE_FILE_BYTES = 100_000_000
MARKS = (0.1, 0.5, 1.0)
FILES = 100_000
FILES_A_RUN = 10
EVENTS_A_FILE = 10
DISK_BYTES = 12 * GIGABYTE
UPLOADER_TARGET = "under 150"


def measure(bench: Bench) -> None:
    """Uploads both logdirs; most of their bytes are hard links to the same few files, but streams
    of their own.
    """
    bench.need_disk(DISK_BYTES * bench.scale)
    cases = {"10 GB": _write_large, "100,000 files": _write_many}
    for number, (name, write) in enumerate(cases.items()):
        if bench.is_chosen(name):
            logdir = bench.directory / f"logdir_{number}"
            say(f"writing: {name}, times {bench.scale:g}")
            size = write(logdir, bench.scale)
            with bench.new_service(f"service_{number}") as service:
                _measure(service, name, logdir, size)
            shutil.rmtree(logdir)


def _write_large(logdir: Path, scale: float) -> int:
    """Half of it scalars, half images."""
    base = logdir.with_name("base")
    write_scalars(base / "scalars", SCALARS)
    write_images(base / "images", IMAGE_FILE_BYTES * 10)
    files = [
        next((base / "scalars").rglob("*tfevents*")),
        next((base / "images").rglob("*tfevents*")),
    ]
    total = number = 0
    while total < 10 * GIGABYTE * scale:
        for kind, file in zip(("scalars", "images"), files, strict=True):
            _link(file, logdir / f"{kind}_{number:04d}" / FILE_NAME)
            total += file.stat().st_size
        number += 1
    shutil.rmtree(base)
    return total


def _write_many(logdir: Path, scale: float) -> int:
    """Write files of ten events, ten per run, each starting at the step where the last one ended."""
    base = logdir.with_name("base")
    base.mkdir()
    files = [
        _write_few(base / f"events.out.tfevents.17000000{index:02d}.benchmark", index)
        for index in range(FILES_A_RUN)
    ]
    runs = max(1, round(FILES * scale / FILES_A_RUN))
    for number in range(runs):
        for file in files:
            _link(file, logdir / f"run_{number:05d}" / file.name)
    total = sum(file.stat().st_size for file in files) * runs
    shutil.rmtree(base)
    return total


def _write_few(path: Path, index: int) -> Path:
    steps = np.arange(index * EVENTS_A_FILE, (index + 1) * EVENTS_A_FILE)
    records = encode_steps(["loss"], steps, STARTED + steps[:, None], 1 / (1 + steps[:, None]))
    path.write_bytes(
        encode_record(version_event(STARTED + index).SerializeToString()) + b"".join(records)
    )
    return path


def _link(file: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.link(file, path)


def _measure(service: Service, name: str, logdir: Path, size: int) -> None:
    command = [sys.executable, "-m", "tbupload", "--logdir", str(logdir), "--one-shot"]
    worker = service.live.process.pid
    report(f"{name}: the worker before anything came", f"{resident_memory(worker) / 2**20:.0f} MiB")
    marks, peak, began = list(MARKS), 0, time.monotonic()
    with (service.directory / "err").open("wb") as err:
        process = subprocess.Popen(
            command, env=environment(service), stdout=subprocess.DEVNULL, stderr=err
        )
        while process.poll() is None:
            peak = max(peak, peak_memory(process.pid))
            while marks and _committed(service) >= marks[0] * size * 0.98:
                _report_mark(name, worker, marks.pop(0) * size, peak, time.monotonic() - began)
            time.sleep(0.25)
    assert process.returncode == 0, (service.directory / "err").read_text()[-2000:]
    seconds = time.monotonic() - began
    report(f"{name}: the uploader, at most", f"{peak / 2**20:.0f} MiB", UPLOADER_TARGET)
    report(f"{name}: the worker, at most", f"{peak_memory(worker) / 2**20:.0f} MiB", "not growing")
    report(f"{name}: uploaded in", f"{seconds:.0f} s", f"{size / seconds / 1e6:,.0f} MB/s")


def _report_mark(name: str, worker: int, size: float, uploader_peak: int, seconds: float) -> None:
    report(
        f"{name}: the worker at {size / GIGABYTE:.2f} GB, now and at most",
        f"{resident_memory(worker) / 2**20:.0f}, {peak_memory(worker) / 2**20:.0f} MiB",
        f"after {seconds:.0f} s; the uploader at most {uploader_peak / 2**20:.0f} MiB",
    )


def _committed(service: Service) -> int:
    """Bytes of event files below the cursors of all streams."""
    return int(service.query("SELECT coalesce(sum(cursor), 0) FROM upload_streams")[0][0])
