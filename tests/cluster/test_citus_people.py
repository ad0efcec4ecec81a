"""Changes of people that enter a cluster by different nodes at once: each sees the one before it."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager
from itertools import permutations

import pytest

from support.held_commits import held_commits
from support.people import BLOCKED_SECONDS, new_member, new_person, owner_of
from support.servers import database_name, new_workspace
from tbservice.auth import members, people, sessions, tokens
from tbservice.db.database import Database
from tbservice.errors import Forbidden, ServiceError
from tbservice.types.grants import Scope
from tbservice.types.people import Role

pytestmark = pytest.mark.cluster


@contextmanager
def late_commits(cluster, name, first, second):
    """Hold back what the second node commits of transactions that entered by the first."""
    with held_commits(cluster.ports[second]) as held:
        with cluster.connect(name, first) as db:
            statement = "UPDATE pg_dist_node SET nodeport = %s WHERE nodeport = %s"
            db.execute(statement, [held.port, cluster.ports[second]])
        try:
            yield held
        finally:
            with cluster.connect(name, first) as db:
                db.execute(statement, [cluster.ports[second], held.port])


class Change(threading.Thread):
    """A transaction of the workspace, entered by one node; `error` is what it raised."""

    def __init__(self, cluster, name, node, workspace_id, change):
        super().__init__()
        self.error = None
        self._opened = cluster.url(name, node), workspace_id, change
        self.start()

    def run(self):
        url, workspace_id, change = self._opened
        with closing(Database(url, 1)) as database:
            try:
                with database.transaction(workspace_id) as db:
                    change(db)
            except ServiceError as error:
                self.error = error


@pytest.fixture
def change_twice(cluster, database_url):
    """Run two changes, the second while the first is committed on all nodes but its own; return
    their errors.
    """

    def change(nodes, workspace_id, first, second):
        name = database_name(database_url)
        with late_commits(cluster, name, *nodes) as held:
            begun = Change(cluster, name, nodes[0], workspace_id, first)
            assert held.is_holding.wait(10)
            then = Change(cluster, name, nodes[1], workspace_id, second)
            then.join(BLOCKED_SECONDS)
            held.release()
            for each in (begun, then):
                each.join(30)
        return begun.error, then.error

    return change


NODES = list(permutations(range(3), 2))


def test_owners_leaving_by_different_nodes_leave_one(change_twice, database, database_url):
    for nodes in NODES:
        workspace_id = new_workspace(database_url).workspace_id
        owners = [new_member(database, workspace_id).user_id for _ in range(2)]
        first, second = change_twice(
            nodes,
            workspace_id,
            lambda db: members.leave(db, workspace_id, owners[0]),  # noqa: B023 - called at once
            lambda db: members.leave(db, workspace_id, owners[1]),  # noqa: B023 - called at once
        )
        assert first is None
        assert getattr(second, "code", None) == "last_owner", nodes


def test_token_made_by_other_node_ends_with_its_person(
    change_twice, database, database_url, servers, workspace_id
):
    made = []
    for nodes in NODES:
        person = new_member(database, workspace_id, Role.EDITOR).user_id
        assert change_twice(
            nodes,
            workspace_id,
            lambda db: made.append(make_token(db, person, workspace_id)),  # noqa: B023 - called at once
            lambda db: members.remove_member(db, owner_of(workspace_id), person),  # noqa: B023 - called at once
        ) == (None, None)
        revoked = f"SELECT revoked_at IS NOT NULL FROM tokens WHERE token_id = '{made[-1]}'"  # noqa: S608 - an id
        assert servers.execute_on_nodes(database_url, revoked) == [(True,)] * 3


def make_token(db, person, workspace_id):
    """Make a token of a person; return its id."""
    return tokens.create_personal_token(db, person, workspace_id, [Scope.READ])[0].token_id


def test_person_disabled_by_other_node_gets_no_session(
    change_twice, database, database_url, servers
):
    for nodes in NODES:
        person = new_person(database).user_id
        assert change_twice(nodes, None, *in_order(open_session, people.disable, person)) == (
            None,
            None,
        )
        kept = f"SELECT count(*) FROM browser_sessions WHERE user_id = '{person}'"  # noqa: S608 - an id
        assert servers.execute_on_nodes(database_url, kept) == [(0,)] * 3
        person = new_person(database).user_id
        first, second = change_twice(nodes, None, *in_order(people.disable, open_session, person))
        assert (first, type(second)) == (None, Forbidden), nodes


def open_session(db, person):
    """Open a browser session of a person."""
    sessions.open_session(db, person, "a browser", "192.0.2.7")


def in_order(first, second, person):
    """Return both as changes of this person."""
    return lambda db: first(db, person), lambda db: second(db, person)
