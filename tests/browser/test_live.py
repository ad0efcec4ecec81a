"""A page that stays open during training: reloading its data shows new points, runs, tags and
hyperparameters.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from tensorboard.plugins.hparams.summary_v2 import hparams_pb

from support.browser_pages import open_tab, share_link, shoot
from support.event_files import hparams_event, scalar_event, version_event, write_records
from support.uploading import Reader, wait_until

PERIOD_MS = 11_000


class Training:
    """Writes a session's event file, and appends to it."""

    def __init__(self, directory, hparams):
        self._path = directory / "events.out.tfevents.1.host"
        session = hparams_pb(hparams).value[0]
        start = hparams_event(session.tag, session.metadata.plugin_data.content)
        write_records(self._path, [version_event(), start])

    def log(self, step, **values):
        write_records(
            self._path,
            [scalar_event(tag, step, value) for tag, value in values.items()],
            append=True,
        )


@pytest.fixture
def logdir(tmp_path):
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def reader(uploader):
    reader = Reader(uploader.server, uploader.token)
    yield reader
    reader.http.close()


def card(page, tag):
    return page.locator("card-view").filter(has=page.get_by_title(tag, exact=True))


def run_table(page, column):
    """The table of runs, with a hyperparameter for a column."""
    table = page.locator("runs-data-table")
    table.get_by_title("Add Column").click()
    page.locator("tb-data-table-column-selector-component button").filter(has_text=column).click()
    page.keyboard.press("Escape")
    return table


def test_training_is_seen_to_go_on_by_reload_and_by_itself(page, uploader, reader, logdir):
    first = Training(logdir / "first", {"rate": 0.25})
    first.log(1, loss=0.5)
    page.clock.install()
    with uploader.follow(logdir) as following:
        experiment = following.wait_for_experiment()
        wait_for(reader, experiment, "first", "loss")
        with page.expect_response("**/data/tbhub_state"):
            page.goto(share_link(uploader, experiment))
        expect(card(page, "loss")).to_contain_text("0.5")
        open_tab(page, "HParams")
        hparams = page.locator("tf-hparams-table-view")
        expect(hparams).to_contain_text("rate")

        open_tab(page, "Time Series")
        first.log(2, **{"loss": 0.125, "loss/eval": 0.75})
        Training(logdir / "second", {"rate": 0.75, "momentum": 0.875}).log(7, loss=0.0625)
        wait_for(reader, experiment, "first", "loss/eval")
        wait_for(reader, experiment, "second", "loss")
        page.clock.fast_forward(PERIOD_MS)
        for tag, value in (("loss", "0.0625"), ("loss", "0.125"), ("loss/eval", "0.75")):
            expect(card(page, tag)).to_contain_text(value)
        expect(run_table(page, "momentum")).to_contain_text("0.875")
        shoot(page, "live")

        open_tab(page, "HParams")
        Training(logdir / "third", {"rate": 0.5, "depth": 3.0}).log(1, loss=0.25)
        wait_for(reader, experiment, "third", "loss")
        page.locator(".reload-button").click()
        expect(hparams.get_by_text("depth").first).to_be_visible()
        for column in ("rate", "momentum", "loss"):
            expect(hparams.get_by_text(column).first).to_be_visible()
        expect(hparams.get_by_text("0.87500").first).to_be_visible()
        shoot(page, "live_hparams")


def wait_for(reader, experiment, run, *tags):
    """Wait until the uploader has stored these."""
    wait_until(lambda: set(tags) <= set(reader.get(experiment, "scalars").get(run, {})))
