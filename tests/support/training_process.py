"""Python source as training scripts: the source that begins each, and processes that run it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from support.uploading import SECONDS_MAX

TESTS = Path(__file__).parents[1]

PRELUDE = """
import atexit, os, signal, sys, time
from pathlib import Path
import tbupload
from support import event_files
from tbupload.background_upload import process as uploader_process

def train(logdir="runs", steps=range(10)):
    events = [event_files.scalar_event("loss", step, float(step)) for step in steps]
    event_files.write_records(Path(logdir, "run", "tfevents.1"), events, append=True)

def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.01)

def end_soon():  # instead of 10 s after the files have changed last
    uploader_process.FIXED_OPTIONS += ("--quiet-seconds=1",)
"""


def start_script(uploader, directory, source, *arguments, python_options=(), **variables):
    """Start the source as a script in a directory, in a process group of its own; return the process."""
    path = directory / "training.py"
    path.write_text(PRELUDE + textwrap.dedent(source))
    before = uploader.environment()
    paths = os.pathsep.join([str(TESTS), *filter(None, [before.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, *python_options, path, *arguments],
        cwd=directory,
        env=before | {"PYTHONPATH": paths} | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_script(uploader, directory, source, *arguments):
    """Run the source to its end in the same way; return the ended process with its output."""
    with start_script(uploader, directory, source, *arguments) as process:
        try:
            out, err = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
