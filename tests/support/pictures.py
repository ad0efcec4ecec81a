"""Take the pictures of the list of experiments, filled with trainings of many kinds, of the
operator's list of workspaces, and of joining; a film of the list, a comparison, curves, console and
a link; and the looks of pages with a sweep of 300 runs: on a desktop, in the dark, on a phone.

Start a service with `make up ARGS="--demo --data-dir DIR"`, and with a sign-in link of it:

    PYTHONPATH=tests .venv/bin/python -m support.pictures LINK

The experiments are uploaded with the server and token of the config file. Run it once on each data
directory: every run adds them again.
"""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import parse_qs, quote, urljoin, urlsplit

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

from support.browser_pages import launch
from support.source_code import ROOT

IMAGES = ROOT / "docs" / "images"
STEPS = 400

FILM_SIZE = (900, 645)
FILM_COLORS = 128
FRAME_MS = 2_500

EXPERIMENTS = {
    "detector, small batches": (("detection",), {"run-1": 0.9, "run-2": 1.3}, 0.10),
    "translation, 6 layers": (("nlp", "baseline"), {"base": 2.2}, 0.03),
    "translation, 12 layers": (("nlp",), {"base": 1.8, "warm-up": 1.6}, 0.03),
    "resnet50, learning rate 0.1": (("vision", "baseline"), {"seed-1": 1.1, "seed-2": 1.2}, 0.05),
    "resnet50, cosine schedule": (("vision",), {"seed-1": 0.7, "seed-2": 0.8, "seed-3": 0.6}, 0.04),
}
"""Tags, the loss that each run approaches times 10, and the noise, by name; the last is on top."""

SWEEP = "resnet50, sweep of 300"
LOOKS = {
    "experiment": "/experiment/{id}/about",
    "groups": "/workspace/{workspace}/runs/compare?where={where}&group=lr&band=std",
    "differences": "/workspace/{workspace}/runs/compare?where={where} and seed < 1 and lr = 0.01"
    "#differences",
    "runs": "/workspace/{workspace}/runs?where={where}",
    "table": "/workspace/{workspace}/runs?where={where}&group=optimizer,lr&sort=loss",
    "report": "/experiment/{id}/about#notes",
}
"""Addresses of the pages whose looks are taken."""

REPORT = """\
Small learning rates are **too slow** in 400 steps, whatever the optimizer:

![Loss by learning rate](/experiment/{id}/card.svg?tag=loss&group=lr&where=width%20%3D%2064&width=560)

Width matters less than the choice of the optimizer:

![By optimizer](/experiment/{id}/card.svg?tag=loss&group=optimizer&band=quartiles&y=log&width=560)
"""
"""Notes of the sweep, with cards of groups."""

