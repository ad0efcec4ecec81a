"""Hyperparameters in the HParams dashboard, which stays open while sessions are added."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from support.batches import ApiClient
from support.browser_pages import open_tab, share_link, shoot
from support.hparams import HparamsClient, column, end, last, metric, start, summary
from support.uploading import Reader

RATES = {"low": 0.125, "middle": 0.25, "high": 0.5}
KINDS = {"low": "adam", "middle": "sgd", "high": "adam"}
LOSSES = {"low": 0.75, "middle": 0.5, "high": 0.25}


@pytest.fixture
def client(uploader):
    """An experiment with three sessions."""
    reader = Reader(uploader.server, uploader.token)
    client = HparamsClient(ApiClient(reader.http, uploader.token))
    declared = [column("rate", (0.1, 0.3), type=3), column("kind", ["adam"], type=1)]
    client.write("schema", summary(declared, [metric("loss", display_name="Loss")]))
    for name, rate in RATES.items():
        of = start({"rate": rate, "kind": KINDS[name]})
        client.write(name, of, last("loss", LOSSES[name]), end())
    yield client
    reader.http.close()


def open_hparams(page, uploader, client):
    """Opens the dashboard and waits for its table."""
    page.goto(share_link(uploader, client.experiment_id))
    open_tab(page, "HParams")
    expect(table_of(page).get_by_text("middle", exact=True)).to_be_visible()


def table_of(page):
    return page.locator("tf-hparams-table-view")


def choices_of(page):
    return page.locator("tf-hparams-query-pane")


def row_of(page, name):
    """The cell with a session's name; the grid keeps cells that are not shown."""
    return table_of(page).get_by_text(name, exact=True).locator("visible=true")


def check_box(page, value):
    return (
        choices_of(page)
        .locator("paper-checkbox.discrete-value-checkbox")
        .filter(has_text=re.compile(rf"^\s*{value}\s*$"))
    )


def choose(page, label, option):
    """Chooses from a menu of the dashboard's."""
    menu = choices_of(page).locator(f"paper-dropdown-menu[label='{label}']")
    menu.click()
    menu.locator("paper-item").filter(has_text=re.compile(rf"^\s*{option}\s*$")).click()


def expect_rows(page, *names):
    """Waits until the table has these sessions, from top to bottom, and no others."""
    for name in {*RATES, "late"} - {*names}:
        expect(row_of(page, name)).to_have_count(0)

    def are_in_order():
        cells = [row_of(page, name) for name in names]
        tops = [cell.bounding_box()["y"] for cell in cells if cell.count() == 1]
        return len(tops) == len(names) and tops == sorted(tops)

    for _ in range(100):
        if are_in_order():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"the rows are not {names}")


def test_open_dashboard_shows_new_columns_and_keeps_choices(page, uploader, client):
    open_hparams(page, uploader, client)
    choose(page, "Sort by", "Loss")
    choose(page, "Direction", "Ascending")
    expect_rows(page, "high", "middle", "low")
    check_box(page, "sgd").click()
    expect_rows(page, "high", "low")
    rate = choices_of(page).locator(".hparam").filter(has_text="rate").locator("paper-input").first
    rate.locator("input").fill("0.2")
    expect_rows(page, "high")

    late = start({"rate": 0.75, "kind": "rmsprop", "depth": 8.0})
    client.write("late", late, last("loss", 0.125), last("accuracy", 0.875), end())
    page.locator(".reload-button").click()
    expect_rows(page, "late", "high")
    table = table_of(page)
    for name in ("depth", "accuracy", "rate", "kind", "Loss"):
        expect(table.get_by_text(name, exact=True).first).to_be_visible()
    for value in ("8.0000", "0.87500"):
        expect(table.get_by_text(value, exact=True).first).to_be_visible()
    expect(check_box(page, "sgd")).to_have_attribute("aria-checked", "false")
    expect(check_box(page, "rmsprop")).to_have_attribute("aria-checked", "true")
    shoot(page, "hparams_reloaded")

    check_box(page, "sgd").click()
    rate.locator("input").fill("")
    choose(page, "Direction", "Descending")
    expect_rows(page, "low", "middle", "high", "late")
    choose(page, "Sort by", "depth")
    expect_rows(page, "late", "high", "low", "middle")
