"""Secrets that are replaced while the service runs, by the commands of docs/operations.md."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy import make_url

from support.batches import ApiClient, scalars, segment, stream
from support.servers import NO_TLS, database_name, live_service
from support.uploading import SECONDS_MAX
from tbservice.local.embedded.ports import choose_ports

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
    settings = settings.model_copy(
        update={"database_url": SecretStr(url.render_as_string(hide_password=False))}
    )
    port = choose_ports(["service"], {})["service"]
    with (
        live_service(settings, port, log) as service,
        httpx2.Client(
            base_url=service.url, trust_env=False, timeout=SECONDS_MAX, verify=NO_TLS
        ) as client,
    ):
        yield client


def test_password_of_database_is_replaced_while_hosts_serve(
    settings, owner_token, as_superuser, tmp_path
):
    green, blue = LOGINS
    as_superuser("CREATE ROLE tbhub_blue", green)
    with ExitStack() as old, ExitStack() as new:
        first = ApiClient(old.enter_context(host_of(settings, green, tmp_path / "1")), owner_token)
        experiment = first.new_experiment()
        first.write(experiment, segment(stream(), 0, 9, scalars("loss", [0])))

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