DEVICES = (
    {"viewport": {"width": 1280, "height": 900}},
    {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    {"viewport": {"width": 390, "height": 900}, "is_mobile": True, "has_touch": True},
)
LOOK_SCALE = 0.6
_RARE_COLORS_TOO = Image.Quantize.MAXCOVERAGE

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
            options = ["--name", name, *[f"--tag={tag}" for tag in tags]]
            command = [sys.executable, "-m", "tbupload", "--logdir", logdir, "--one-shot"]
            subprocess.run([*command, "--no-origin", *options], check=True)
    upload_sweep()
    train_with_console()


def upload_sweep() -> None:
    """Upload 300 runs: five learning rates, three optimizers, four widths, five seeds."""
    random = np.random.default_rng(3)
    steps = np.arange(STEPS)
    with tempfile.TemporaryDirectory() as logdir:
        for lr, (optimizer, factor), width, seed in itertools.product(
            (0.003, 0.01, 0.03, 0.1, 0.3),
            (("adam", 3), ("sgd", 1), ("rmsprop", 2)),
            (16, 32, 64, 128),
            range(5),
        ):
            limit = 0.2 + 0.5 / width**0.5 + 0.05 * random.standard_normal()
            losses = limit + 1.7 * np.exp(-steps * lr * factor / 12)
            session = {"lr": lr, "optimizer": optimizer, "width": width, "seed": seed}
            with SummaryWriter(f"{logdir}/{optimizer}-{lr}-{width}/seed-{seed}") as writer:
                for summary in hparams(session, {}):
                    writer.file_writer.add_summary(summary)
                noisy = losses + 0.03 * random.standard_normal(STEPS)
                for step, loss in enumerate(noisy.tolist()):
                    writer.add_scalar("loss", loss, step)
                    writer.add_scalar("accuracy", 1 - loss / 2, step)
        command = [sys.executable, "-m", "tbupload", "--logdir", logdir, "--one-shot"]
        options = ["--no-origin", "--name", SWEEP, "--tag=vision"]
        ended = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    id_ = ended.stdout.strip().rstrip("/").rpartition("/")[2]
    change = [sys.executable, "-m", "tbupload", "update-metadata", id_]
    subprocess.run([*change, "--note", REPORT.replace("{id}", id_)], check=True)


def train_with_console() -> None:
    """Run a training that fails, with its console, as the newest experiment."""
    with tempfile.TemporaryDirectory() as logdir:
        command = [sys.executable, "-m", "tbupload", "run", "--logdir", logdir, "--console"]
        training = [sys.executable, "-u", "-m", "support.pictures", "--train", logdir]
        options = ["--name", "resnet50, learning rate 0.4", "--tag=vision"]
        subprocess.run([*command, *options, "--", *training], check=False)


def train(logdir: str) -> None:
    """Log a loss that diverges, and print each tenth step."""
    with SummaryWriter(logdir) as writer:
        for step in range(120):
            loss = 2 / (1 + step / 20) + max(0, step - 90) ** 2 / 100
            writer.add_scalar("loss", loss, step)
            writer.add_scalar("accuracy", 1 / (1 + loss), step)
            if step % 5 == 0:
                print(f"step {step}: loss {loss:.4f}, 35k tokens/s")  # noqa: T201 - it is recorded
            time.sleep(0.05)
    raise FloatingPointError("the loss is not finite at step 120")


def take_pictures(link: str) -> None:
    """Sign in by the link, and take a picture of each list."""
    with sync_playwright() as playwright:
        page = launch(playwright).new_page(viewport={"width": 1200, "height": 860})
        page.goto(link)
        page.wait_for_url(urljoin(link, "/"))  # the page of the link signs in by itself
        page.wait_for_load_state("networkidle")
        page.screenshot(path=IMAGES / "experiments.png")
        take_film(page)
        server = urljoin(link, "/")
        take_looks(page, server)
        for number, name in enumerate(WORKSPACES, 2):
            fill_workspace(page, server, name, number)
        page.set_viewport_size({"width": 1200, "height": 620})
        page.goto(f"{server}operator")
        page.screenshot(path=IMAGES / "operator.png")
        take_joining(page, server)


def take_looks(page: Page, server: str) -> None:
    """Take a picture of each page on the three devices, side by side."""
    page.goto(server)
    row = page.locator("tr[data-experiment]").filter(has_text=SWEEP).first
    id_ = str(row.get_attribute("data-experiment"))
    workspace = parse_qs(urlsplit(page.url).query).get("workspace", ["1"])[0]
    state = page.context.storage_state()
    for name, address in LOOKS.items():
        shots = []
        for device in DEVICES:
            context = page.context.browser.new_context(storage_state=state, **device)
            tab = context.new_page()
            where = quote(f'experiment = "{id_}"')
            tab.goto(server + address.format(id=id_, workspace=workspace, where=where)[1:])
            tab.wait_for_timeout(3_000)  # pages that are live are never idle
            shots.append(Image.open(io.BytesIO(tab.screenshot())).convert("RGB"))
            context.close()
        joined = Image.new("RGB", (sum(shot.width for shot in shots) + 48, 900), "#b8b8b3")
        left = 0
        for shot in shots:
            joined.paste(shot, (left, 0))
            left += shot.width + 24
        size = (round(joined.width * LOOK_SCALE), round(joined.height * LOOK_SCALE))
        small = joined.resize(size, Image.Resampling.LANCZOS).quantize(
            256, _RARE_COLORS_TOO, kmeans=3
        )
        small.save(IMAGES / f"look-{name}.png", optimize=True)


def take_film(page: Page) -> None:
    """From the list, take a picture of each step of a first visit, and write them as a film."""
    frames: list[Image.Image] = []

    def take() -> None:
        page.wait_for_timeout(1_000)  # pages that are live are never idle
        frame = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        frames.append(frame.resize(FILM_SIZE, Image.Resampling.LANCZOS))

    take()
    for row in (0, 1):
        page.locator("tbody input[type=checkbox]").nth(row).check()
    take()
    page.get_by_role("button", name="Compare").click()
    page.locator("card-view").first.wait_for()
    take()
    page.goto(urljoin(page.url, "/"))
    page.get_by_role("link", name="Details").first.click()
    page.locator("canvas").first.wait_for()
    take()
    page.locator(".console li").nth(-12).hover()
    take()
    page.keyboard.press("Control+k")
    page.keyboard.type("transl", delay=40)
    take()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Share").or_(
        page.get_by_role("button", name="Share")
    ).first.click()
    take()
    palette = Image.new("RGB", (FILM_SIZE[0], FILM_SIZE[1] * len(frames)))
    for number, frame in enumerate(frames):
        palette.paste(frame, (0, number * FILM_SIZE[1]))
    colors = palette.quantize(FILM_COLORS)
    first, *others = [frame.quantize(palette=colors, dither=0) for frame in frames]
    first.save(
        IMAGES / "film.png", save_all=True, append_images=others, duration=FRAME_MS, optimize=True
    )


def take_joining(page: Page, server: str) -> None:
    """Take the pictures of the way from an owner's invitation to a curve, in a second browser."""
    for path, name in (("me", "Ana"), ("workspace/1/settings", "Vision lab")):
        page.goto(f"{server}{path}")
        page.locator("input#name").fill(name)
        page.keyboard.press("Enter")
        page.get_by_role("status").wait_for()
    page.set_viewport_size({"width": 1000, "height": 740})
    page.goto(f"{server}workspace/1")
    page.get_by_label("E-mail address").fill("bo@example.org")
    page.keyboard.press("Enter")
    invitation = page.get_by_label("Invitation link")
    invitation.wait_for()
    page.screenshot(path=IMAGES / "joining-link.png")
    browser = page.context.browser
    assert browser is not None
    colleague = browser.new_page(viewport={"width": 1000, "height": 640})
    colleague.goto(invitation.input_value())
    colleague.get_by_label("Your name").fill("Bo Lindqvist")
    colleague.screenshot(path=IMAGES / "joining-page.png")
    colleague.get_by_role("button", name="Join").click()
    colleague.get_by_role("link", name="See the experiments").click()
    experiment = colleague.get_by_role("link", name="resnet50, cosine schedule", exact=True)
    experiment.wait_for()
    colleague.wait_for_timeout(1_000)  # pages that are live are never idle
    colleague.screenshot(path=IMAGES / "joining-list.png")
    experiment.click()
    colleague.locator("card-view canvas, card-view svg.line-chart").first.wait_for()
    colleague.wait_for_timeout(2_000)  # the curves are drawn in steps
    colleague.screenshot(path=IMAGES / "joining-curve.png")


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
    if sys.argv[1] == "--train":
        train(sys.argv[2])
    upload_experiments()
    take_pictures(sys.argv[1])
