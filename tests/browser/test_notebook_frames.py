"""An experiment in a notebook's page: the frame where the server allows it, else a link."""

from __future__ import annotations

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import expect

from support import event_files
from support.browser_pages import share_link
from support.servers import live_service
from support.uploading import Uploader
from tbupload import Experiment

NAME = """<img src=x onerror=alert(1)>"' onload=alert(2)"""


@pytest.fixture(scope="module")
def framing(shared_settings, tmp_path_factory):
    """A tenant of a service that allows frames in pages of 127.0.0.1, its own site."""
    directory = tmp_path_factory.mktemp("framing")
    more = {"TBHUB_FRAME_ANCESTORS": '["http://127.0.0.1:*"]'}
    with live_service(shared_settings, directory / "log", **more) as live:
        yield Uploader(live.url, live.new_owner(), directory)


def upload(uploader, logdir, visibility):
    events = [event_files.scalar_event("loss", step, float(step)) for step in range(5)]
    event_files.write_records(logdir / "run" / "tfevents.1", events)
    options = ("--name", NAME, "--visibility", visibility, "--one-shot")
    return uploader.run("--logdir", logdir, *options).experiment_id


def render(uploader, experiment_id):
    experiment = Experiment(experiment_id, server=uploader.server, token=uploader.token)
    return experiment._repr_html_()


@contextmanager
def notebook_page(content):
    """Serve a page with the output of a cell, and yield its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_server_without_setting_is_shown_as_link(uploader, tmp_path):
    shown = render(uploader, upload(uploader, tmp_path, "link"))
    assert "<iframe" not in shown
    assert "1 run, last data 20" in shown


def test_server_without_setting_shows_chart(browser, uploader, tmp_path):
    shown = render(uploader, upload(uploader, tmp_path, "private"))
    page = browser.new_page()
    with notebook_page(shown) as port:
        page.goto(f"http://127.0.0.1:{port}/")
        picture = page.locator("img")
        assert picture.evaluate("img => img.decode().then(() => img.naturalWidth)") == 640
    page.close()


def test_page_is_shown_in_frame_with_hostile_name(browser, framing, tmp_path):
    shown = render(framing, upload(framing, tmp_path, "link"))
    page = browser.new_page()
    alerts = []
    page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    with notebook_page(shown) as port:
        page.goto(f"http://127.0.0.1:{port}/")
        expect(page.frame_locator("iframe").locator("card-view").first).to_be_visible()
        expect(page.get_by_role("link")).to_have_text(NAME)
        with page.expect_event(
            "framenavigated", lambda frame: frame.url.startswith("chrome-error:")
        ):  # an origin that is not named
            page.goto(f"http://localhost:{port}/")
        expect(page.frame_locator("iframe").locator("body")).not_to_contain_text("loss")
    assert (page.locator("img").count(), alerts) == (0, [])
    page.close()


def test_private_page_is_shown_where_it_was_opened_before(browser, framing, tmp_path):
    experiment_id = upload(framing, tmp_path, "private")
    shown = render(framing, experiment_id)
    assert "tbh_" not in shown
    page = browser.new_context().new_page()
    with notebook_page(shown) as port:
        with page.expect_event(
            "framenavigated", lambda frame: frame.url.startswith("chrome-error:")
        ):  # the token form is in no frame
            page.goto(f"http://127.0.0.1:{port}/")
        page.goto(share_link(framing, experiment_id))
        page.goto(f"http://127.0.0.1:{port}/")
        expect(page.frame_locator("iframe").locator("card-view").first).to_be_visible()
    page.context.close()
