"""A whole upload, from files to committed and readable, against RustBoard's load of the same files
into memory.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from bench import Bench, say
from logdirs import Size, write_scalars
from machine import peak_memory, report, spent, told
from rustboard import Load, load_with_rustboard
from service import Service

from tbservice import limits

SIZE = Size(10, 20, 50_000)
TARGET = "at least 1.0 x"


@dataclass(frozen=True)
class Uploaded:
    """How long an upload took from the start of its process to its end, and what it used: CPU
    seconds by group.
    """

    seconds: float
    cpu_seconds: dict[str, float]
    peak_bytes: int
    experiment_id: str
    merge_seconds: float = (
        0.0  # CPU seconds of all servers after its end, until everything due was merged
    )


def measure(bench: Bench) -> None:
    """Uploads the same files again and again, each time to a new experiment, in turns with
    RustBoard.
    """
    size = SIZE.scaled(bench.scale)
    logdir = bench.directory / "logdir"
    say(f"writing {size.points:,} scalars in {size.runs} runs of {size.tags} tags")
    say(f"{write_scalars(logdir, size) / 2**20:.0f} MiB, in the page cache")
    uploads: list[Uploaded] = []
    loads: dict[bool, list[Load]] = {True: [], False: []}
    with bench.new_service() as service:
        for number in range(bench.rounds):
            uploaded = upload(service, logdir)
            uploads.append(
                replace(uploaded, merge_seconds=await_merges(service))
            )  # RustBoard is to have the machine
            say(
                f"round {number + 1}: {uploads[-1].seconds:.2f} s; CPU: {told(uploads[-1].cpu_seconds)}"
            )
            for checksum, of_kind in loads.items():
                of_kind.append(
                    load_with_rustboard(
                        logdir, bench.directory / "rustboard.log", checksum=checksum
                    )
                )
        check_readable(service, uploads[-1].experiment_id, size)
        _report(uploads, loads, size)
        report(
            "most memory of the server's worker",
            f"{peak_memory(service.live.process.pid) / 2**20:.0f} MiB",
        )


def upload(service: Service, logdir: Path) -> Uploaded:
    """Runs `tbupload --one-shot` to its end, into a new experiment."""
    command = [
        sys.executable,
        "-m",
        "tbupload",
        "--logdir",
        str(logdir),
        "--one-shot",
        "--new",
        "--quiet",
    ]
    before, own_before, peak = service.cpu_seconds(), _of_ended_children(), 0
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        env=environment(service),
        stdout=subprocess.PIPE,
        text=True,
        cwd=service.directory,
    )
    while process.poll() is None:
        peak = max(peak, peak_memory(process.pid))
        time.sleep(0.01)
    seconds = time.perf_counter() - began
    out, _ = process.communicate()
    assert process.returncode == 0, process.returncode
    experiment_id = out.split("/experiment/")[1].split("/")[0].strip()
    used = {"uploader": _of_ended_children() - own_before} | spent(before, service.cpu_seconds())
    return Uploaded(seconds, used, peak, experiment_id)


def await_merges(service: Service) -> float:
    """Waits until nothing is due for a merge; the CPU seconds that the servers have used meanwhile."""
    due = f"SELECT 1 FROM time_series WHERE tail_points >= {limits.WRITE_BUFFER_POINTS_MAX} LIMIT 1"  # noqa: S608 - a constant
    before = service.cpu_seconds()
    while service.query(due):
        time.sleep(0.5)  # every look costs a connection
    return sum(spent(before, service.cpu_seconds()).values())


def _of_ended_children() -> float:
    """CPU seconds of all processes that this one started and has seen end."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def environment(service: Service) -> dict[str, str]:
    """Return the environment of `tbupload`, without the configuration of the user who measures."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TBHUB_")}
    return kept | {
        "TBHUB_SERVER": service.live.url,
        "TBHUB_TOKEN": service.token,
        "TBHUB_CONFIG": str(service.directory / "config.toml"),
    }


def check_readable(service: Service, experiment_id: str, size: Size) -> None:
    """Fails when the read API does not have every point at once."""
    listed = service.reader.get(experiment_id, "scalars")
    counts = [series["count"] for tags in listed.values() for series in tags.values()]
    assert counts == [size.steps] * (size.runs * size.tags), counts


def _report(uploads: list[Uploaded], loads: dict[bool, list[Load]], size: Size) -> None:
    seconds = statistics.median(each.seconds for each in uploads)
    report(
        "upload, the whole `tbupload --one-shot`: scalars/s",
        f"{size.points / seconds:,.0f}",
        f"{seconds:.2f} s",
    )
    for checksum, of_kind in loads.items():
        rust = statistics.median(load.seconds for load in of_kind)
        name = "RustBoard's load cycle, checksums " + ("verified" if checksum else "ignored")
        report(f"{name}: scalars/s", f"{size.points / rust:,.0f}", f"{rust:.2f} s")
        report("  upload : this", f"{rust / seconds:.2f} x", TARGET)
    for group in uploads[0].cpu_seconds:
        used = statistics.median(each.cpu_seconds[group] for each in uploads)
        report(
            f"CPU of the {group} per million scalars",
            f"{used / size.points * 1e6:.3f} s",
            f"{used:.2f} s in all",
        )
    used = statistics.median(sum(each.cpu_seconds.values()) for each in uploads)
    cores = len(os.sched_getaffinity(0))
    merging = statistics.median(each.merge_seconds for each in uploads)
    report(
        "CPU of the servers after it, for merges, per million scalars",
        f"{merging / size.points * 1e6:.3f} s",
    )
    report(
        "share of all cores in use meanwhile",
        f"{used / seconds / cores:.0%}",
        "near 100 %: the CPU bounds it",
    )
    report(
        "most memory of the uploader",
        f"{max(each.peak_bytes for each in uploads) / 2**20:.0f} MiB",
        "under 150",
    )
