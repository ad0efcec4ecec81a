"""The uploads of an experiment on its page."""

from __future__ import annotations

import httpx2
import pytest
from playwright.sync_api import expect

from support.browser_pages import look_again, look_at, new_page
from support.event_files import scalar_event, version_event, write_records

RECORDS = [
    ("a" * 16, "gpu7", "failed", "torch.cuda.OutOfMemoryError"),
    ("b" * 16, "gpu8", "killed", "SIGKILL"),
    ("c" * 16, "gpu9", "unknown", "ended without saying how"),
    ("d" * 16, "gpu10", "finished", ""),
    ("e" * 16, "<b>gpu11</b>" + "-long" * 30, None, ""),
]
LINES = [
    "step 0 " + "of_a_long_line " * 40,
    "<b>step 5</b>",
    "\u0627\u0644\u0646\u0647\u0627\u064a\u0629",
]


@pytest.fixture
def recorded(uploader, tmp_path):
    """An experiment with uploads of several machines with each status."""
    events = [version_event(1.7e9)]
    events += [scalar_event("loss", step, 1.0 / (step + 1), 1.7e9 + step) for step in range(9)]
    write_records(tmp_path / "logs" / "train" / "events.out.tfevents.1", events)
    options = ("--one-shot", "--name", "Recorded")
    sent = uploader.run("--logdir", tmp_path / "logs", *options)
    assert sent.code == 0, sent.err
    base = f"{uploader.server}/api/v1/experiments/{sent.experiment_id}/uploads"
    headers = {"Authorization": f"Bearer {uploader.token}"}
    for upload_id, host, status, detail in RECORDS:
        origin = {
            "host": host,
            "user": "ada",
            "command": "train.py --config '{\"lr\": 0.1}' --api-key '***' " + "x" * 300,
            "git_commit": "0123456789" * 4,
            "python": "CPython 3.12.1",
            "gpus": "8 x NVIDIA A100-SXM4-80GB",
            "gpu_driver": "535.104.05",
        }
        fields = {
            "origin": origin,
            "packages": [f"package-{number}==1.0" for number in range(120)],
            "status_of": "training",
            "started_at": "2026-01-31T12:00:00Z",
        }
        httpx2.put(f"{base}/{upload_id}", json=fields, headers=headers).raise_for_status()
        if status is not None:
            change = {"status": status, "detail": detail, "ended_at": "2026-01-31T13:00:00Z"}
            httpx2.patch(f"{base}/{upload_id}", json=change, headers=headers).raise_for_status()
    printed = {"console": "\n".join(LINES), "console_times": [1.7e9, 1.7e9 + 5, 1.7e9 + 8.5]}
    httpx2.patch(f"{base}/{'e' * 16}", json=printed, headers=headers).raise_for_status()
    return sent.experiment_id


def test_page_lists_uploads_with_status(page, browser, live_service, recorded, owner_session):
    cookie = {"name": "tbhub_session", "value": owner_session, "url": live_service.url}
    page.context.add_cookies([cookie])
    look_at(page, f"{live_service.url}/experiment/{recorded}/about", "uploads")
    section = page.locator("#uploads")
    for text in ("Running", "Finished", "Failed", "Killed", "Unknown", "<b>gpu11</b>"):
        expect(section.get_by_text(text).first).to_be_visible()
    expect(section.get_by_text("torch.cuda.OutOfMemoryError")).to_be_visible()
    expect(page.get_by_role("heading", name="Origin")).to_have_count(0)

    console = page.get_by_role("region", name="Lines of the console")
    expect(page.locator(".plot canvas").first).to_be_visible()
    console.get_by_text("<b>step 5</b>").hover()
    expect(page.locator(".plot-tip")).to_contain_text("step 5")
    page.locator(".plot").press("Home")
    expect(console.locator(".is-marked")).to_contain_text("of_a_long_line")
    page.get_by_role("searchbox", name="Search the console").fill("STEP 5")
    page.keyboard.press("Enter")
    expect(console.get_by_role("listitem")).to_have_count(1)

    opened = section.get_by_text("Details of the upload aaaaaaaa")
    opened.focus()
    page.keyboard.press("Enter")
    expect(section.get_by_text("8 x NVIDIA A100-SXM4-80GB").locator("visible=true")).to_be_visible()
    section.get_by_text("120 packages").locator("visible=true").click()
    expect(section.get_by_text("package-119==1.0").locator("visible=true")).to_be_visible()
    look_again(page, "uploads_opened")

    stranger = new_page(browser, live_service.url)
    stranger.watch.is_expected = lambda problem: "401" in problem or "404" in problem
    stranger.goto(f"{live_service.url}/experiment/{recorded}/about")
    assert "gpu7" not in stranger.content()
    stranger.context.close()
