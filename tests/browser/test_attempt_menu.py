"""Attempts of a restarted run in stock TensorBoard: the menu in the bar, by keyboard, and curves."""

from __future__ import annotations

import re

import httpx2
import numpy as np
import pytest
from playwright.sync_api import expect

from support.batches import ApiClient, scalars, segment, stream
from support.browser_pages import share_link, shoot


@pytest.fixture
def experiment(live_service, uploader):
    """The id of an experiment with a run that was restarted from step 500."""
    with httpx2.Client(base_url=live_service.url, trust_env=False) as client:
        api = ApiClient(client, uploader.token)
        experiment = api.new_experiment(name="resnet, restarted")
        for number, (first, last, sign) in enumerate(((0, 800, 1), (500, 1000, -1))):
            steps = np.arange(first, last)
            start = 1_700_000_000.0 + 5_000 * number
            curve = scalars("loss", steps, sign * np.log1p(steps), start + steps)
            file = stream("train/lr 0.1", f"events.{number}")
            api.write(experiment, segment(file, 0, 9, curve, start_time=start))
    return experiment


def read_values(page):
    """Return the values that the page's own address gives."""
    path = "data/plugin/scalars/scalars?run=train%2Flr%200.1&tag=loss"
    read = page.evaluate("path => fetch(path).then((answer) => answer.json())", path)
    return [value for _, _, value in read]


def test_attempts_are_chosen_by_keyboard_and_have_addresses(page, uploader, experiment):
    page.goto(share_link(uploader, experiment))
    bar = page.locator("#tbhub-bar")
    card = page.locator("card-view").first  # with a table of the last value
    expect(card).to_contain_text(re.compile(r"-6\.907\d*\s*999"))
    menu = bar.locator("summary", has_text="Attempt 2 of 2")
    menu.focus()
    page.keyboard.press("Enter")
    expect(bar.get_by_text("train/lr 0.1 as it was before it restarted")).to_be_in_viewport()
    shoot(page, "attempts_menu")
    assert min(read_values(page)) < -6

    page.keyboard.press("Tab")
    expect(bar.get_by_role("link", name="Attempt 2")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(rf"/experiment/{experiment}/attempt/1/"))
    expect(bar.locator("summary", has_text="Attempt 1 of 2")).to_be_visible()
    expect(card).to_contain_text(re.compile(r"6\.68\d*\s*799"))
    values = read_values(page)
    assert (len(values), min(values)) == (800, 0)
    shoot(page, "attempts_earlier")
    expect(page).to_have_title("resnet, restarted (attempt 1) · TensorBoard")

    page.reload()
    expect(card).to_contain_text("799")
    bar.locator("summary", has_text="Attempt 1 of 2").click()
    page.set_viewport_size({"width": 390, "height": 844})
    shoot(page, "attempts_phone")
    bar.get_by_role("link", name="Attempt 2").click()
    page.wait_for_url(re.compile(rf"/experiment/{experiment}/(#.*)?$"))
    expect(bar.locator("summary", has_text="Attempt 2 of 2")).to_be_visible()
