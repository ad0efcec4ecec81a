"""Pictures of experiments in a notebook, drawn again below its cell during the training."""

from __future__ import annotations

import importlib
import time
from contextlib import suppress
from threading import Lock, Thread, Timer
from typing import Any, Final

from tbupload.errors import ServerError, UsageError
from tbupload.export.tail import follow_points
from tbupload.http.retry import RetryPolicy
from tbupload.notebook.page_view import ENDED, Place, View, render

PICTURES_MAX: Final = 8
"""Pictures that follow their experiments at the same time; the oldest stops at the next one."""

PERIOD_SECONDS: Final = 1.0
"""Shortest time between two drawings."""

IDLE_SHARE: Final = 10
"""How many times as long as a drawing took no other one begins."""

OUTAGE_SECONDS: Final = 600.0
"""How long a server may be away before a picture stops to follow."""

_pictures: list[LivePicture] = []
"""Pictures that follow, the oldest first."""


def show(place: Place | None, text: str, height: int | None = None) -> LivePicture | None:
    """Show an experiment below the cell that runs, and return the picture if it will change.

    It is a picture in the notebook, and changes with the experiment while the kernel runs: at most
    every PERIOD_SECONDS. It ends with the training, or when the server is away for OUTAGE_SECONDS.

    Args:
        place: The experiment, or None if there is none yet.
        text: What a terminal shows.
        height: Pixels of the page's frame, if there is one.
    """
    view = render(place, height)
    display: Any = importlib.import_module("IPython.display")
    shown = {"text/html": view.html, "text/plain": text}
    handle = display.display(shown, raw=True, display_id=True)
    shell = importlib.import_module("IPython").get_ipython()
    if place is None or view.has_ended or not hasattr(shell, "kernel"):
        return None
    for oldest in _pictures[: 1 - PICTURES_MAX]:
        oldest.stop()
    picture = LivePicture(place, view, text, handle)
    _pictures.append(picture)
    picture.start()
    return picture


class LivePicture:
    """A picture below a cell: a thread reads what is new of its tag, and draws it again."""

    def __init__(self, place: Place, view: View, text: str, handle: Any) -> None:
        self._place = place
        self._view = view
        self._text = text
        self._handle = handle
        self._lock = Lock()  # of what follows
        self._timer: Timer | None = None
        self._may_draw_at = 0.0
        self._is_over = False
        self._drawing = Lock()  # one at a time: an older one never comes last

    def start(self) -> None:
        """Begin to follow; does not keep the process from ending."""
        Thread(target=self._follow, name="tbupload picture", daemon=True).start()

    def stop(self) -> None:
        """Stay as it is from now on; its thread ends with what it reads next."""
        with self._lock:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
        if self in _pictures:
            _pictures.remove(self)

    def draw(self) -> None:
        """Draw what is there now; if it cannot be read, the picture stays."""
        with self._drawing:
            with self._lock:
                self._timer = None
                if self._is_over:
                    return
            began = time.monotonic()
            view = render(self._place, may_frame=False)
            if view.has_chart and view.html != self._view.html:
                self._view = view
                self._handle.update({"text/html": view.html, "text/plain": self._text}, raw=True)
            spent = time.monotonic() - began
            self._may_draw_at = began + max(PERIOD_SECONDS, IDLE_SHARE * spent)

    def _follow(self) -> None:
        """Draw after each change until the training has ended, then once more."""
        with suppress(ServerError, UsageError):  # deleted, not readable any more, or away for long
            while not self._has_ended():
                pass
        self.draw()
        self.stop()

    def _has_ended(self) -> bool:
        """Follow the tag that is drawn; return False once there is one where there was none."""
        place, tag = self._place, self._view.tag
        query: dict[str, Any] = {"start": "now", "status": True}
        query |= {} if tag is None else {"tag": [tag]}
        query |= {} if place.run is None else {"run": [place.run]}
        transport = place.connect(RetryPolicy(OUTAGE_SECONDS))
        for changes in follow_points(transport, place.experiment_id, "scalars", query):
            if self._is_over or changes.get("status") in ENDED:
                return True
            self._draw_soon()
            if tag is None and self._view.tag is not None:
                return False
        raise AssertionError("follow_points never returns")

    def _draw_soon(self) -> None:
        with self._lock:
            if self._timer is None and not self._is_over:
                self._timer = Timer(max(0.0, self._may_draw_at - time.monotonic()), self.draw)
                self._timer.daemon = True
                self._timer.start()
