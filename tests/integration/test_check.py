"""`tbservice check`: each kind of damage is done to a stored experiment, reported, and repaired."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest

from support.batches import ApiClient, images, packed_scalars, scalars, segment, stream, texts
from support.restarted_job import Job
from support.servers import database_name, new_workspace, s3_client
from tbservice.db.database import Database
from tbservice.errors import NotFound
from tbservice.integrity.check import CheckOptions
from tbservice.series.tables.scalar_format import compress, pack, unpack
from tbservice.server.maintenance import check_service
from tbservice.throttle import Progress, Throttle
from tbwire.points import ScalarPoints

POINTS = 20_000
IMAGE = b"\x89PNG an image"


@dataclass
class Stored:
    """An experiment with every kind of data, and ways to damage it."""

    servers: object
    settings: object
    plain: object
    workspace_id: int
    experiment: str
    api: ApiClient

    def check(self, **options):
        """Return what a check of this experiment, or with `only=None` of all, finds."""
        given = replace(CheckOptions(only=self.experiment, skips_objects=True), **options)
        findings, is_complete = check_service(
            self.settings, given, Throttle(None), Progress(None), lambda _damage: None
        )
        assert is_complete
        return findings

    def kinds(self, **options):
        """Return the kinds of damage that a check finds."""
        return [damage.kind for damage in self.check(**options).damage]

    def execute(self, statement, *parameters):
        """Execute a statement as the superuser, without triggers; return its rows."""
        name = database_name(self.settings.database_url.get_secret_value())
        connect = self.servers.instance.postgres.connect_as_superuser
        with connect(name) as db, db.transaction():
            db.execute("SET LOCAL citus.propagate_set_commands = 'local'")  # to all nodes, if any
            db.execute("SET LOCAL session_replication_role = replica")
            cursor = db.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def changed(self, table, column, value, where="true"):
        """Change a column of one row during the block."""
        ((row, before),) = self.execute(
            f"SELECT ctid::text, {column} FROM {table} WHERE experiment_id = %s AND {where} LIMIT 1",  # noqa: S608 - constants
            self.experiment,
        )
        change = f"""
            UPDATE {table} SET {column} = %s WHERE experiment_id = %s AND ctid = %s::tid
            RETURNING ctid::text
        """  # noqa: S608 - constants
        ((row,),) = self.execute(change, value(before), self.experiment, row)
        try:
            yield
        finally:
            self.execute(change, before, self.experiment, row)

    @contextmanager
    def without(self, table, where="true"):
        """Delete rows during the block."""
        rows = f"{table} WHERE experiment_id = %s AND {where}"
        self.execute(f"CREATE TABLE kept AS SELECT * FROM {rows}", self.experiment)  # noqa: S608 - constants
        self.execute(f"DELETE FROM {rows}", self.experiment)  # noqa: S608 - constants
        try:
            yield
        finally:
            self.execute(f"INSERT INTO {table} SELECT * FROM kept")  # noqa: S608 - constants
            self.execute("DROP TABLE kept")


@pytest.fixture(scope="module")
def stored(servers, shared_settings, shared_application):
    url = shared_settings.database_url.get_secret_value()
    workspace = new_workspace(url)
    api = ApiClient(shared_application, workspace.owner_token)
    experiment = api.new_experiment(name="checked")
    database = Database(url, 2)
    job = Job(api, experiment, database, workspace.workspace_id)
    try:
        steps = np.arange(POINTS)
        bulk = packed_scalars("bulk", steps, np.sin(steps / 7), np.full(POINTS, 900.0))
        job.write("file0", 900.0, bulk)
        for number in range(2):  # the second supersedes the first
            time = 1000.0 * (number + 1)
            sent = (
                scalars("loss", range(200), wall_times=[time] * 200),
                texts("note", range(9), [b"a text"] * 9, [time] * 9),
                images("image", range(3), [[IMAGE], [b"GIF89a"], [IMAGE, b"BM"]], [time] * 3),
            )
            job.write(f"file{number + 1}", time, *sent)
        job.compact()
        more = (scalars("few", range(20)), scalars("inline", [1, 2]))
        api.write(experiment, segment(stream("other"), 0, 9, *more))
    finally:
        database.close()
    plain = s3_client(shared_settings)
    yield Stored(servers, shared_settings, plain, workspace.workspace_id, experiment, api)
    plain.close()


def flip(at):
    """Return a function that flips the bits of one byte."""
    return lambda data: data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def rewrite(change):
    """Return a function that changes the points of a block."""
    return lambda data: compress(change(unpack(data)))


def test_check_of_undamaged_service_is_sound(stored):
    findings = stored.check(only=None, skips_objects=False, reads_content=True)
    assert findings.damage == []
    assert findings.looked.experiments == 1
    assert findings.looked.points == POINTS + 200 + 20 + 2 + 9 + 3
    assert findings.looked.blobs == 3
    tables = ("scalar_blocks", "scalar_tail", "superseded_blocks", "superseded_tensors")
    counts = [
        stored.execute(f"SELECT count(*) FROM {table} WHERE experiment_id = %s", stored.experiment)  # noqa: S608 - constants
        for table in tables
    ]
    assert all(count > 0 for ((count,),) in counts)  # what the tests below damage is there


BLOCKS = {
    "scalar_blocks": "level = 0",
    "superseded_blocks": "true",
    "scalar_tail": "NOT is_packed",
}


@pytest.mark.parametrize(("table", "at"), [("scalar_blocks", 20), ("superseded_blocks", -1)])
def test_check_finds_damaged_byte_of_compressed_block(stored, table, at):
    with stored.changed(table, "data", flip(at), BLOCKS[table]):
        (damage,) = stored.check().damage
    assert damage.kind == "unpack"
    assert table in damage.detail
    assert re.search(r"block \d+ .*does not match its checksum", damage.detail)


def test_check_names_format_that_it_does_not_know(stored):
    with stored.changed("scalar_blocks", "data", lambda data: b"\7" + data[1:], "level = 0"):
        (damage,) = stored.check().damage
    assert "format 7, which a newer tbhub made" in damage.detail


@pytest.mark.parametrize(
    ("table", "at"), [("scalar_blocks", 0), ("superseded_blocks", 3), ("scalar_blocks", -1)]
)
def test_check_finds_damage_of_packed_block(stored, table, at):
    def damage(data):
        packed = pack(unpack(data))
        return flip(at)(packed) if at >= 0 else packed[:at]

    with stored.changed(table, "data", damage, BLOCKS[table]):
        assert stored.kinds() == ["unpack"]


def test_series_beside_damaged_block_stay_readable(stored):
    path = f"/experiments/{stored.experiment}/scalars/data?sampling=all&tag=loss"
    before = stored.api.request("GET", path)
    with stored.changed("scalar_blocks", "data", flip(-1), "level = 0"):
        after = stored.api.request("GET", path)
    assert after.status_code == 200
    assert after.json() == before.json() != {}


@pytest.mark.parametrize("table", BLOCKS)
def test_check_finds_block_that_was_cut(stored, table):
    with stored.changed(table, "data", lambda data: data[:-1], BLOCKS[table]):
        assert stored.kinds() == ["unpack"]


def test_check_finds_block_with_wrong_steps(stored):
    def shift(points):
        return ScalarPoints(points.steps + 1, points.wall_times, points.values)

    with stored.changed("scalar_blocks", "data", rewrite(shift), "level = 0"):
        assert set(stored.kinds()) == {"order", "level"}


def test_check_finds_thinned_copy_with_other_value(stored):
    def negate(points):
        return ScalarPoints(points.steps, points.wall_times, -points.values)

    with stored.changed("scalar_blocks", "data", rewrite(negate), "level = 1"):
        assert stored.kinds() == ["level"]


def test_check_finds_missing_rows_of_points(stored):
    with stored.without("scalar_blocks", "level = 2"):
        assert stored.kinds() == ["level"]
    with stored.without("scalar_tail"):
        assert "count" in stored.kinds()
    with stored.without("tensor_points", "step = 3"):
        assert stored.kinds() == ["count"]


COUNTERS = {
    "count": ("data_class = 1 AND sealed_count > 0", ["count"]),
    "sealed_count": ("sealed_count > 0", ["count"]),
    "tail_rows": ("tail_rows > 0", ["count"]),
    "last_step": ("data_class = 1 AND sealed_count > 0", ["order"]),
}


@pytest.mark.parametrize("column", COUNTERS)
def test_check_finds_counter_that_is_wrong(stored, column):
    where, kinds = COUNTERS[column]
    with stored.changed("time_series", column, lambda count: count - 1, where):
        assert stored.kinds() == kinds


@pytest.mark.parametrize("table", ["tensor_points", "superseded_tensors"])
def test_check_finds_tensor_that_does_not_unpack(stored, table):
    with stored.changed(table, "data", lambda data: data[:-1]):
        assert stored.kinds() == ["unpack"]


@pytest.mark.parametrize("table", ["blob_points", "superseded_blobs"])
def test_check_finds_point_in_wrong_place_of_order(stored, table):
    with stored.changed(table, "sample_key", lambda key: key ^ 1):
        assert stored.kinds() == ["sample_order"]


@pytest.mark.cluster
def test_check_finds_experiment_without_its_counter(stored):
    with stored.without("experiment_counters"):
        (damage,) = stored.check().damage
    assert (damage.kind, "experiment_counters" in damage.detail) == ("reference", True)


@pytest.mark.parametrize("table", ["runs", "tags"])
def test_check_finds_series_without_run_or_tag(stored, table):
    with stored.without(table):
        assert set(stored.kinds()) == {"reference"}


def test_check_finds_points_without_their_series(stored):
    with stored.without("time_series"):
        findings = stored.check()
    tables = {damage.detail.split()[4] for damage in findings.damage}
    assert tables >= {"scalar_blocks", "scalar_tail", "tensor_points", "blob_points"}


def test_check_finds_reference_to_unknown_blob(stored):
    with stored.changed("blob_points", "digests", lambda digests: [bytes(32), *digests[1:]]):
        (damage,) = stored.check().damage
    assert (damage.kind, "0" * 64 in damage.detail) == ("reference", True)


def test_check_finds_lost_and_damaged_objects(stored):
    plain, bucket = stored.plain, stored.settings.s3_bucket
    listed = plain.list_objects_v2(Bucket=bucket)["Contents"]
    key, size = listed[0]["Key"], listed[0]["Size"]
    content = plain.get_object(Bucket=bucket, Key=key)["Body"].read()

    def kinds(**options):
        return stored.kinds(only=None, skips_objects=False, **options)

    try:
        plain.delete_object(Bucket=bucket, Key=key)
        assert kinds() == ["object_missing"]
        plain.put_object(Bucket=bucket, Key=key, Body=content + b"x")
        assert kinds() == ["object_size"]
        plain.put_object(Bucket=bucket, Key=key, Body=bytes(size))
        assert (kinds(), kinds(reads_content=True)) == ([], ["object_content"])
    finally:
        plain.put_object(Bucket=bucket, Key=key, Body=content)
    assert kinds(reads_content=True) == []


def test_check_lists_orphans_once_they_are_old(stored, monkeypatch):
    plain, bucket = stored.plain, stored.settings.s3_bucket
    key = f"{stored.workspace_id}/{'0' * 64}"
    plain.put_object(Bucket=bucket, Key=key, Body=b"nobody refers to it")
    try:
        young = stored.check(only=None, skips_objects=False)
        monkeypatch.setattr("tbservice.integrity.stored_objects.ORPHAN_SECONDS_MIN", -60)
        old = stored.check(only=None, skips_objects=False)
    finally:
        plain.delete_object(Bucket=bucket, Key=key)
    assert (young.orphan_keys, young.damage) == ([], [])
    assert (old.orphan_keys, old.looked.orphan_bytes, old.damage) == ([key], 19, [])


def test_check_of_busy_service_is_sound(stored, shared_application):
    """Uploads, compaction and repeats go on meanwhile, in the same experiment."""
    url = stored.settings.database_url.get_secret_value()
    api = ApiClient(shared_application, new_workspace(url).owner_token)
    experiment = api.new_experiment(name="busy")
    stopping, has_written = threading.Event(), threading.Event()

    def upload():
        number = 0
        while not stopping.is_set():
            steps = range(number * 500, number * 500 + 1_500)  # 1,000 of them again and again
            sent = (
                scalars("loss", steps),
                packed_scalars("bulk", range(number * 9_000, number * 9_000 + 9_000)),
                images("image", [number], [[b"image %d" % number]]),
            )
            api.write(experiment, segment(stream(), number, number + 1, *sent))
            has_written.set()
            number += 1

    thread = threading.Thread(target=upload)
    thread.start()
    try:
        assert has_written.wait(60)
        damage, points = [], 0
        for _ in range(2):
            findings = stored.check(only=None, skips_objects=False, reads_content=True)
            damage += findings.damage
            points = findings.looked.points
    finally:
        stopping.set()
        thread.join()
    assert damage == []
    assert points > POINTS + 9_000


def test_check_command_says_what_is_damaged(stored, maintenance_command):
    run = maintenance_command(stored.settings)
    with stored.changed("time_series", "count", lambda count: count + 1, "sealed_count > 0"):
        code, out, _ = run("check", "--json", "--no-objects", "--experiment", stored.experiment)
    document = json.loads(out)
    assert (code, document["is_complete"], document["is_sound"]) == (1, True, False)
    (damage,) = document["damage"]
    assert (damage["kind"], damage["experiment_id"]) == ("count", stored.experiment)

    code, out, _ = run("check", "--after", stored.experiment)
    assert (code, "nothing damaged" in out) == (0, True)
    code, out, _ = run("check", "--after", "zzz")
    assert (code, out.startswith("0 experiments")) == (0, True)


def test_check_of_unknown_experiment_is_refused(stored):
    with pytest.raises(NotFound, match=r"no experiment nothing"):
        stored.check(only="nothing")


def test_check_command_that_cannot_run_says_so(stored, maintenance_command):
    settings = stored.settings.model_copy(update={"s3_endpoint": "http://127.0.0.1:9"})
    code, out, error = maintenance_command(settings)("check", "--quiet")
    assert (code, out, "object store" in error) == (2, "", True)
