"""Errors of `tbupload` for addresses where no tbhub server is, and for requests that one refuses."""

from __future__ import annotations

import io
import os
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from support.faulty_server import Reply, faulty_server, refusal
from support.tls_proxy import tls_proxy
from tbupload.cli import main
from tbupload.http.http_errors import certificate_error

PAGE = b"<!DOCTYPE html><title>Welcome to nginx!</title>"
S3 = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>"

ELSEWHERE = [
    pytest.param(Reply(200, PAGE), "not one of a tbhub server", id="a web page"),
    pytest.param(Reply(200, b'{"hello": "world"}'), "not one of a tbhub server", id="other JSON"),
    pytest.param(Reply(200, b"[]"), "not one of a tbhub server", id="no object"),
    pytest.param(Reply(404, PAGE), "not as a tbhub server does", id="nginx without the page"),
    pytest.param(Reply(403, S3), "not as a tbhub server does", id="S3"),
    pytest.param(Reply(401, PAGE), "a proxy that wants a sign-in", id="a proxy with passwords"),
    pytest.param(Reply(405, PAGE), "not as a tbhub server does", id="static files"),
    pytest.param(Reply(404, b'{"detail": "x"}'), "not as a tbhub server does", id="other API"),
    pytest.param(
        Reply(302, b"", {"Location": "https://sso.example/login?next=/"}),
        "a proxy before the server wants it",
        id="a page to sign in",
    ),
    pytest.param(
        Reply(302, b"", {"Location": "/login"}), "a page to sign in", id="a relative redirect"
    ),
    pytest.param(Reply(302, b"", {"Location": "http://[/"}), "redirects to", id="a bad redirect"),
]

COMMANDS = (
    ("show", "abc"),
    ("list",),
    ("open", "abc"),
    ("whoami",),
    ("delete", "abc", "--yes"),
    ("share", "abc"),
    ("share", "revoke", "abc", "l1"),
    ("token", "revoke", "t1"),
    ("create", "--name", "x"),
    ("export", "--experiment", "abc", "--output", "OUT"),
    ("tail", "abc", "--retry-timeout", "1"),
)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command; return its exit code, stdout and stderr."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("TBHUB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TBHUB_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("TBHUB_TOKEN", "tbh_secret")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def server():
    with faulty_server() as server:
        yield server


@pytest.mark.parametrize(("reply", "said"), ELSEWHERE)
def test_other_server_is_recognized(run, server, reply, said):
    """One of the replies by every command."""
    server.replies = [reply]
    for arguments in COMMANDS if reply.status == 405 else COMMANDS[:1]:
        code, out, err = run("--server", server.url, *arguments)
        assert (code, out) == (1, ""), err
        assert said in err
        assert urlsplit(server.url).netloc in err
        assert "no such experiment" not in err
        assert "Traceback" not in err
        assert err.count("tbupload: ") == 1


def test_redirect_of_same_path_is_address_to_use(run, server):
    server.replies = [
        Reply(301, b"", {"Location": "https://tbhub.example/x/api/v1/experiments/abc?details=true"})
    ]
    code, _, err = run("--server", server.url, "show", "abc")
    assert code == 1
    assert "use --server https://tbhub.example/x\n" in err


def test_address_with_path_of_the_api_says_so(run, server):
    server.replies = [Reply(404, b'{"code": "not_found", "detail": "Not Found"}')]
    for path in ("/api", "/api/v1/"):
        code, _, err = run("--server", f"{server.url}{path}", "list")
        assert (code, f"try --server {server.url}\n" in err) == (1, True)
    assert "try --server" not in run("--server", server.url, "list")[2]


def test_https_to_server_without_tls_says_so(run, server):
    server.replies = [Reply(200, PAGE)]
    address = server.url.replace("http:", "https:")
    code, _, err = run("--server", address, "list")
    assert code == 1
    assert f"does not speak TLS: use --server {server.url}\n" in err
    assert "--cacert" not in err


def test_http_to_server_with_tls_says_so(run, server, tmp_path):
    with tls_proxy(urlsplit(server.url).port, tmp_path) as proxy:
        code, _, err = run("--server", proxy.url.replace("https:", "http:"), "list")
    assert code == 1
    assert f"speaks TLS: use --server {proxy.url}\n" in err


