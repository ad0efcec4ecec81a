"""Secrets that are replaced while the service runs, as docs/operations.md says."""

from __future__ import annotations

import json
import re
import signal
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy import make_url
from starlette.testclient import TestClient

from support.batches import ApiClient, images, scalars, segment, stream
from support.openid import openid_provider, path_and_query
from support.servers import database_name, http_client, live_service, s3_client
from support.waiting import wait_until
from tbservice.local.embedded import seaweedfs
from tbservice.local.embedded.data_directory import DataDirectory
from tbservice.local.embedded.ports import choose_ports
from tbservice.server.app import create_app

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
LOGINS = ("tbhub_green", "tbhub_blue")

pytestmark = pytest.mark.plain("roles are made on one server")


@pytest.fixture
def as_superuser(servers, database_url):
    """Execute the SQL of one of the page's commands, with a password in place of PASSWORD."""

    def execute(beginning, login):
        (command,) = re.findall(
            rf'^psql --command "({beginning}.*)"$', OPERATIONS.read_text(), re.MULTILINE
        )
        for part in command.split('" --command "'):
            superuser.execute(part.replace("tbhub_blue", login))

    (superuser,) = servers.superusers(database_name(database_url))
    with superuser:
        superuser.autocommit = True
        yield execute
        for login in LOGINS:
            superuser.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(login)))


@contextmanager
def host_of(settings, login, log):
    """Run a service that logs in to PostgreSQL so; yield a client of it."""
    url = make_url(settings.database_url.get_secret_value())
    url = url.set(username=login, password="PASSWORD")
    address = SecretStr(url.render_as_string(hide_password=False))
    with host(settings.model_copy(update={"database_url": address}), log) as client:
        yield client


@contextmanager
def host(settings, log):
    """Run a service; yield a client of it."""
    with (
        live_service(settings, log) as service,
        http_client(service.url) as client,
    ):
        yield client


def test_password_of_database_is_replaced_while_hosts_serve(
    settings, owner_token, as_superuser, tmp_path
):
    green, blue = LOGINS
    as_superuser("CREATE ROLE tbhub_blue", green)
    with ExitStack() as old, ExitStack() as new:
        first = ApiClient(old.enter_context(host_of(settings, green, tmp_path / "1")), owner_token)
        experiment = first.new_experiment(scalars("loss", [0]))

        as_superuser("CREATE ROLE tbhub_blue", blue)
        second = ApiClient(new.enter_context(host_of(settings, blue, tmp_path / "2")), owner_token)
        first.write(experiment, segment(stream(), 9, 18, scalars("loss", [1])))
        old.close()
        as_superuser("ALTER ROLE tbhub_blue NOLOGIN", green)
        second.write(experiment, segment(stream(), 18, 27, scalars("loss", [2])))
        assert second.get(experiment, "scalars/data")["train"]["loss"]["steps"] == [0, 1, 2]
        assert second.request("PATCH", f"/experiments/{experiment}", json={"name": "x"}).is_success

    with pytest.raises(AssertionError, match="not permitted to log in"):
        old.enter_context(host_of(settings, green, tmp_path / "3"))


class ObjectStoreOfTwoKeys(seaweedfs.SeaweedFS):
    """A server whose keys are those of a file, which it reads again at SIGHUP."""

    def __init__(self, path):
        ports = choose_ports(seaweedfs.PORTS, {}, seaweedfs.is_port_usable)
        self.directory = DataDirectory.open(path / "s3")
        super().__init__(self.directory, ports)
        self.old, self.new = self.directory.secrets.s3_access_key, "NEWKEY"
        self.file = path / "keys.json"

    def write_keys(self, *keys):
        secret = self.directory.secrets.s3_secret_key
        credentials = [{"accessKey": key, "secretKey": secret} for key in keys]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "tbhub", "credentials": credentials, "actions": actions}
        self.file.write_text(json.dumps({"identities": [identity]}))

    def settings(self, settings, key):
        secret = SecretStr(self.directory.secrets.s3_secret_key)
        values = {"s3_endpoint": self.endpoint, "s3_access_key": SecretStr(key)}
        return settings.model_copy(update={**values, "s3_secret_key": secret})

    def _options(self):
        return [*super()._options(), f"-s3.config={self.file}"]

    def _environment(self):
        kept = super()._environment().items()
        return {name: value for name, value in kept if not name.startswith("AWS_")}


@pytest.fixture
def store(tmp_path):
    """A running object store that knows an old and a new key."""
    store = ObjectStoreOfTwoKeys(tmp_path)
    store.write_keys(store.old, store.new)
    store.process = store.start()
    store.wait_ready(store.process)
    yield store
    store.process.stop()
    store.remove_sockets()
    store.directory.close()


def is_refused(settings):
    with closing(s3_client(settings)) as client:
        try:
            client.list_objects_v2(Bucket=settings.s3_bucket)
        except ClientError as error:
            return error.response["Error"]["Code"] == "InvalidAccessKeyId"
    return False


def test_key_of_object_store_is_replaced_while_hosts_serve(settings, owner_token, store, tmp_path):
    old_settings, new_settings = (store.settings(settings, key) for key in (store.old, store.new))
    contents = [bytes([number]) * 999 for number in range(3)]

    def write(api, number):
        image = images("cat", [number], [[contents[number]]])
        return api.send(experiment, segment(stream(), number, number + 1, image))

    with ExitStack() as old, ExitStack() as new:
        first = ApiClient(old.enter_context(host(old_settings, tmp_path / "1")), owner_token)
        experiment = first.new_experiment()
        assert write(first, 0).is_success
        second = ApiClient(new.enter_context(host(new_settings, tmp_path / "2")), owner_token)
        assert write(first, 1).is_success
        old.close()
        store.write_keys(store.new)
        store.process._process.send_signal(signal.SIGHUP)
        wait_until(lambda: is_refused(old_settings))
        assert write(second, 2).is_success
        read = second.get(experiment, "blob_sequences/data")["train"]["cat"]
        assert read["steps"] == [0, 1, 2]

    with pytest.raises(AssertionError, match="403"):
        old.enter_context(host(old_settings, tmp_path / "3"))


def test_secret_of_provider_is_replaced_while_hosts_serve(settings):
    new_secret = "the new secret, of 32 characters or more"
    with openid_provider("local", new_secret=new_secret) as provider, ExitStack() as hosts:
        old, new = (
            hosts.enter_context(
                TestClient(
                    create_app(
                        type(settings).model_validate(
                            {
                                **settings.model_dump(),
                                "oidc_providers": [provider.settings | secret],
                            }
                        )
                    )
                )
            )
            for secret in ({}, {"client_secret": new_secret})
        )

        def sign_in(begun_at, ended_at):
            form = {"data": {"next": "/me"}, "headers": {"Sec-Fetch-Site": "same-origin"}}
            begun = begun_at.post("/sign-in/oidc/local", **form, follow_redirects=False)
            ended_at.cookies.update(begun_at.cookies)
            address = provider.sign_in(begun.headers["location"], "alice")
            return ended_at.get(path_and_query(address), follow_redirects=False).status_code

        assert sign_in(old, old) == sign_in(old, new) == sign_in(new, old) == 303
        provider.end_old_secret()
        assert sign_in(new, new) == 303
        assert sign_in(old, old) >= 400
