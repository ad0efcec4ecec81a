"""The pool of connections to PostgreSQL, and transactions that name their workspace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from sqlalchemy import Connection, Engine, text

from tbservice import traces
from tbservice.db import before_commit, link_views
from tbservice.db.cluster.node_watch import NodeWatch
from tbservice.db.cluster.nodes import Nodes
from tbservice.db.errors import translate_driver_errors
from tbservice.db.pipeline import get_driver_connection, set_locals
from tbservice.db.pool import Pool, cancel
from tbservice.db.replica import ReadAttempt, Replica, begin_attempt
from tbservice.db.server_state import DatabaseState, read_state
from tbservice.db.write_check import Timelines, check_writable
from tbservice.errors import StartupError
from tbservice.types.grants import ExperimentGrant, Grant, ReadGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId

Visible = Grant | WorkspaceId | None
"""Rows that a transaction sees: what the grant permits, all of a workspace's, or no tenant's."""


class Database:
    """A pool of connections. A transaction sees one workspace's rows, or no tenant's rows.

    One that is opened with the grant of a share link sees only what the link shows. Reads must be
    given their grant: with the workspace alone they would see all of it.
    """

    def __init__(self, url: str, pool_size: int, read_url: str | None = None) -> None:
        """Create the pool; connections are opened when first needed.

        On a cluster (Citus), each node has a pool; those in use are at most `pool_size` in all,
        beside one for each node that numbers new runs, tags and series.

        Args:
            url: A libpq URL (postgresql://…) of an ordinary role.
            pool_size: Connections at most. Further requests wait up to 30 s for one.
            read_url: URL of a streaming replica, for snapshots; it has a pool of its own.

        Raises:
            StartupError: A URL is malformed.
        """
        self._primary = Pool(url, pool_size)
        self._replica = Replica(read_url, pool_size, self._primary) if read_url else None
        self._nodes = Nodes(url, pool_size, self._primary)
        self._timelines = Timelines()
        self._watch = NodeWatch(self._nodes, self._primary)

    @property
    def engine(self) -> Engine:
        """The engine of the URL's own connections."""
        return self._primary.engine

    @contextmanager
    def transaction(self, visible: Visible = None) -> Iterator[Connection]:
        """Open a READ COMMITTED transaction: commit at the end of the block, roll back on error.

        Raises:
            Unauthenticated: The grant is of a link that has expired or was revoked.
            Unavailable: PostgreSQL is unreachable, stopping, read-only or full: try again.
            NotFound: The experiment was deleted meanwhile (a foreign key says so).
            Invalid: A text contains a NUL character.
        """
        with self._transaction("BEGIN", visible) as db:
            yield db

    @contextmanager
    def snapshot(self, visible: Visible = None) -> Iterator[Connection]:
        """Open a read-only REPEATABLE READ transaction: all statements see the same state.

        It sees everything that was committed before. Raises Unauthenticated and Unavailable as
        `transaction` does.
        """
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        with self._transaction(begin, visible, is_read=True) as db:
            yield db

    @contextmanager
    def copying(self, visible: Visible) -> Iterator[Connection]:
        """Open a REPEATABLE READ transaction that writes: it copies one state of what it reads.

        It must not update rows that others write: PostgreSQL would abort it. Raises Unavailable as
        `transaction` does.
        """
        with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ", visible) as db:
            yield db

    @contextmanager
    def _transaction(
        self, begin: str, visible: Visible, *, is_read: bool = False
    ) -> Iterator[Connection]:
        workspace_id = visible.workspace_id if isinstance(visible, Grant) else visible
        if workspace_id is not None:  # in one message with BEGIN: it saves a round trip
            # `int`, since a simple query takes no parameters:
            # https://www.postgresql.org/docs/18/protocol-flow.html#PROTOCOL-FLOW-SIMPLE-QUERY
            begin += f"; SET LOCAL tbhub.workspace_id = '{int(workspace_id)}'"
        with (
            traces.span("database transaction"),
            translate_driver_errors(),
            self._open(begin, visible, is_read=is_read) as db,
        ):
            if isinstance(visible, ReadGrant) and visible.link is not None:
                link_views.enter(db, visible.experiment_id, visible.link)
            with before_commit.calling(db):
                yield db

    def _open(
        self, begin: str, visible: Visible, *, is_read: bool
    ) -> AbstractContextManager[Connection]:
        """Return a transaction on the server that is best for it."""
        if is_read and self._replica is not None:
            return self._on_replica(self._replica, begin)
        if isinstance(visible, ExperimentGrant):
            return self._at_node(begin, visible)
        return self._primary.transaction(begin)

    @contextmanager
    def _on_replica(self, replica: Replica, begin: str) -> Iterator[Connection]:
        with ExitStack() as stack:
            db = replica.enter_transaction(stack, begin)
            yield db or stack.enter_context(self._primary.transaction(begin))

    @contextmanager
    def _at_node(self, begin: str, grant: ExperimentGrant) -> Iterator[Connection]:
        with ExitStack() as stack:
            db = self._nodes.enter_transaction(stack, begin, grant.experiment_id)
            yield db or stack.enter_context(self._primary.transaction(begin))

    @contextmanager
    def without_transaction(
        self, experiment_id: ExperimentId | None = None
    ) -> Iterator[Connection]:
        """Check out a connection for `query_with_rls` alone, each call of which is a transaction.

        With an experiment, which need not exist, it is to the node of a cluster that would have its
        rows. Raises as `transaction` does.
        """
        with translate_driver_errors(), ExitStack() as stack:
            db = None
            if experiment_id is not None:
                db = self._nodes.enter_connection(stack, experiment_id)
            yield db or stack.enter_context(self._primary.connect())

    @staticmethod
    def begin_attempt() -> ReadAttempt:
        """Return what is noted of reads at the replica in the running task, from now on.

        Also of the tasks and threads that this starts.
        """
        return begin_attempt()

    def check_replica(self) -> None:
        """Check that `read_url` names a replica of this database; one that is away is no error.

        Raises StartupError, also for a cluster: replicas of its nodes are not read. Raises
        Unavailable when PostgreSQL does not respond.
        """
        if self._replica is None:
            return
        with translate_driver_errors():
            if self._nodes.exist:
                raise StartupError("TBHUB_READ_DATABASE_URL cannot be used with a cluster (Citus)")
            self._replica.check()

    def check(self) -> None:
        """Execute a trivial query. Raises Unavailable when PostgreSQL does not respond."""
        with self.transaction() as db:
            db.execute(text("SELECT 1"))

    def check_writable(self) -> None:
        """Check that PostgreSQL can write: to its log (WAL), and to its disk; note its timeline.

        In a cluster, that is the node of the URL that answers; `list_unavailable_nodes` notes the
        timelines of all nodes. See `write_check.check_writable`.

        Raises:
            Unavailable: PostgreSQL cannot write. The message says why.
        """
        with self.transaction() as db:
            timeline = check_writable(db)
        # Afterwards: the first time, this needs a connection of its own.
        with translate_driver_errors():
            has_nodes = self._nodes.exist
        if not has_nodes:
            self._timelines.observe(timeline)

    def read_state(self) -> DatabaseState:
        """Return versions, migrations and connections of the database."""
        with self.transaction() as db:
            return read_state(db)

    def list_unavailable_nodes(self) -> list[int] | None:
        """Return the numbers of the nodes of a cluster that could not write when last looked at.

        Looks at them in the background, at most once in `NODE_LOOK_SECONDS`. None on plain
        PostgreSQL, and until the first look has ended.
        """
        return self._watch.list_unavailable()

    def cancel(self, db: Connection) -> None:
        """Cancel the statement that a connection executes, if any; it raises Unavailable there.

        May be called from any thread.
        """
        cancel(get_driver_connection(db))

    def stop(self) -> None:
        """Cancel all running statements; later requests for a connection raise Unavailable."""
        for pool in self._list_pools():
            pool.stop()

    def close(self) -> None:
        """Close all idle connections."""
        self._watch.close()
        for pool in self._list_pools():
            pool.close()

    def _list_pools(self) -> list[Pool]:
        replicas = [] if self._replica is None else [self._replica.pool]
        return [self._primary, *replicas, *self._nodes.list_pools()]


def set_local(db: Connection, name: str, value: str) -> None:
    """Set `tbhub.<name>`, which row policies read, until the transaction ends."""
    set_locals(db, {f"tbhub.{name}": value})


def wait_in_transaction(db: Connection) -> None:
    """Let a transaction be idle for long, for its locks, without keeping anything from vacuum.

    PostgreSQL keeps the snapshot of a query, also after its last row, until another statement takes
    the place of its portal (extended protocol). This one needs no snapshot. Otherwise, each version
    of a row that others update meanwhile stays, and they have to step over all of them.
    """
    db.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
