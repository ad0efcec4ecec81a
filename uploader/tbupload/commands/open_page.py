"""The command `tbupload open`: opens an experiment's page in the browser."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser

from tbupload.commands.connect import make_client
from tbupload.commands.experiment_address import resolve_named_id
from tbupload.console.output import print_json, print_line, print_message

_TEXT_BROWSERS = ("www-browser", "links", "elinks", "lynx", "w3m")
"""Fallbacks of `webbrowser` that would take the terminal over."""


def open_page(options: argparse.Namespace) -> int:
    """Run `tbupload open ID|NAME`: print the page's URL, and open it where there is a browser."""
    client = make_client(options)
    experiment_id = resolve_named_id(options.experiment, client)
    experiment = client.get_experiment(experiment_id)
    url = experiment["url"]
    if options.json:
        print_json({"experiment_id": experiment["experiment_id"], "url": url})
    else:
        print_line(url)
    if not _open(url) and not options.quiet:
        print_message("there is no browser here: open this address in one")
    return 0


def _open(url: str) -> bool:
    """Open a URL of http or https in a graphical browser; return whether one was found."""
    if not url.startswith(("http://", "https://")) or not _has_display():
        return False
    try:
        browser = webbrowser.get()
        is_text = getattr(browser, "name", "") in _TEXT_BROWSERS
        return not is_text and browser.open(url)
    except (webbrowser.Error, OSError):
        return False


def _has_display() -> bool:
    """Return whether a window can be shown: not on a remote machine without a display."""
    if sys.platform in {"darwin", "win32"}:
        return "SSH_CONNECTION" not in os.environ
    return bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER")
    )
