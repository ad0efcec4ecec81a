"""Notebooks, executed by a real kernel: what a cell shows of an experiment."""

from __future__ import annotations

import json
import re

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
