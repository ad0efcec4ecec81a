"""The embedded servers refuse clients without their keys: other accounts of the machine, and web
pages.
"""

import contextlib
import http.client
import os
import socket
import stat
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import psutil
import psycopg
import pytest

from support.other_account import IS_OTHER, ask_http, try_as_other
from support.servers import s3_client
from tbservice.local.embedded.ports import GRPC_PORT_OFFSET, LOOPBACK

needs_other_account = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another account"
)
PAGE = {"Origin": "http://pages.example", "Host": "pages.example"}
"""Headers that a browser sends for a page of another site, whose name may even lead to loopback (DNS
rebinding).
"""
KEYS = ("", "none", "own")
CUT_OFF = {
    "SSLError",
    "SSLEOFError",
    "ConnectionResetError",
    "RemoteDisconnected",
    "BrokenPipeError",
}
REFUSED = {*CUT_OFF, 400}
"""400 is Go's answer to any request without TLS on a port that speaks TLS; it looks at nothing of
the request.
"""


def processes(servers):
    """The process of each server, by name."""
    return {child.name: psutil.Process(child._process.pid) for child in servers.instance.children}


def listening(process):
    """Return the addresses and ports where a process and its children accept TCP or UDP."""
    connections = process.net_connections("inet")
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):  # PostgreSQL's come and go
            connections += child.net_connections("inet")
    return {
        connection.laddr
        for connection in connections
        if connection.status == psutil.CONN_LISTEN or not connection.raddr
    }


def inner_ports(servers):
    """Return SeaweedFS's ports other than S3's."""
    ports = {port for _, port in listening(processes(servers)["SeaweedFS"])}
    return sorted(ports - {servers.instance.directory.saved_ports()["s3"]})


def unix_sockets(servers):
    """Return the Unix sockets on which SeaweedFS listens."""
    connections = processes(servers)["SeaweedFS"].net_connections("unix")
    return sorted({connection.laddr for connection in connections if connection.laddr})


def key_file(servers):
    return str(servers.instance.directory.path / "seaweedfs.pem")


def authority(servers):
    """Return the certificate alone, which the server sends to every client."""
    text = (servers.instance.directory.path / "seaweedfs.pem").read_text()
    return text[: text.index("-----BEGIN PRIVATE")]


@pytest.fixture
def settings(servers):
    """Settings with a bucket of this test's own; the database is never used."""
    with servers.settings("postgresql://nowhere/none") as settings:
        yield settings


@pytest.fixture
def stored(settings):
    """The name of a bucket with the object `key`, which must be unchanged at the end."""
    with contextlib.closing(s3_client(settings)) as client:
        client.create_bucket(Bucket=settings.s3_bucket)
        client.put_object(Bucket=settings.s3_bucket, Key="key", Body=b"bytes")
        yield settings.s3_bucket
        assert client.get_object(Bucket=settings.s3_bucket, Key="key")["Body"].read() == b"bytes"


def message(*texts):
    """Return a protobuf message, in hexadecimal, whose fields 1, 2, … are these texts."""
    fields = [
        bytes([number << 3 | 2, len(text)]) + text.encode() for number, text in enumerate(texts, 1)
    ]
    return b"".join(fields).hex()


def test_embedded_servers_listen_where_they_should(servers):
    ports = servers.instance.directory.saved_ports()
    addresses = {name: listening(process) for name, process in processes(servers).items()}
    assert addresses["PostgreSQL"] == {(LOOPBACK, ports.pop("postgres"))}
    opened = addresses["SeaweedFS"]
    assert opened >= {(LOOPBACK, port) for port in ports.values()}
    (other,) = {port for address, port in opened if address == LOOPBACK} - set(ports.values())
    assert other >= ports["admin"] + GRPC_PORT_OFFSET  # the next one if that is in use
    assert len(opened) == len(ports) + 1


