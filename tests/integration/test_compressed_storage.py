"""Blocks are stored compressed once the database requires it, and older ones become so."""

from __future__ import annotations

from contextlib import closing, contextmanager

import numpy as np
import psycopg
import pytest
from sqlalchemy import text

from support.direct_writer import new_grant, write_points
from tbservice.db import migrate
from tbservice.db.database import Database
from tbservice.ingest.door import PointWriter
from tbservice.series import compaction
from tbservice.series.tables import compressed_blocks, scalar_format
from tbwire.points import ScalarPoints

pytestmark = pytest.mark.own_database

PACKED, COMPRESSED = 1, compressed_blocks.VERSION
COUNT = 3_000


@contextmanager
def connect(url, workspace_id=None):
    """Open a connection now, and a transaction on it."""
    with closing(Database(url, 1)) as database, database.transaction(workspace_id) as db:
        yield db


class Stored:
    """One series, each part of which is written over a new connection."""

    def __init__(self, url):
        self.url = url
        with closing(Database(url, 1)) as database:
            self.grant = new_grant(database)
        self.workspace_id = self.grant.workspace_id
        self._step = 0

    def write(self):
        steps = np.arange(self._step, self._step + COUNT)
        points = ScalarPoints(steps, 1.7e9 + steps / 3, np.sin(steps / 7))
        with connect(self.url, self.workspace_id) as db:
            write_points(PointWriter(db), self.grant, points, self._step, self._step + COUNT)
        self._step += COUNT

    def compact(self):
        with connect(self.url, self.workspace_id) as db:
            (run_id,) = db.execute(text("SELECT run_id FROM runs")).scalars()
            compaction.compact_run(db, self.grant, run_id, compact_idle=True)

    def blocks(self, where="level <= 0"):
        """Return the level and bytes of blocks, in step order."""
        with connect(self.url, self.workspace_id) as db:
            statement = f"SELECT level, data FROM scalar_blocks WHERE {where} ORDER BY first_step"  # noqa: S608 - constants
            return [(level, bytes(data)) for level, data in db.execute(text(statement))]

    def formats(self, where="level <= 0"):
        """Return the level and format of blocks, in step order."""
        return [(level, data[0]) for level, data in self.blocks(where)]

    def points(self):
        return scalar_format.concatenate([scalar_format.unpack(data) for _, data in self.blocks()])


@pytest.fixture
def stored(database_url, owner_url):
    """A series in a database that servers of the release before may still use."""
    with psycopg.connect(owner_url) as db:
        db.execute("UPDATE alembic_version SET required_revision = NULL")
    return Stored(database_url)


def test_blocks_are_packed_until_database_requires_readers(stored, owner_url):
    stored.write()
    assert stored.formats() == [(-1, PACKED)]
    assert migrate.upgrade(owner_url, compress_blocks=True) == []
    stored.write()
    assert stored.formats() == [(-1, PACKED), (-1, COMPRESSED)]


def test_sealing_compresses_older_blocks_and_keeps_points(stored, owner_url):
    stored.write()
    before = stored.points()
    migrate.upgrade(owner_url, compress_blocks=True)
    stored.compact()
    assert stored.formats() == [(0, COMPRESSED)]
    assert stored.formats("level = 1") == [(1, COMPRESSED)]
    after = stored.points()
    for name in ("steps", "wall_times", "values"):
        assert getattr(after, name).tobytes() == getattr(before, name).tobytes()
    assert after.steps.tolist() == list(range(COUNT))


def test_sealing_leaves_compressed_block_as_it_is(stored, owner_url):
    migrate.upgrade(owner_url, compress_blocks=True)
    stored.write()
    ((_, before),) = stored.blocks()
    stored.compact()
    assert stored.blocks() == [(0, before)]


def test_sealing_packs_while_older_servers_may_start(stored):
    stored.write()
    stored.compact()
    assert {format_ for _, format_ in stored.formats("true")} == {PACKED}


def test_connection_of_before_packs_while_others_compress(stored, owner_url):
    with connect(stored.url) as earlier:
        migrate.upgrade(owner_url, compress_blocks=True)
        with connect(stored.url) as later:
            assert not scalar_format.compresses(earlier)
            assert scalar_format.compresses(later)


def test_requirement_is_never_lowered(stored, owner_url):
    with psycopg.connect(owner_url) as db:
        db.execute("UPDATE alembic_version SET required_revision = '9999_later'")
    migrate.upgrade(owner_url, compress_blocks=True)
    with connect(stored.url) as db:
        statement = text("SELECT required_revision FROM alembic_version")
        assert db.execute(statement).scalar() == "9999_later"


def test_new_database_compresses_from_beginning(servers, empty_database_url):
    url = servers.owner_url(empty_database_url)
    migrate.upgrade(url)
    assert migrate.check(url).compresses_blocks
