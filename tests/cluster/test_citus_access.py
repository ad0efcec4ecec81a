"""Who sees what on a cluster: share links, the two roles, and what is refused there."""

from __future__ import annotations

import psycopg
import pytest
from pydantic import SecretStr

from support.batches import ApiClient, scalars, segment, stream
from support.citus import OWNER
from support.servers import database_name, new_workspace
from support.share_links import make_link, reader_of
from tbservice.db import migrate
from tbservice.db.cluster import citus
from tbservice.db.database import Database
from tbservice.db.schema import SchemaMismatch, check_schema
from tbservice.errors import StartupError
from tbservice.server import maintenance
from tbservice.throttle import Progress, Throttle

pytestmark = pytest.mark.cluster


@pytest.fixture
def experiments(client, owner_token, database, cluster):
    """Experiments on both workers, each with the runs a/hidden and a/shown."""
    api, nodes, made = ApiClient(client, owner_token), set(), []
    while nodes != set(cluster.ports[1:]):
        experiment = api.new_experiment()
        sent = [segment(stream(run), 0, 9, scalars("loss", [1])) for run in ("hidden", "shown")]
        api.write(experiment, *sent)
        with database.transaction() as db:
            nodes.add(citus.node_of(db, experiment).port)
        made.append(experiment)
        assert len(made) < 30
    return api, made


def test_link_shows_its_slice_on_each_node(client, experiments):
    api, made = experiments
    for experiment, other in zip(made, made[1:] + made[:1], strict=True):
        reader = reader_of(client, make_link(api, experiment, runs="shown"))
        assert list(reader.get(experiment, "scalars/data")) == ["shown"]
        assert reader.request("GET", f"/experiments/{other}/scalars/data").status_code == 404


def test_views_show_rows_of_one_tenant_on_each_node(
    experiments, cluster, database_url, workspace_id
):
    _, made = experiments
    other_id = new_workspace(database_url).workspace_id
    for node in range(cluster.workers + 1):
        url = cluster.url(database_name(database_url), node)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("SET citus.propagate_set_commands = 'local'")
            for reader_id, expected in (("", 0), (other_id, 0), (workspace_id, 2 * len(made))):
                with db.transaction():
                    for name, value in (("workspace_id", reader_id), ("visible_runs", "*")):
                        db.execute(f"SET LOCAL tbhub.{name} = '{value}'")
                    count = db.execute("SELECT count(*) FROM link_views.runs").fetchone()
                assert count == (expected,), (node, reader_id)
    rows = "relkind = 'v' AND relnamespace = 'link_views'::regnamespace"
    for node in range(cluster.workers + 1):
        with cluster.connect(database_name(database_url), node) as db:
            options = db.execute(f"SELECT DISTINCT reloptions FROM pg_class WHERE {rows}")  # noqa: S608 - a constant
            assert options.fetchall() == [(["security_invoker=true"],)]


def test_kept_plan_shows_rows_of_workspace_that_asks(
    experiments, cluster, database_url, workspace_id
):
    _, made = experiments
    other_id = new_workspace(database_url).workspace_id
    tables = ("runs", "experiments", "scalar_tail", "experiment_counters", "members")
    for node in range(cluster.workers + 1):
        url = cluster.url(database_name(database_url), node)
        with psycopg.connect(url, autocommit=True, prepare_threshold=0) as db:
            db.execute("SET plan_cache_mode = force_generic_plan")
            db.execute("SET citus.propagate_set_commands = 'local'")
            seen = []
            for reader_id in (workspace_id, other_id, workspace_id, ""):
                with db.transaction():
                    db.execute(f"SET LOCAL tbhub.workspace_id = '{reader_id}'")
                    counts = [db.execute(f"SELECT count(*) FROM {table}") for table in tables]  # noqa: S608 - constants
                    seen.append([count.fetchone()[0] for count in counts])
            assert seen[0][0] == 2 * len(made)
            assert seen[0][1] == seen[0][3] == len(made)
            assert seen[2] == seen[0]
            assert seen[1] == seen[3] == [0] * len(tables)


def test_rows_of_another_workspace_cannot_be_written(
    experiments, cluster, database_url, workspace_id
):
    _, (experiment, *_) = experiments
    other_id = new_workspace(database_url).workspace_id
    insert = "INSERT INTO tags (experiment_id, workspace_id, name, tag_id) VALUES (%s, %s, 'x', 9)"
    for node in range(cluster.workers + 1):
        url = cluster.url(database_name(database_url), node)
        with psycopg.connect(url) as db:
            db.execute("SET citus.propagate_set_commands = 'local'")
            db.execute(f"SET LOCAL tbhub.workspace_id = '{other_id}'")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                db.execute(insert, (experiment, workspace_id))


def test_migrate_adapts_policies_of_distributed_tables(servers, database_url, cluster):
    query = "SELECT qual FROM pg_policies WHERE tablename = 'runs'"
    with cluster.connect(database_name(database_url)) as db:
        db.execute("ALTER POLICY tenant ON runs USING (workspace_id = current_workspace())")
        assert migrate.upgrade(servers.owner_url(database_url)) == []
        assert db.execute(query).fetchall() == [("in_current_workspace(workspace_id)",)]
    with cluster.connect(database_name(database_url), node=1) as db:
        db.execute("SET citus.override_table_visibility = off")
        on_shards = "SELECT DISTINCT qual FROM pg_policies WHERE tablename ~ '^runs_[0-9]+$'"
        assert db.execute(on_shards).fetchall() == [("in_current_workspace(workspace_id)",)]


def test_owner_of_tables_may_not_serve(servers, database_url):
    database = Database(servers.owner_url(database_url), 1)
    try:
        with pytest.raises(SchemaMismatch, match=rf"'{OWNER}' owns tables .* '{OWNER}_app'"):
            check_schema(database)
    finally:
        database.close()


def test_backup_and_replica_of_cluster_are_refused(settings, cluster, database_url, tmp_path):
    superuser = cluster.url(database_name(database_url), role="postgres")
    given = settings.model_copy(update={"backup_database_url": SecretStr(superuser)})
    with pytest.raises(StartupError, match=r"cluster .* no dump has one state"):
        maintenance.back_up(given, str(tmp_path), Throttle(None), Progress(None))
    database = Database(database_url, 1, database_url)
    try:
        with pytest.raises(StartupError, match="TBHUB_READ_DATABASE_URL cannot be used"):
            database.check_replica()
    finally:
        database.close()
