"""Take the pictures of the list of experiments, filled with trainings of many kinds, and of the
operator's list of workspaces.

Start a service with `make up ARGS="--demo --data-dir DIR"`, and with a sign-in link of it:

    PYTHONPATH=tests .venv/bin/python -m support.pictures LINK

The experiments are uploaded with the server and token of the config file. Run it once on each data
directory: every run adds them again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urljoin

import numpy as np
from playwright.sync_api import Page, sync_playwright
from tensorboardX import SummaryWriter

from support.browser_pages import launch
from support.source_code import ROOT

IMAGES = ROOT / "docs" / "images"
STEPS = 400

EXPERIMENTS = {
    "detector, small batches": (("detection",), {"run-1": 0.9, "run-2": 1.3}, 0.10),
    "translation, 6 layers": (("nlp", "baseline"), {"base": 2.2}, 0.03),
    "translation, 12 layers": (("nlp",), {"base": 1.8, "warm-up": 1.6}, 0.03),
    "resnet50, learning rate 0.1": (("vision", "baseline"), {"seed-1": 1.1, "seed-2": 1.2}, 0.05),
    "resnet50, cosine schedule": (("vision",), {"seed-1": 0.7, "seed-2": 0.8, "seed-3": 0.6}, 0.04),
}
"""Tags, the loss that each run approaches times 10, and the noise, by name; the last is on top."""

WORKSPACES = ("Speech", "Robotics", "Genomics", "Translation")
"""Names of workspaces beside the first one."""


def write_losses(directory: Path, limit: float, noise: float) -> None:
    """Write an event file with a loss that falls to a tenth of `limit`, the same each time."""
    random = np.random.default_rng(int(limit * 10))
    with SummaryWriter(str(directory)) as writer:
        for step in range(STEPS):
            progress = np.exp(-step / STEPS * 4)
            loss = limit * (0.1 + 2 * progress) + noise * limit * random.standard_normal()
            writer.add_scalar("loss", loss, step)
            writer.add_scalar("accuracy", 1 - 0.9 * progress - limit / 20, step)


def upload_experiments() -> None:
    """Upload all experiments, each from a directory of its own."""
    for name, (tags, runs, noise) in EXPERIMENTS.items():
        with tempfile.TemporaryDirectory() as logdir:
            for run, limit in runs.items():
                write_losses(Path(logdir, run), limit, noise)
            options = [f"--tag={tag}" for tag in tags]
            command = [sys.executable, "-m", "tbupload", "--logdir", logdir, "--one-shot"]
            subprocess.run([*command, "--no-origin", "--name", name, *options], check=True)


def take_pictures(link: str) -> None:
    """Sign in by the link, and take a picture of each list."""
    with sync_playwright() as playwright:
        page = launch(playwright).new_page(viewport={"width": 1200, "height": 860})
        page.goto(link)
        page.wait_for_url(urljoin(link, "/"))  # the page of the link signs in by itself
        page.wait_for_load_state("networkidle")
        page.screenshot(path=IMAGES / "experiments.png")
        server = urljoin(link, "/")
        for number, name in enumerate(WORKSPACES, 2):
            fill_workspace(page, server, name, number)
        page.set_viewport_size({"width": 1200, "height": 620})
        page.goto(f"{server}operator")
        page.screenshot(path=IMAGES / "operator.png")


def fill_workspace(page: Page, server: str, name: str, runs: int) -> None:
    """Create a workspace, a token of it and an experiment with so many runs."""
    page.goto(f"{server}workspace/new")
    page.get_by_label("Name").fill(name)
    page.keyboard.press("Enter")
    page.get_by_role("status").wait_for()
    page.goto(f"{page.url.partition('?')[0]}/token/new")
    page.locator("input[name=scope][value=append]").check()
    page.get_by_label("Label").fill("uploads")
    page.keyboard.press("Enter")
    token = page.get_by_label("uploads").input_value()
    with tempfile.TemporaryDirectory() as logdir:
        for run in range(runs):
            write_losses(Path(logdir, f"seed-{run}"), 1 + run, 0.03)
        command = [sys.executable, "-m", "tbupload", "--logdir", logdir, "--one-shot"]
        variables = {**os.environ, "TBHUB_SERVER": server, "TBHUB_TOKEN": token}
        subprocess.run([*command, "--no-origin", "--name", "baseline"], check=True, env=variables)


if __name__ == "__main__":
    upload_experiments()
    take_pictures(sys.argv[1])
