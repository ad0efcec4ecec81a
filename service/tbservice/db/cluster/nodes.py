"""Transactions of one experiment at the node of a cluster (Citus) that has its rows.

Any node can answer, at the price of asking that one. So a wrong guess costs time only, and a node
that cannot be reached is passed by.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import Connection, exc

from tbservice import limits
from tbservice.db.cluster import citus
from tbservice.db.cluster.citus import Node
from tbservice.db.pool import Pool
from tbservice.db.reachability import Reachability
from tbservice.types.identifiers import ExperimentId

NODE_REST_SECONDS: Final = 5.0
"""Seconds after which one transaction tries a node of a cluster again that could not be reached."""

KNOWN_NODES_ITEMS_MAX: Final = 10_000
"""Experiments (items) of which a worker remembers the node of a cluster."""

_Known = OrderedDict[ExperimentId, tuple[float, Node | None]]
"""Nodes of experiments, each until a time; those that were looked up last are last."""

_OF_SEVERAL_HOSTS = ("hostaddr", "target_session_attrs", "load_balance_hosts")
"""Parameters of a URL that are about the hosts that it names."""


class Nodes:
    """The pools of a cluster's nodes; with the first one, they share a number of connections."""

    def __init__(self, url: str, size: int, first: Pool) -> None:
        """Find out at the first use whether it is a cluster; plain PostgreSQL has no nodes.

        Args:
            url: The URL of `first`, whose other parameters are for all nodes.
            size: Connections of all pools that are in use at once.
            first: The pool of the URL.
        """
        self._url = url
        self._size = size
        self._first = first
        self._lock = threading.Lock()
        self._exist: bool | None = None
        self._pools: dict[Node, tuple[Pool, Reachability]] = {}
        self._known: _Known = OrderedDict()
        self._asked: _Known = OrderedDict()

    @property
    def exist(self) -> bool:
        """Whether the first pool is of a cluster. Raises the driver's errors until it responds."""
        if self._exist is None:
            with self._first.connect() as db:
                nodes = citus.list_nodes(db)
            with self._lock:
                if self._exist is None:  # else another thread's seats are in use already
                    if nodes:
                        self._first.seats = threading.Semaphore(self._size)
                    self._exist = bool(nodes)
        return self._exist

    def list_pools(self) -> list[Pool]:
        """Return the pools of nodes that were used."""
        with self._lock:
            return [pool for pool, _ in self._pools.values()]

    def enter_transaction(
        self, stack: ExitStack, begin: str, experiment_id: ExperimentId
    ) -> Connection | None:
        """Begin a transaction where the experiment's rows are; return its connection.

        Returns None on plain PostgreSQL, and if the node is not known or cannot be reached: then
        the first pool serves.
        """
        if not self.exist:  # before the lock, which all requests would share
            return None
        with self._lock:  # there is such an experiment: somebody has a grant for it
            if experiment_id in self._asked:
                self._known[experiment_id] = self._asked.pop(experiment_id)
                _drop_oldest(self._known)
        return self._enter(stack, experiment_id, lambda pool: pool.transaction(begin))

    def enter_connection(self, stack: ExitStack, experiment_id: ExperimentId) -> Connection | None:
        """Check out a connection to the node that has the experiment's rows, without a transaction.

        Returns None as `enter_transaction` does.
        """
        if not self.exist:
            return None
        return self._enter(stack, experiment_id, Pool.connect)

    def _enter(
        self,
        stack: ExitStack,
        experiment_id: ExperimentId,
        open_connection: Callable[[Pool], AbstractContextManager[Connection]],
    ) -> Connection | None:
        node = self._find(experiment_id)
        if node is None:
            return None
        pool, reachability = self._pool_of(node)
        if not reachability.may_try():
            return None
        own = ExitStack()
        try:
            db = own.enter_context(open_connection(pool))
        except (psycopg.OperationalError, exc.OperationalError, exc.InterfaceError):
            reachability.note_failure(NODE_REST_SECONDS)
            return None
        stack.push(own)
        reachability.note_success()
        return db

    def _find(self, experiment_id: ExperimentId) -> Node | None:
        """Return the node of an experiment, as it was at most `NODE_SECONDS_MAX` ago.

        Ids that anybody asks for are kept apart until a transaction is opened for them: a flood of
        ids that do not exist displaces none that does.
        """
        with self._lock:
            place = self._known if experiment_id in self._known else self._asked
            until, node = place.get(experiment_id, (0.0, None))
        if time.monotonic() < until:
            return node
        with self._first.transaction("BEGIN") as db:
            node = citus.node_of(db, experiment_id)
        with self._lock:
            place = self._known if experiment_id in self._known else self._asked
            place[experiment_id] = time.monotonic() + citus.NODE_SECONDS_MAX, node
            place.move_to_end(experiment_id)
            _drop_oldest(place)
        return node

    def _pool_of(self, node: Node) -> tuple[Pool, Reachability]:
        with self._lock:
            if node not in self._pools:
                pool = Pool(
                    self.make_url(node),
                    self._size,
                    idle_max=max(1, self._size // 2),
                    seats=self._first.seats,
                    connect_seconds_max=limits.NODE_CONNECT_SECONDS_MAX,
                )
                self._pools[node] = pool, Reachability()
            return self._pools[node]

    def make_url(self, node: Node) -> str:
        """Return a node's URL: that of the first pool, for another host."""
        fields = conninfo_to_dict(self._url)
        for name in _OF_SEVERAL_HOSTS:
            fields.pop(name, None)
        return make_conninfo("", **{**fields, "host": node.host, "port": node.port})


def _drop_oldest(known: _Known) -> None:
    while len(known) > KNOWN_NODES_ITEMS_MAX:
        known.popitem(last=False)
