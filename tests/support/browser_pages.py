"""Shared by the browser tests: Chromium, a record of all errors in a page, and ways to look at one."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

from PIL import Image

from support import axe
from support.people import SESSION_COOKIE, sign_in
from support.programs import find_node, find_program
from support.waiting import SECONDS_MAX, wait_until

# Playwright's own Node.js needs libatomic.so.1, which a minimal Debian lacks.
os.environ.setdefault("PLAYWRIGHT_NODEJS_PATH", find_node())

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SCREENSHOTS = Path(__file__).parent.parent / "browser" / "screenshots"
"""Directory of the tests' pictures of every dashboard, for a person to look at; ignored by git."""

SLOW_FRAMES = """
window.requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 200);
window.cancelAnimationFrame = clearTimeout;
"""
"""Draws what moves, as a curve that appears or a surface, five times per second, not sixty times: each
in software, which was half of what Chromium cost.
"""

HAS_PICTURES = "PICTURES" in os.environ
"""Whether to save pictures, three of each page: no test looks at them."""

SATURATED = 128
DRAWN_PIXELS_MIN = 100


def launch(playwright):
    """Start the system's Chromium."""
    program = find_program("chromium")
    return playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))


class Watch:
    """Records a page's problems: failed requests, errors, policy violations, requests to other
    hosts.
    """

    def __init__(self, page, server):
        self.problems = []
        self.is_expected = lambda _problem: False
        page.on("response", lambda got: self._note(got.status >= 400, f"{got.status} {got.url}"))
        page.on(
            "requestfailed",
            lambda request: self._note(not _is_left(request), f"{request.failure} {request.url}"),
        )
        page.on(
            "request",
            lambda request: self._note(not _is_own(request.url, server), f"outside: {request.url}"),
        )
        page.on("console", lambda message: self._note(message.type == "error", message.text))
        page.on("pageerror", lambda error: self._note(True, str(error)))

    def _note(self, is_problem, text):
        if is_problem and not self.is_expected(text):
            self.problems.append(text)


def _is_left(request):
    """Return whether a page that is left, or hidden, ended what nobody waits for: what it, its
    scripts or its style asked for. Of a page itself, this is the failure.
    """
    return "ERR_ABORTED" in request.failure and request.resource_type != "document"


def _is_own(url, server):
    return url.startswith((server + "/", "data:", "blob:"))


def new_page(browser, server):
    """Return a page of a new profile; `page.watch` records its problems."""
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    page.set_default_timeout(SECONDS_MAX * 1000)
    page.watch = Watch(page, server)
    return page


def open_as(page, database, person, server):
    """Give the page's profile a browser session of a person."""
    page.context.add_cookies(
        [{"name": SESSION_COOKIE, "value": sign_in(database, person), "url": server}]
    )


def share_link(uploader, experiment):
    """Return a link with a new read token, as `tbupload share` prints it."""
    ended = uploader.run("share", experiment)
    assert ended.code == 0, ended.err
    return re.search(r"http\S+\?token=tbh_\w+", ended.out)[0]


def open_tab(page, name):
    """Open a dashboard."""
    page.locator(".mat-mdc-tab").filter(
        has_text=re.compile(rf"^\s*{name}\s*$", re.IGNORECASE)
    ).click()


def shoot(page, name, *, is_full=False):
    """Save a screenshot if the variable PICTURES is set."""
    if HAS_PICTURES:
        SCREENSHOTS.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=is_full)


def has_drawing(locator):
    """Wait until over 100 visible pixels of an element are far from grey: lines, areas, pictures."""

    def is_drawn():
        locator.evaluate("element => element.scrollIntoView({block: 'nearest'})")
        # Not the element's own screenshot: that waits until nothing moves, which a surface in WebGL
        # always does.
        box = locator.bounding_box()
        if not (box and box["width"] and box["height"] and _is_in_window(locator.page, box)):
            return False  # not laid out yet, or moved away by what came meanwhile
        picture = locator.page.screenshot(clip=box)
        image = Image.open(io.BytesIO(picture)).convert("HSV")
        return sum(image.getchannel("S").histogram()[SATURATED:]) > DRAWN_PIXELS_MIN

    return wait_until(is_drawn, pause=0.2)


def _is_in_window(page, box):
    size = page.viewport_size
    return -box["width"] < box["x"] < size["width"] and -box["height"] < box["y"] < size["height"]


LOOKS = {
    "light": ("light", (1400, 900)),
    "dark": ("dark", (1400, 900)),
    "phone": ("light", (390, 844)),
}
"""Colour scheme and size of the window of each look of our own pages."""


def look_at(page, address, name):
    """Open one of our own pages in each of the LOOKS: check that axe-core finds nothing and that
    nothing is wider than the window.
    """
    page.goto(address)
    look_again(page, name)


def look_again(page, name):
    """Check what the page shows now as `look_at` checks a page that it opens."""
    page.wait_for_load_state()
    for look, (scheme, (width, height)) in LOOKS.items():
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": height})
        shoot(page, f"{name}.{look}", is_full=True)
        if look != "light":  # the others have both its colours and its size
            problems = axe.find_problems(page, is_structure_known=look == "phone")
            assert not problems, (look, problems)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), look
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1400, "height": 900})