def test_inner_ports_answer_only_with_their_key(servers):
    ports = inner_ports(servers)
    attempts = [("ask_http", port, "GET", "/", {}, key) for key in KEYS for port in ports]
    health = "/grpc.health.v1.Health/Check"
    attempts += [
        ("ask_grpc", port, health, "", key, authority(servers)) for key in KEYS for port in ports
    ]
    given = list(zip(attempts, try_as_other(attempts), strict=True))
    assert not [
        (attempt, answer) for attempt, answer in given if answer not in {*REFUSED, "UNAVAILABLE"}
    ]
    answers = [ask_http(port, "GET", "/", {}, key_file(servers)) for port in ports]
    assert not {*CUT_OFF, "ConnectionRefusedError"} & set(answers)  # with the key, TLS lets one in


def test_inner_http_serves_neither_accounts_nor_pages(servers, stored):
    calls = {
        "master": [
            *(
                "GET /dir/lookup?volumeId=1&read=yes",
                "GET /dir/lookup?fileId=1,01637037d6&read=yes",
                "GET /dir/assign",
            ),
            *(
                "GET /vol/grow?count=1",
                "GET /vol/vacuum",
                "GET /dir/status",
                "GET /cluster/status",
                "POST /submit",
            ),
            f"GET /col/delete?collection={stored}",
        ],
        "volume": [
            "GET /status",
            "GET /ui/index.html",
            "GET /metrics",
            "GET /1,01637037d6",
            "DELETE /1,01637037d6",
        ],
        "filer": [
            *(f"{method} /buckets/{stored}/key" for method in ("GET", "PUT", "DELETE")),
            *(
                "GET /",
                "POST /x",
                "GET /metrics",
                "GET /debug/pprof/",
                f"DELETE /buckets/{stored}?recursive=true",
            ),
        ],
        "admin": [
            "GET /",
            "GET /health",
            "GET /api/cluster/topology",
            "POST /login",
            "GET /metrics",
        ],
    }
    ports = servers.instance.directory.saved_ports()
    attempts = [
        ("ask_http", ports[part], *call.split(), headers, key)
        for part, some in calls.items()
        for call in some
        for headers in ({}, PAGE)
        for key in ("", "none")
    ]
    given = list(zip(attempts, try_as_other(attempts), strict=True))
    assert not [(attempt, answer) for attempt, answer in given if answer not in REFUSED]


def test_inner_grpc_neither_lists_nor_deletes(servers, stored):
    calls = {
        "filer.grpc": [
            ("/filer_pb.SeaweedFiler/ListEntries", message(f"/buckets/{stored}")),
            ("/filer_pb.SeaweedFiler/LookupDirectoryEntry", message(f"/buckets/{stored}", "key")),
            ("/filer_pb.SeaweedFiler/DeleteEntry", message(f"/buckets/{stored}", "key")),
        ],
        "master.grpc": [
            ("/master_pb.Seaweed/VolumeList", ""),
            ("/master_pb.Seaweed/CollectionDelete", message(stored)),
        ],
        "volume.grpc": [("/volume_server_pb.VolumeServer/DeleteCollection", message(stored))],
        "s3.grpc": [("/s3_pb.SeaweedS3IamCache/RemoveIdentity", message("nobody"))],
    }
    ports = servers.instance.directory.saved_ports()
    attempts = [
        ("ask_grpc", ports[part], method, request, key, authority(servers))
        for part, some in calls.items()
        for method, request in some
        for key in ("", "none")
    ]
    given = list(zip(attempts, try_as_other(attempts), strict=True))
    assert not [(attempt, answer) for attempt, answer in given if answer != "UNAVAILABLE"]


