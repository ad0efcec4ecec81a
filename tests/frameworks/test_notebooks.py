"""Notebooks, executed by a real kernel: what a cell shows of an experiment."""

from __future__ import annotations

import json
import re
from base64 import b64decode

from support.frameworks import examples

EXECUTE = """
import json, sys
import nbclient, nbformat

cells = [nbformat.v4.new_code_cell(source) for source in json.load(open("cells.json"))]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
print("OUTPUTS", json.dumps([cell.outputs for cell in cells]))
"""

WRITE = """
from torch.utils.tensorboard import SummaryWriter

with SummaryWriter("runs/a") as writer:
    for step in range(50):
        writer.add_scalar("loss", 1 / (step + 1), step)
"""


def execute(training, *cells):
    """Return the outputs of each cell."""
    (training.directory / "cells.json").write_text(json.dumps(cells))
    ended = training.run("torch", EXECUTE)
    assert ended.code == 0, ended.text
    return json.loads(ended.text.partition("OUTPUTS ")[2].splitlines()[0])


def html_of(outputs):
    return [output["data"]["text/html"] for output in outputs if "data" in output]


def test_documented_cells_follow_and_show_an_experiment(training):
    first, second = examples()["Jupyter"]
    *_, shown, followed = execute(training, WRITE, first, second)
    (link,), (again,) = html_of(shown), html_of(followed)
    url = re.search(r'href="(http[^"]+)"', link)[1]
    assert url in again
    assert "1 run, last data 20" in again
    assert "<iframe" not in link + again
    assert training.is_stored("runs", url)


def test_magic_takes_options_and_refuses_others(training):
    name = "<img src=x onerror=alert(1)>"
    lines = [f"%tbhub --logdir runs --name '{name}' --height 300", "%tbhub", "%tbhub --logdri runs"]
    _, shown, empty, misspelled = execute(training, "%load_ext tbupload.notebook", *lines)
    (link,) = html_of(shown)
    assert "<bdi>&lt;img src=x onerror=alert(1)&gt;</bdi>" in link
    assert "<img" not in link
    for outputs in (empty, misspelled):
        assert outputs[0]["text"].startswith("UsageError: %tbhub: "), outputs


TRAIN = """
import threading
from tensorboardX import SummaryWriter
import tbupload

writer = SummaryWriter("runs/a")

def train(first, last):
    for step in range(first, last):
        writer.add_scalar("loss", 1 / (step + 1), step)
    writer.flush()

train(0, 5)
upload = tbupload.follow("runs", poll_seconds=1)
upload.wait()
experiment = tbupload.Experiment(upload.url)
"""

END = """
train(5, 20)
following = [each for each in threading.enumerate() if each.name == "tbupload picture"]
upload.wait()
upload.stop()
for each in following:
    each.join(60)
print(len(following), [each.is_alive() for each in following])
"""


def lengths_of(outputs):
    """Return the number of points of each line in the pictures of a cell."""
    pictures = [
        b64decode(text).decode()
        for html in html_of(outputs)
        for text in re.findall('base64,([^"]+)', html)
    ]
    return [len(line.split()) for each in pictures for line in re.findall('points="([^"]+)', each)]


def test_shown_objects_follow_until_training_ends(training):
    shown = ["upload", "experiment", "experiment.runs()[0]"]
    _, *pictures, ended, again = execute(training, TRAIN, *shown, END, "experiment")
    assert ended[0]["text"] == "3 [False, False, False]\n", ended
    assert [lengths_of(outputs) for outputs in (*pictures, again)] == [[20]] * 4
    assert "iframe" not in json.dumps(pictures)
