"""The last release and this version, side by side on one database, before and after a migration."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import pytest

from support import event_files
from support.later_migrations import Migrations
from support.releases import LAST_MIGRATION, has_last_release, install_release, release_files
from support.servers import environment_of, live_service, new_owner
from support.uploading import Reader, Uploader, tensorboard_scalars, wait_until
from tbservice.db import migrate, schema_versions

pytestmark = pytest.mark.skipif(
    not has_last_release(), reason="the last release is not in this checkout: git fetch --unshallow"
)

PIXEL = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """An environment with the last release."""
    return install_release(tmp_path_factory.mktemp("release"))


def write(logdir, steps):
    events = [
        event_files.scalar_event(f"loss/{tag}", step, step / 3)
        for step in steps
        for tag in range(5)
    ]
    events += [event_files.image_event("image", step, [PIXEL]) for step in steps[-1:]]
    event_files.write_records(logdir / "run" / "tfevents.1", events, append=True)


class Version:
    """A client with its log directory and, while it runs, a server, of one of the two versions."""

    def __init__(self, name, settings, directory, **python):
        self.name = name
        self.logdir = directory / f"logdir-{name}"
        self._settings = settings
        self._directory = directory
        self._python = python
        self.uploader = None
        self.experiment_id = None

    @contextmanager
    def serve(self, token):
        """Run its server; its client goes there."""
        log = self._directory / f"{self.name}.log"
        with live_service(self._settings, log, **self._python) as live:
            self.uploader = Uploader(live.url, token, self._directory, **self._python)
            # In this process where it is this version's: that takes a tenth of the time.
            self.tbupload = self.uploader.run_process if self._python else self.uploader.run
            self.reader = Reader(live.url, token)
            with self.reader.http:
                yield self

    def upload(self, steps):
        """Write the steps and upload them, to the experiment of before if there is one."""
        write(self.logdir, steps)
        more = ["--experiment", self.experiment_id] if self.experiment_id else []
        ended = self.tbupload("--logdir", self.logdir, "--one-shot", *more)
        assert ended.code == 0, ended.err
        self.experiment_id = ended.experiment_id


def check(versions):
    """Both servers read, and both clients prove, what either has uploaded."""
    for version in versions:
        stored = tensorboard_scalars(version.logdir)
        for other in versions:
            assert other.reader.scalars(version.experiment_id) == stored
            ended = other.tbupload(
                "verify", "--experiment", version.experiment_id, "--logdir", version.logdir
            )
            assert ended.code == 0, ended.out + ended.err


def test_servers_of_two_releases_share_database(
    released, servers, empty_database_url, tmp_path, monkeypatch
):
    migrations = Migrations(tmp_path / "migrations", monkeypatch)
    with servers.settings(empty_database_url) as settings, ExitStack() as running:
        names = released.run("python", "-m", "tbservice", "migrate", **tbhub(settings)).split()
        assert names[-1] == LAST_MIGRATION
        serving = servers.service_settings(settings)
        token = new_owner(serving.database_url.get_secret_value())
        old = Version("old", serving, tmp_path, python=released.python)
        new = Version("new", serving, tmp_path)
        versions = (old, new)
        with old.serve(token):
            running.enter_context(new.serve(token))
            for version in versions:
                version.upload(range(20))

            for version in versions:  # the files grow while the schema does
                write(version.logdir, range(20, 40))
            with ExitStack() as following:
                for version in versions:
                    arguments = (version.logdir, "--experiment", version.experiment_id)
                    following.enter_context(version.uploader.follow(*arguments))
                assert expand(migrations, empty_database_url)
                for version in versions:
                    write(version.logdir, range(40, 60))
                    wait_until(lambda version=version: count(version) == 60)
            check(versions)

        with old.serve(token):  # a server of before that starts on the schema of afterwards
            for version in versions:
                version.upload(range(60, 80))
            check(versions)
            assert released.run("python", "-m", "tbservice", "migrate", **tbhub(settings)) == ""

        # Afterwards this version may store what the other cannot read, which refuses to start.
        migrate.upgrade(empty_database_url, compress_blocks=True)
        with pytest.raises(AssertionError, match="does not work: install a newer version"):
            released.run("python", "-m", "tbservice", "serve", **tbhub(serving))


def expand(migrations, url):
    """Run the migrations that this version adds, and one of each kind."""
    migrations.add(
        "9001_columns",
        "ALTER TABLE time_series ADD COLUMN note text, ADD COLUMN weight integer NOT NULL DEFAULT 1",
        LOCKS={"time_series": "ACCESS EXCLUSIVE"},
    )
    migrations.add(
        "9002_table", 'CREATE TABLE notes (experiment_id text COLLATE "C" NOT NULL, note text)'
    )
    migrations.add(
        "9003_index",
        "DROP INDEX CONCURRENTLY IF EXISTS blocks_by_note",
        "CREATE INDEX CONCURRENTLY blocks_by_note ON scalar_blocks (workspace_id, count)",
        CONCURRENT=True,
        LOCKS={"scalar_blocks": "SHARE UPDATE EXCLUSIVE"},
    )
    return migrate.upgrade(url)


def count(version):
    return version.reader.get(version.experiment_id, "scalars")["run"]["loss/0"]["count"]


def tbhub(settings):
    """The settings as variables, without what an environment has by itself."""
    return {
        name: value for name, value in environment_of(settings).items() if name.startswith("TBHUB_")
    }


def test_released_migrations_are_unchanged():
    directory = schema_versions.find_migrations() / "versions"
    with release_files() as archive:
        members = [
            member
            for member in archive.getmembers()
            if member.isfile() and member.name.startswith("migrations/versions/0")
        ]
        assert max(member.name for member in members).endswith(f"/{LAST_MIGRATION}.py")
        for member in members:
            name = member.name.rpartition("/")[2]
            assert archive.extractfile(member).read() == (directory / name).read_bytes(), name
