"""The recipes of docs/integrations.md for SLURM, Kubernetes and Docker: what they run, as processes.

There is no SLURM here: `srun` runs the command as a process of this machine.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys

import psutil
import pytest
import yaml

from support.source_code import ROOT
from support.uploading import SECONDS_MAX, wait_until

TRAIN = f"""
import signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
from support import event_files

directory = Path(sys.argv[1])
assert directory.parent.is_dir(), "tbupload would follow a directory that does not exist"
directory.mkdir(parents=True, exist_ok=True)
first = 10 * len(list(directory.glob("*")))
path = directory / f"events.out.tfevents.{{first}}"
write = lambda *steps: event_files.write_records(
    path, [event_files.scalar_event("loss", step, float(step)) for step in steps], append=True
)

def checkpoint(*_):
    write(99)
    sys.exit(7)

signal.signal(signal.SIGTERM, checkpoint)
write(*range(first, first + 10))
directory.joinpath("waits").exists() and time.sleep({SECONDS_MAX})
"""


def blocks(heading, language):
    page = (ROOT / "docs" / "integrations.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


@pytest.fixture
def batch(uploader, tmp_path):
    """Start the SLURM script as a task of an array."""
    programs = {
        "srun": 'exec "$@"',
        "python": f'exec {sys.executable} "$@"',
        "tbupload": f'exec {sys.executable} -m tbupload "$@"',
    }
    (tmp_path / "bin").mkdir()
    for name, command in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{command}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (script,) = blocks("SLURM", "bash")
    (tmp_path / "job.sh").write_text(script)
    (tmp_path / "train.py").write_text(TRAIN)
    before = uploader.environment()
    environment = before | {"PATH": f"{tmp_path / 'bin'}:{before['PATH']}"}

    def start(task):
        job = {"SLURM_JOB_NAME": "sweep", "SLURM_JOB_ID": f"8{task}", "SLURM_ARRAY_JOB_ID": "80"}
        return subprocess.Popen(
            ["/bin/bash", "job.sh"],
            cwd=tmp_path,
            env=environment | job | {"SLURM_ARRAY_TASK_ID": str(task)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def end(process):
    text, _ = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, text


def read_steps(reader, name):
    """Return the only experiment of the workspace, and the steps of each of its runs."""
    (experiment,) = reader.experiments()
    assert experiment["name"] == name
    runs = reader.scalars(experiment["experiment_id"])
    return experiment["url"], {run: sorted(tags["loss"]) for run, tags in runs.items()}


def test_slurm_array_is_one_experiment_also_after_requeue(batch, uploader, reader, tmp_path):
    for code, text in [end(task) for task in [batch(0), batch(1)]] + [end(batch(1))]:
        assert code == 0, text
    url, steps = read_steps(reader, "sweep-80")
    assert steps == {"task-0": [*range(10)], "task-1": [*range(20)]}
    logdir = tmp_path / "runs" / "sweep-80"
    assert uploader.run("verify", "--strict", "--logdir", logdir, "--experiment", url).code == 0


def test_slurm_job_ends_with_training_before_time_limit(batch, reader, tmp_path):
    directory = tmp_path / "runs" / "sweep-80" / "task-0"
    directory.mkdir(parents=True)
    (directory / "waits").touch()
    job = batch(0)
    wait_until(lambda: len(list(directory.iterdir())) > 1)
    wait_until(reader.experiments)
    (training,) = [
        process for process in psutil.Process(job.pid).children() if "train.py" in process.cmdline()
    ]
    training.send_signal(signal.SIGTERM)  # as SLURM does, with `--signal` without B:
    code, text = end(job)
    assert code == 7, text  # the training's own
    _, steps = read_steps(reader, "sweep-80")
    assert steps == {"task-0": [*range(10, 20), 99]}


def test_kubernetes_sidecar_sends_the_rest_and_ends(uploader, reader, tmp_path):
    (text,) = blocks("Kubernetes", "yaml")
    pod = yaml.safe_load(text)["spec"]["template"]["spec"]
    (sidecar,), (training,) = pod["initContainers"], pod["containers"]
    assert sidecar["restartPolicy"] == "Always"
    mounts = {mount["name"] for each in (sidecar, training) for mount in each["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    (tmp_path / "train.py").write_text(TRAIN)
    runs = tmp_path / "runs"
    runs.mkdir()
    program, *options = [str(runs) if word == "/runs" else word for word in sidecar["command"]]
    assert program == "tbupload"

    process = subprocess.Popen(
        [sys.executable, "-m", "tbupload", *options],
        env=uploader.environment() | {"TBHUB_CONFIG": str(tmp_path / "absent" / "config.toml")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(reader.experiments)
    (runs / "pod").mkdir()
    subprocess.run([sys.executable, tmp_path / "train.py", runs / "pod"], check=True)
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 0
    assert read_steps(reader, "train")[1] == {"pod": [*range(10)]}


def test_docker_commands_are_those_of_the_image():
    (commands,) = blocks("Docker", "sh")
    upload, train, stop = [shlex.split(line) for line in commands.replace("\\\n", "").splitlines()]
    assert upload[-3:] == ["tbupload", "--logdir", "/runs"]
    image = re.search(r"image: (tbhub:\S+)", (ROOT / "docker-compose.yml").read_text())[1]
    assert image == upload[-4]
    assert upload[upload.index("-v") + 1].removesuffix(":ro") == train[train.index("-v") + 1]
    assert stop[-1] == upload[upload.index("--name") + 1]