@pytest.mark.parametrize(
    ("answer", "why"),
    [(b"5.7 mysql_native_password\r\n", "("), (b"", "(Remote end closed connection without")],
)
def test_port_of_something_else_is_no_traceback(run, answer, why):
    """Something answers that is neither HTTP nor TLS, as a database does, or ends at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for _ in range(20):
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                with connection, suppress(OSError):  # also "not connected": the client was quicker
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    # A close before the request's body has come, a packet of its own, is a reset.
                    while connection.recv(10_000):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        code, _, err = run("--server", url, "tail", "abc", "--retry-timeout", "0.2")
    assert code == 75
    assert f"the connection broke {why}" in err


def test_refused_connection_ends_command_that_reads(run):
    code, _, err = run("--server", "http://127.0.0.1:1", "tail", "abc")  # which retries for ever
    assert (code, "--server, `tbupload login`" in err) == (75, True)


def test_addresses_without_server_say_what_to_check(run, monkeypatch):
    tail = ("tail", "abc", "--retry-timeout", "0.2")
    code, _, err = run("--server", "http://127.0.0.1:1", *tail)
    assert code == 75
    assert "cannot connect (Connection refused); check the address" in err
    code, _, err = run("--server", "http://no-such-host.invalid", *tail)
    assert code == 75
    assert "no such host; check the address and the network" in err
    monkeypatch.setenv("http_proxy", "http://user:word@127.0.0.1:1")
    code, _, err = run("--server", "http://tbhub.example", *tail)
    assert code == 75
    assert "the proxy 127.0.0.1:1 does not answer (cannot connect (Connection refused)" in err
    assert "word" not in err


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("tbhub.example", "it should look like https://"),
        ("ftp://tbhub.example", "it should look like https://"),
        ("http://user:pw@tbhub.example", "it should look like https://"),
        ("http://h/experiment/abc/", "that of its server is http://h"),
        ("http://h:99999", "it should look like https://"),
        ("http://\x1b[2J", "it should look like https://"),
    ],
)
def test_address_that_is_none_is_usage_error(run, monkeypatch, server, said):
    code, out, err = run("--server", server, "list")
    assert (code, out) == (2, "")
    assert said in err
    assert "\x1b" not in err
    if "\0" not in server:
        monkeypatch.setenv("TBHUB_SERVER", server)
        assert "TBHUB_SERVER: " in run("list")[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("certificate has expired", "its certificate has expired"),
        ("Hostname mismatch, certificate is not valid for 'x'", "for another name"),
        ("certificate is not yet valid", "clock"),
        ("self-signed certificate in certificate chain", "--cacert"),
        ("unable to get local issuer certificate", "--cacert"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "use --server http://x"),
        ("[SSL] record layer failure (_ssl.c:1006)", "use --server http://x"),
    ],
)
def test_failed_handshakes_have_advice_of_their_own(text, said):
    assert said in str(certificate_error("https://x", OSError(text)))


def test_file_without_certificates_is_usage_error(run, tmp_path):
    (tmp_path / "file").write_text("no certificate")
    for name, said in (("file", "it has no certificates"), ("none", "no such file")):
        code, _, err = run("--server", "https://x", "--cacert", name, "list")
        assert code == 2
        assert said in err


def test_missing_token_is_said_to_be_missing(run, server, monkeypatch):
    server.replies = [refusal(401, "unauthenticated")]
    assert "may have expired or been revoked" in run("--server", server.url, "list")[2]
    monkeypatch.delenv("TBHUB_TOKEN")
    err = run("--server", server.url, "list")[2]
    assert f"there is no token for {server.url}: run `tbupload login --server" in err


@pytest.mark.parametrize(
    "words",
    [
        ("share", "revoke", "abc", "x1"),
        ("share", "abc", "--revoke", "x1"),
        ("share", "rename", "abc", "x1", "label"),
    ],
    ids=" ".join,
)
def test_unknown_link_is_named_with_how_to_find_it(run, server, words):
    server.replies = [refusal(404, "not_found")]
    code, _, err = run("--server", server.url, *words)
    assert code == 1
    assert "there is no link or token x1" in err
    assert "tbupload share list abc" in err


@pytest.mark.parametrize("secret", ["tbh_abcdef", "http://x/experiment/abc/?token=tbh_abcdef"])
def test_secret_of_link_is_no_id_and_not_repeated(run, server, secret):
    before = len(server.requests)
    code, _, err = run("--server", server.url, "share", "abc", "--revoke", secret)
    assert code == 2
    assert "tbh_" not in err
    assert "tbupload share list abc" in err
    assert len(server.requests) == before


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        (
            "body.name: String should have at most 200 characters",
            "name: at most 200 characters are accepted (HTTP 422)",
        ),
        (
            "there is no such experiment, or it is not yours",
            "there is no experiment abc, or it is not yours (HTTP 422)",
        ),
        ("a\x1b]0;b\x07\nc", "a\\x1b]0;b\\x07\\nc (HTTP 422)"),
    ],
)
def test_refusal_says_first_what_people_have_to_know(run, server, detail, said):
    server.replies = [refusal(422, "invalid", detail=detail)]
    assert run("--server", server.url, "show", "abc")[2] == f"tbupload: {said}\n"


def test_tokens_of_workspace_are_mentioned_to_machines(run, server):
    server.replies = [refusal(403, "forbidden")]
    assert "add --workspace ID" in run("--server", server.url, "token", "list")[2]
    assert (
        "add --workspace" not in run("--server", server.url, "token", "list", "--workspace", "1")[2]
    )


def test_config_file_that_cannot_be_used_is_usage_error(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TBHUB_CONFIG", str(tmp_path))
    code, _, err = run("list")
    assert code == 2
    assert "cannot be read" in err
    (tmp_path / "text").write_text("no toml")
    monkeypatch.setenv("TBHUB_CONFIG", str(tmp_path / "text"))
    code, _, err = run("list")
    assert code == 2
    assert "is not a config file in TOML" in err


def test_login_without_place_for_token_is_no_traceback(run, server, monkeypatch):
    monkeypatch.setenv("TBHUB_CONFIG", "/proc/nothing/config.toml")
    monkeypatch.setattr("sys.stdin", io.StringIO("tbh_new\n"))
    server.replies = [Reply(200, b'{"experiments": [], "next": null}')]
    code, _, err = run("login", "--server", server.url)
    assert code == 1
    assert "/proc/nothing/config.toml cannot be written" in err
    assert "TBHUB_CONFIG names another file" in err
