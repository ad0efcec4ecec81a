"""Looks at the nodes of a cluster (Citus): whether each can write, and whose standby was promoted.

Connections are new for each look: one that is open does not show that a node has no room for more.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Final

import psycopg
from sqlalchemy import Engine, NullPool, exc, text

from tbservice import limits, metrics
from tbservice.db.cluster import citus
from tbservice.db.cluster.citus import Node
from tbservice.db.cluster.nodes import Nodes
from tbservice.db.engine import make_engine
from tbservice.db.pool import Pool
from tbservice.db.write_check import Timelines, check_writable
from tbservice.errors import Unavailable

NODE_LOOK_SECONDS: Final = 10.0
"""Seconds between two looks of a worker whether each node can write: 10 ms of CPU of the node."""

_log = logging.getLogger(__name__)

_SILENT: Final = "no answer"


@dataclass(slots=True)
class _Watched:
    """A node that is looked at, and what was seen last."""

    node: Node
    engine: Engine
    thread: threading.Thread | None = None
    reason: str | None = None
    """Why it is unavailable; None if it is not."""

    result: tuple[int | None, str | None] = field(default=(None, None))
    """The timeline, and the reason, as the thread has found them."""

    @property
    def name(self) -> str:
        """Its address."""
        return f"{self.node.host}:{self.node.port}"


class NodeWatch:
    """State of each node of a cluster; threads look at the nodes on request."""

    def __init__(self, nodes: Nodes, first: Pool) -> None:
        """Look at nothing yet.

        Args:
            nodes: Makes the nodes' URLs.
            first: Where to read which nodes there are.
        """
        self._nodes = nodes
        self._first = first
        self._looking = threading.Lock()
        self._closed = threading.Event()
        self._looked_at = -NODE_LOOK_SECONDS
        self._watched: dict[int, _Watched] = {}
        self._timelines = Timelines()
        self._unavailable: list[int] | None = None
        self._is_plain = False

    def list_unavailable(self) -> list[int] | None:
        """Return the groups of nodes that are unavailable; begin a look if the last one is old.

        None on plain PostgreSQL, and until the first look has ended.
        """
        is_due = time.monotonic() - self._looked_at >= NODE_LOOK_SECONDS
        if not self._is_plain and is_due and self._looking.acquire(blocking=False):
            threading.Thread(target=self._look, name="look at nodes", daemon=True).start()
        return self._unavailable

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _look(self) -> None:
        """Look once, and again until all nodes are available: else the metric could stay at 1."""
        try:
            self._look_once()
            while self._unavailable and not self._closed.wait(NODE_LOOK_SECONDS):
                self._look_once()
        finally:
            self._looking.release()

    def _look_once(self) -> None:
        try:
            if not self._nodes.exist:
                self._is_plain = True
                return
            self._read_catalog()
            self._look_at_all()
        except (psycopg.Error, exc.SQLAlchemyError, Unavailable):
            # The node of entry is away, as /readyz says: look at those that are known.
            self._look_at_all()
        finally:
            self._looked_at = time.monotonic()

    def _read_catalog(self) -> None:
        with self._first.transaction("BEGIN") as db:
            nodes = citus.list_nodes(db)
        for group, watched in list(self._watched.items()):
            if nodes.get(group) != watched.node:
                metrics.observe_node(group, watched.name, is_available=True)
                del self._watched[group]
        for group, node in nodes.items():
            if group not in self._watched:
                engine = make_engine(
                    self._nodes.make_url(node),
                    connect_seconds_max=limits.NODE_CONNECT_SECONDS_MAX,
                    poolclass=NullPool,
                    hide_parameters=True,
                )
                self._watched[group] = _Watched(node, engine)

    def _look_at_all(self) -> None:
        """Look at all nodes side by side; do not wait for one that answers no more."""
        deadline = time.monotonic() + limits.NODE_CONNECT_SECONDS_MAX + 1
        for watched in self._watched.values():
            if watched.thread is None or not watched.thread.is_alive():
                watched.result = None, _SILENT
                watched.thread = threading.Thread(
                    target=_look_at, args=[watched], name="look at a node", daemon=True
                )
                watched.thread.start()
        for group, watched in self._watched.items():
            if watched.thread is not None:
                watched.thread.join(max(0, deadline - time.monotonic()))
            self._observe(group, watched)
        if self._watched:
            self._unavailable = [
                group for group, watched in self._watched.items() if watched.reason
            ]

    def _observe(self, group: int, watched: _Watched) -> None:
        timeline, reason = watched.result
        if reason and not watched.reason:
            _log.warning("the node %s of the cluster is unavailable: %s", watched.name, reason)
        elif watched.reason and not reason:
            _log.warning("the node %s of the cluster is available again", watched.name)
        watched.reason = reason
        metrics.observe_node(group, watched.name, is_available=not reason)
        if timeline is not None:
            self._timelines.observe(timeline, group, f"node {watched.name} of the cluster")


def _look_at(watched: _Watched) -> None:
    """Check in a thread that a node can write."""
    milliseconds = limits.NODE_CONNECT_SECONDS_MAX * 1000
    try:
        with watched.engine.begin() as db:
            db.execute(
                text("SELECT set_config('statement_timeout', :value, true)"),
                {"value": str(milliseconds)},
            )
            watched.result = check_writable(db), None
    except Unavailable as error:
        watched.result = None, error.detail
    except (psycopg.Error, exc.SQLAlchemyError) as error:
        reason = str(getattr(error, "orig", None) or error).strip()
        watched.result = None, " ".join(reason.split()) or type(error).__name__
