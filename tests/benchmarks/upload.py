"""A whole upload, from files to committed and readable, against RustBoard's load of the same files
into memory: without reader processes, with one, and with one for each other core.
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
from machine import cores, own_cpu_seconds, peak_memory, report, spent, told
from rustboard import Load, load_with_rustboard
from service import Service

from tbservice import limits

SIZE = Size(10, 20, 50_000)
TINY = Size(10, 20, 1)
TARGETS = {0: "at least 1.0 x", 1: "at least 1.4 x"}
MODELLED_READERS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Uploaded:
    """How long an upload took from the start of its process to its end, and what it used: CPU
    seconds by group, of which `own_cpu_seconds` are the uploader's without its readers.
    """

    seconds: float
    cpu_seconds: dict[str, float]
    own_cpu_seconds: float
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
    counts = sorted({0, 1, max(1, cores() - 1)})
    uploads: dict[int, list[Uploaded]] = {readers: [] for readers in counts}
    loads: dict[bool, list[Load]] = {True: [], False: []}
    with bench.new_service() as service:
        for number in range(bench.rounds):
            for readers, of_count in uploads.items():
                uploaded = upload(service, logdir, readers)
                # RustBoard is to have the machine.
                of_count.append(replace(uploaded, merge_seconds=await_merges(service)))
                used = told(uploaded.cpu_seconds)
                say(
                    f"round {number + 1}, {readers} reader processes: {uploaded.seconds:.2f} s; CPU: {used}"
                )
            for checksum, of_kind in loads.items():
                of_kind.append(
                    load_with_rustboard(
                        logdir, bench.directory / "rustboard.log", checksum=checksum
                    )
                )
        for of_count in uploads.values():
            check_readable(service, of_count[-1].experiment_id, size)
        for readers, of_count in uploads.items():
            _report(readers, of_count, loads, size)
        _report_loads(loads, size)
        _report_model(_measure_starts(bench, service), uploads[counts[-1]], counts[-1], size)
        report(
            "most memory of the server's worker",
            f"{peak_memory(service.live.process.pid) / 2**20:.0f} MiB",
        )


def upload(service: Service, logdir: Path | str, readers: int = 0) -> Uploaded:
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
        f"--readers={readers}",
    ]
    before, own_before, own, peak = service.cpu_seconds(), _of_ended_children(), 0.0, 0
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
        own = max(own, own_cpu_seconds(process.pid))
        time.sleep(0.01)
    seconds = time.perf_counter() - began
    out, _ = process.communicate()
    assert process.returncode == 0, process.returncode
    experiment_id = out.split("/experiment/")[1].split("/")[0].strip()
    used = {"uploader": _of_ended_children() - own_before} | spent(before, service.cpu_seconds())
    return Uploaded(seconds, used, own, peak, experiment_id)


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


def _report(
    readers: int, uploads: list[Uploaded], loads: dict[bool, list[Load]], size: Size
) -> None:
    seconds = statistics.median(each.seconds for each in uploads)
    report(
        f"upload, the whole `tbupload --one-shot --readers {readers}`: scalars/s",
        f"{size.points / seconds:,.0f}",
        f"{seconds:.2f} s",
    )
    for checksum, of_kind in loads.items():
        rust = statistics.median(load.seconds for load in of_kind)
        name = "checksums " + ("verified" if checksum else "ignored")
        target = TARGETS.get(readers, "") if checksum else ""
        report(f"  compared with RustBoard's load, {name}", f"{rust / seconds:.2f} x", target)
    for group in uploads[0].cpu_seconds:
        used = statistics.median(each.cpu_seconds[group] for each in uploads)
        report(
            f"  CPU of the {group} per million scalars",
            f"{used / size.points * 1e6:.3f} s",
            f"{used:.2f} s in all",
        )
    used = statistics.median(sum(each.cpu_seconds.values()) for each in uploads)
    merging = statistics.median(each.merge_seconds for each in uploads)
    report(
        "  CPU of the servers after it, for merges, per million scalars",
        f"{merging / size.points * 1e6:.3f} s",
    )
    report(
        "  share of all cores in use meanwhile",
        f"{used / seconds / cores():.0%}",
        "near 100 %: the CPU bounds it",
    )
    report(
        "  most memory of the uploader, without its reader processes",
        f"{max(each.peak_bytes for each in uploads) / 2**20:.0f} MiB",
        "under 150",
    )


def _report_loads(loads: dict[bool, list[Load]], size: Size) -> None:
    for checksum, of_kind in loads.items():
        rust = statistics.median(load.seconds for load in of_kind)
        name = "RustBoard's load cycle, checksums " + ("verified" if checksum else "ignored")
        report(f"{name}: scalars/s", f"{size.points / rust:,.0f}", f"{rust:.2f} s")


@dataclass(frozen=True)
class _Starts:
    """CPU seconds until there is something to read: of the uploader, and of one reader process.

    `seconds` is how long the whole upload of next to nothing takes.
    """

    seconds: float
    uploader: float
    reader: float


def _measure_starts(bench: Bench, service: Service) -> _Starts:
    """Upload next to nothing, without and with reader processes."""
    logdir = bench.directory / "tiny"
    write_scalars(logdir, TINY)
    uploads = {
        readers: [upload(service, logdir, readers) for _ in range(bench.rounds)]
        for readers in (0, 1)
    }
    used = {
        readers: statistics.median(each.cpu_seconds["uploader"] for each in of_count)
        for readers, of_count in uploads.items()
    }
    seconds = statistics.median(each.seconds for each in uploads[0])
    return _Starts(seconds, used[0], used[1] - used[0])


def _report_model(starts: _Starts, uploads: list[Uploaded], readers: int, size: Size) -> None:
    """Report how the client scales, if each reader and the uploader have a core of their own.

    The uploader starts and then sends, which no reader can do for it; reading is divided.
    """
    own = statistics.median(each.own_cpu_seconds for each in uploads)
    total = statistics.median(each.cpu_seconds["uploader"] for each in uploads)
    sending, reading = own - starts.uploader, total - own - readers * starts.reader
    report(
        f"start to end of `tbupload` for {TINY.points} scalars",
        f"{starts.seconds:.2f} s",
        "at most 1 s",
    )
    report("CPU of the uploader: start / sending", f"{starts.uploader:.2f} / {sending:.2f} s")
    report("CPU of readers: start of each / reading", f"{starts.reader:.2f} / {reading:.2f} s")
    for count in MODELLED_READERS:
        seconds = max(sending, starts.reader + reading / count)
        report(
            f"  model: scalars/s after the start, {count} readers on as many cores, and one to send",
            f"{size.points / seconds:,.0f}",
            f"{(starts.reader + reading) / seconds:.1f} x",
        )