def test_s3_gives_nothing_without_signature(servers, stored):
    web_identity = "Version=2011-06-15&RoleArn=arn:aws:iam::1:role/x&RoleSessionName=name&WebIdentityToken=a.b.c"
    calls = [
        *(
            "GET /",
            "PUT /made",
            "GET /tbhub/tbservice-is-ready",
            "GET /buckets",
            "GET /metrics",
            "GET /debug/pprof/",
            "POST /?Action=ListUsers",
        ),
        *(f"{method} /{stored}" for method in ("GET", "HEAD", "DELETE", "POST")),
        *(f"{method} /{stored}/key" for method in ("GET", "HEAD", "PUT", "DELETE")),
        *(f"POST /{stored}/key?uploads", f"POST /{stored}?delete", f"PUT /{stored}?policy"),
        f"POST /?Action=AssumeRoleWithWebIdentity&{web_identity}",
    ]
    port = servers.instance.directory.saved_ports()["s3"]
    attempts = [
        ("ask_http", port, *call.split(), headers, "") for call in calls for headers in ({}, PAGE)
    ]
    given = list(zip(attempts, try_as_other(attempts), strict=True))
    assert not [(attempt, answer) for attempt, answer in given if answer not in {400, 403, 405}]


def test_s3_shows_answers_to_no_page(servers):
    port = servers.instance.directory.saved_ports()["s3"]
    for method in ("GET", "OPTIONS"):
        connection = http.client.HTTPConnection(LOOPBACK, port)
        connection.request(
            method, "/tbhub/x", headers={**PAGE, "Access-Control-Request-Method": "PUT"}
        )
        assert connection.getresponse().getheader("Access-Control-Allow-Origin") is None
        connection.close()


def test_s3_has_no_identity_api(servers):
    port = servers.instance.directory.saved_ports()["s3"]
    assert ask_http(port, "POST", "/?Action=GetCallerIdentity&Version=2011-06-15", {}, "") == 405


def test_unix_sockets_are_for_their_owner(servers):
    sockets = unix_sockets(servers)
    assert sockets
    assert {stat.S_IMODE(Path(path).stat().st_mode) & 0o077 for path in sockets} == {0}
    if IS_OTHER:
        assert set(try_as_other([("connect_unix", path) for path in sockets])) == {
            "PermissionError"
        }


def test_secrets_are_in_no_argument_list(servers):
    arguments = " ".join(
        part for process in processes(servers).values() for part in process.cmdline()
    )
    assert not [
        name
        for name, value in asdict(servers.instance.directory.secrets).items()
        if value in arguments
    ]


@needs_other_account
def test_secrets_are_in_no_file_for_others(servers):
    directory = servers.instance.directory.path
    # Root's PostgreSQL, which has an account of its own, runs a copy where it cannot read the
    # installed one.
    places = [place for place in directory.iterdir() if not place.name.startswith("programs-")]
    files = [*places, *(file for place in places for file in place.glob("*"))]
    files += [f"/proc/{process.pid}/environ" for process in processes(servers).values()]
    assert set(try_as_other([("read_file", str(file)) for file in files])) == {"PermissionError"}


@pytest.mark.plain("is about the PostgreSQL that `tbservice up` starts")
def test_postgres_trusts_no_connection(servers):
    with servers.instance.postgres.connect_as_superuser("postgres") as db:
        assert db.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall() == [
            ("scram-sha-256",)
        ]


@pytest.mark.plain("is about the PostgreSQL that `tbservice up` starts")
@pytest.mark.parametrize("connect", ["service", "superuser"])
def test_postgres_passwords_go_to_no_other_program(servers, monkeypatch, connect):
    """A program that took over the port asks for the password in clear text."""
    password_wanted = b"R" + struct.pack("!ii", 8, 3)  # AuthenticationCleartextPassword
    received = []

    def ask_for_password(listener):
        client, _ = listener.accept()
        with client:
            received.append(client.recv(10_000))
            client.sendall(password_wanted)
            received.append(client.recv(10_000))

    with socket.create_server((LOOPBACK, 0)) as listener, ThreadPoolExecutor() as threads:
        asking = threads.submit(ask_for_password, listener)
        postgres = servers.instance.postgres
        monkeypatch.setattr(postgres, "_port", listener.getsockname()[1])
        monkeypatch.setenv("PGSSLMODE", "disable")  # else it asks for TLS first
        with pytest.raises(psycopg.OperationalError, match="authentication method requirement"):
            psycopg.connect(
                postgres.url()
            ) if connect == "service" else postgres.connect_as_superuser("postgres")
        asking.result()
    assert not received[1]
