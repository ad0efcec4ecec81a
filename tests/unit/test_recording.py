"""Records of an upload: packages, GPUs, how a training ends, and when nothing is."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.waiting import wait_until
from tbupload.commands.uploading.process_watch import WatchedProcess, process_started_at
from tbupload.config import Config, Profile, read_config, write_config
from tbupload.errors import UsageError
from tbupload.recording import recorder as recording
from tbupload.recording.exit_status import (
    FINISHED,
    RUNNING,
    VANISHED,
    Ending,
    ending_of_exception,
    ending_of_wait_status,
)
from tbupload.recording.nvidia_smi import NAMES, NvidiaSmi, parse_rows
from tbupload.recording.opt_out import records_nothing
from tbupload.recording.recorder import Recorder


def install(directory, name, version, direct_url=None):
    info = directory / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if direct_url is not None:
        (info / "direct_url.json").write_text(direct_url)


def test_packages_are_those_of_the_path_without_places(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    install(first, "torch", "2.5.1+cu121")
    install(second, "Torch", "1.0")
    install(first, "Zope.Interface", "6.0")
    git = '{"url": "https://ada:hunter2@host/org/repo?a=b", "vcs_info": {"vcs": "git", "commit_id": "%s"}}'
    install(second, "ours", "0.1", git % ("a" * 40))
    install(second, "edited", "0.2", '{"url": "file:///home/ada/secret", "dir_info": {}}')
    install(second, "wheel-of", "0.3", '{"url": "https://t0ken@host/x.whl?sig=hunter2"}')
    install(second, "broken", "1", "{")
    (second / "empty-1.dist-info").mkdir()
    assert recording.list_packages([str(first), str(second), "/nowhere"]) == [
        "edited==0.2 (local)",
        f"ours==0.1 @ git+https://***@host/org/repo?***@{'a' * 40}",
        "torch==2.5.1+cu121",
        "wheel-of==0.3 @ https://***@host/x.whl?***",
        "Zope.Interface==6.0",
    ]


def test_packages_are_those_of_this_environment():
    listed = recording.list_packages(sys.path)
    assert any(each.startswith("numpy==") for each in listed)
    assert listed == sorted(listed, key=str.lower) or len(listed) > 10
    assert len(listed) == len(set(listed))


def test_packages_are_bounded(tmp_path, monkeypatch):
    for number in range(8):
        install(tmp_path, f"p{number}", "1" * 50)
    monkeypatch.setattr(recording, "PACKAGES_ITEMS_MAX", 5)
    listed = recording.list_packages([str(tmp_path)])
    assert (len(listed), listed[-1]) == (5, "... and 4 more")
    monkeypatch.setattr(recording, "PACKAGES_CHARS_MAX", 300)
    listed = recording.list_packages([str(tmp_path)])
    assert (listed[-1], sum(map(len, listed)) <= 300) == ("... and 5 more", True)


# As `nvidia-smi --query-gpu=… --format=csv,noheader,nounits` prints them: `nvidia-smi
# --help-query-gpu`, and the reports of https://docs.nvidia.com/deploy/nvidia-smi/.
BUSY = b"""\
0, 87, 30123, 61, 297.43
1, [N/A], 12, [Not Supported], [Unknown Error]
Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error
"""
NAMED = b"""\
0, NVIDIA A100-SXM4-80GB, 535.104.05
1, NVIDIA A100-SXM4-80GB, 535.104.05
2, Tesla T4, 535.104.05
"""


def program(directory, text):
    path = directory / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_gpus_are_named_and_measured(tmp_path):
    (tmp_path / "named").write_bytes(NAMED)
    (tmp_path / "busy").write_bytes(BUSY)
    smi = NvidiaSmi(
        program(
            tmp_path,
            f'case "$1" in *utilization*) cat {tmp_path}/busy;; *) cat {tmp_path}/named;; esac',
        )
    )
    assert smi.describe() == {
        "gpus": "2 x NVIDIA A100-SXM4-80GB, 1 x Tesla T4",
        "gpu_driver": "535.104.05",
    }
    assert smi.measure() == {
        "gpu_0_utilization_percent": 87,
        "gpu_0_memory_used_bytes": 30123 << 20,
        "gpu_0_temperature_celsius": 61,
        "gpu_0_power_watts": 297.43,
        "gpu_1_memory_used_bytes": 12 << 20,
    }


@pytest.mark.parametrize(
    "output",
    [b"", b"No devices were found\n", b"0\n", b"\xff\xfe\0, x, y\n", b"0, a, b, c, d\n", b",,\n"],
)
def test_output_of_nvidia_smi_without_gpus_has_no_rows(output):
    assert parse_rows(output, len(NAMES)) == []


def test_missing_or_failing_nvidia_smi_costs_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert NvidiaSmi().describe() == {}
    for text in ("exit 9", "kill -9 $$"):
        failing = NvidiaSmi(program(tmp_path, text))
        assert (failing.measure(), failing.is_usable) == ({}, False)
    assert NvidiaSmi(str(tmp_path)).measure() == {}


def test_hanging_nvidia_smi_is_left_once(tmp_path):
    hanging = NvidiaSmi(program(tmp_path, f"echo $$ >> {tmp_path}/started; exec sleep 600"), 2.0)
    for _ in range(3):
        assert hanging.measure() == {}
    (process_id,) = (tmp_path / "started").read_text().split()
    wait_until(lambda: not Path("/proc", process_id).exists())


class OwnError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("kind", "code", "ending"),
    [
        (None, None, FINISHED),
        (KeyboardInterrupt, None, Ending("killed", "interrupted (SIGINT)")),
        (SystemExit, None, FINISHED),
        (SystemExit, 0, FINISHED),
        (SystemExit, 3, Ending("failed", "exit code 3")),
        (SystemExit, "message with a secret", Ending("failed", "exit code 1")),
        (ValueError, None, Ending("failed", "ValueError")),
        (OwnError, None, Ending("failed", f"{__name__}.OwnError")),
    ],
)
def test_ending_of_exception_has_type_and_no_text(kind, code, ending):
    assert ending_of_exception(kind, code) == ending


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("pass", FINISHED),
        ("raise SystemExit(3)", Ending("failed", "exit code 3")),
        ("import os; os._exit(4)", Ending("failed", "exit code 4")),
        ("import os; os.kill(os.getpid(), 9)", Ending("killed", "SIGKILL")),
        ("import os; os.kill(os.getpid(), 15)", Ending("killed", "SIGTERM")),
    ],
)
def test_ending_of_any_process_is_told_by_the_kernel(code, ending):
    """Linux tells it from 6.15 on; before, it is not known."""
    command, began = [sys.executable, "-c", f"input(); {code}"], time.time()
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    watched = WatchedProcess(process.pid, is_parent=False)
    assert began - 1 < process_started_at(process.pid) < time.time() + 1
    process.communicate(b"\n")
    assert watched.has_ended_within(5)
    version = tuple(int(part) for part in os.uname().release.split(".")[:2])
    assert watched.find_ending() == (ending if version >= (6, 15) else None)
    assert ending_of_wait_status(signal.SIGRTMIN).detail


@pytest.mark.parametrize(
    ("told", "exited", "expected"),
    [
        (RUNNING, None, VANISHED),
        (RUNNING, Ending("killed", "SIGKILL"), Ending("killed", "SIGKILL")),
        (RUNNING, FINISHED, FINISHED),
        (FINISHED, None, FINISHED),
        (FINISHED, FINISHED, FINISHED),
        (FINISHED, Ending("failed", "exit code 3"), Ending("failed", "exit code 3")),
        (
            Ending("failed", "ValueError"),
            Ending("failed", "exit code 1"),
            Ending("failed", "ValueError"),
        ),
        (Ending("failed", "ValueError"), FINISHED, Ending("failed", "ValueError")),
    ],
)
def test_status_is_what_script_tells_unless_its_process_fails(told, exited, expected):
    for order in (1, -1):
        recorder = Recorder(None, None, print)
        calls = [(recorder.set_ending, told), (recorder.set_exit, exited)]
        for call, ending in calls[::order]:
            call(ending)
        assert recorder._ending == expected
    recorder.ignore_exit()
    assert recorder._ending == told


def test_records_nothing_if_variable_or_config_says_so(tmp_path):
    path = tmp_path / "config.toml"
    environment = {"TBHUB_CONFIG": str(path)}
    assert not records_nothing(environment, no_origin=False)
    assert records_nothing(environment, no_origin=True)
    for value, is_off in (("1", True), ("true", True), ("0", False), ("", False), ("No", False)):
        environment["TBHUB_NO_ORIGIN"] = value
        assert records_nothing(environment, no_origin=False) == is_off
    del environment["TBHUB_NO_ORIGIN"]
    path.write_text("no_origin = true\n")
    assert records_nothing(environment, no_origin=False)
    path.write_text("no_origin = 1\n")
    with pytest.raises(UsageError, match="no_origin must be true or false"):
        read_config(path)
    assert records_nothing(environment, no_origin=False)  # what it says is not known


def test_login_keeps_no_origin_in_config_file(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("no_origin = true\n")
    for name in (None, "work"):
        write_config(path, read_config(path).replace(name, Profile("http://hub", "tbh_x")))
    config = read_config(path)
    assert config.no_origin
    assert config.find("work") == config.find(None) == Profile("http://hub", "tbh_x")
    write_config(path, Config())
    assert not read_config(path).no_origin
