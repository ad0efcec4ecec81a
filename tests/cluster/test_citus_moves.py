"""A database moves from plain PostgreSQL to a cluster and back, and is written in both."""

from __future__ import annotations

import pytest

from support.batches import ApiClient, images, packed_scalars, scalars, segment, stream, texts
from support.citus import APPLICATION, OWNER, create_database
from support.servers import new_owner
from tbservice.db import migrate

pytestmark = pytest.mark.cluster

PASSES = 3


@pytest.fixture
def open_api(servers, run_application):
    """Return the API of an application on a database, for one token."""
    opened = []

    def open_(url, token):
        settings = servers.settings(url)
        client = run_application(settings.__enter__())
        opened.append((client, settings))
        return ApiClient(client.__enter__(), token)

    yield open_
    for client, settings in reversed(opened):
        client.__exit__(None, None, None)
        settings.__exit__(None, None, None)


@pytest.fixture
def plain_database(servers):
    """Create an empty database of plain PostgreSQL by name; return its URL."""
    names = []

    def create(name):
        with servers.plain.connect("postgres") as db:
            db.execute(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE template0")
        names.append(name)
        return servers.plain.url(name)

    yield create
    for name in names:
        with servers.plain.connect("postgres") as db:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")


def write_more(api, experiment, turn):
    """Add a run, points to series that are there, and packed blocks."""
    start = turn * 100
    steps = range(turn * 3000, turn * 3000 + 3000)
    for pass_ in range(PASSES):
        at = (turn * PASSES + pass_) * 10
        api.write(
            experiment,
            segment(stream(), at, at + 10, scalars("loss", [at, at + 1])),
            segment(stream(f"run{turn}"), pass_ * 10, pass_ * 10 + 10, scalars("new", [pass_])),
        )
    api.write(experiment, segment(stream("packed"), start, start + 100, packed_scalars("p", steps)))
    api.write(experiment, segment(stream("text"), start, start + 100, texts("t", [turn], [b"a"])))
    api.write(
        experiment, segment(stream("image"), start, start + 100, images("i", [turn], [[b"png"]]))
    )


def read_all(api, experiment):
    """Return what is shown of the experiment."""
    return [
        api.get(experiment, "scalars/data", downsample=1_000_000),
        [run["run"] for run in api.get(experiment, "runs")["runs"]],
        api.get(experiment, "streams"),
    ]


def superuser_url(servers, database):
    """Row-level security binds the owner of a plain database, so that it cannot dump it."""
    with servers.plain.connect(database) as superuser:
        return f"{superuser.info.dsn} password={superuser.info.password}"


def dump(cluster, superuser_url, file):
    cluster.run_program("pg_dump", "--format=custom", f"--file={file}", f"--dbname={superuser_url}")


def restore(cluster, url, file, directory):
    entries = cluster.run_program("pg_restore", "--list", file).splitlines()
    listed = directory / "entries"
    listed.write_text("\n".join(line for line in entries if "EXTENSION" not in line))
    arguments = (
        "--no-owner",
        f"--role={OWNER}",
        "--no-privileges",
        "--exit-on-error",
        f"--use-list={listed}",
    )
    cluster.run_program("pg_restore", *arguments, f"--dbname={url}", file)


def test_tables_that_are_not_distributed_yet_are_written(
    cluster, open_api, plain_database, request
):
    with cluster.connect("postgres") as db:
        create_database(db, "extended", None)
    request.addfinalizer(lambda: cluster.drop_database("extended"))
    read = []
    urls = (cluster.url("extended", role=OWNER), plain_database("unextended"))
    for url, is_of_cluster in zip(urls, (True, False), strict=True):
        migrate.upgrade(url)
        token = new_owner(url)
        experiment = open_api(url, token).new_experiment(name="before the extension")
        if is_of_cluster:
            with cluster.connect("extended") as db:
                db.execute("CREATE EXTENSION citus")
        api = open_api(url, token)
        write_more(api, experiment, 0)
        write_more(api, experiment, 1)
        read.append(read_all(api, experiment)[:2])
    assert read[0] == read[1]


def test_database_moves_in_and_out_and_is_written(
    cluster, servers, open_api, plain_database, tmp_path
):
    plain = plain_database("moving_in")
    migrate.upgrade(plain)
    token = new_owner(plain)
    api = open_api(plain, token)
    experiment = api.new_experiment(name="moves")
    write_more(api, experiment, 0)
    before = read_all(api, experiment)

    dump(cluster, superuser_url(servers, "moving_in"), tmp_path / "in.dump")
    cluster.make_database("moved", None)
    try:
        restore(cluster, cluster.url("moved", role="postgres"), tmp_path / "in.dump", tmp_path)
        migrate.upgrade(cluster.url("moved", role=OWNER))
        assert migrate.upgrade(cluster.url("moved", role=OWNER)) == []
        moved = open_api(cluster.url("moved", role=APPLICATION), token)
        assert read_all(moved, experiment) == before
        write_more(moved, experiment, 1)
        other = moved.new_experiment(name="made on the cluster")
        write_more(moved, other, 0)
        on_cluster = [read_all(moved, each) for each in (experiment, other)]
        assert on_cluster[0][1][-1] == "run1" or "run1" in on_cluster[0][1]
        dump(cluster, cluster.url("moved", role="postgres"), tmp_path / "out.dump")
    finally:
        cluster.drop_database("moved")

    home = plain_database("moving_out")
    restore(cluster, superuser_url(servers, "moving_out"), tmp_path / "out.dump", tmp_path)
    migrate.upgrade(home)
    returned = open_api(home, token)
    assert [read_all(returned, each) for each in (experiment, other)] == on_cluster
    for each, turn in ((experiment, 2), (other, 1)):
        write_more(returned, each, turn)
        assert f"run{turn}" in read_all(returned, each)[1]

    with servers.plain.connect("moving_out") as db:
        same = "SELECT tablename, policyname, cmd, qual, with_check FROM pg_policies ORDER BY 1, 2"
        keys = (
            "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE contype = 'f' ORDER BY 1, 2"
        )
        views = (
            "SELECT viewname, definition FROM pg_views WHERE schemaname = 'link_views' ORDER BY 1"
        )
        schema = [db.execute(query).fetchall() for query in (same, keys, views)]
    with servers.plain.connect("moving_in") as db:
        assert schema == [db.execute(query).fetchall() for query in (same, keys, views)]
