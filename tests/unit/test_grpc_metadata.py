"""The metadata and the address of a gRPC call, and the addresses of a forwarder."""

import pytest

from tbservice.api.grpc.metadata import peer_host, read_experiment, read_secret
from tbservice.errors import Unauthenticated
from tbupload.errors import UsageError
from tbupload.forward.addresses import parse_listen, parse_target


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:192.0.2.1:50000", "192.0.2.1"),
        ("ipv6:[2001:db8::1]:50000", "2001:db8::1"),
        ("ipv6:%5B2001:db8::1%5D:50000", "2001:db8::1"),
        ("ipv6:[fe80::1%25eth0]:50000", "fe80::1"),
        ("unix:/run/socket", ""),
        ("unix:", ""),
        ("", ""),
    ],
)
def test_peer_host_is_address_without_port(peer, host):
    assert peer_host(peer) == host


@pytest.mark.parametrize("value", ["Bearer secret", "bearer  secret ", b"Bearer secret"])
def test_secret_is_read_of_bearer_metadata(value):
    assert read_secret([("user-agent", "x"), ("authorization", value)]) == "secret"


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic secret", "secret"])
def test_secret_of_other_scheme_is_refused(value):
    with pytest.raises(Unauthenticated, match="must be 'Bearer <token>'"):
        read_secret([("authorization", value)])
    with pytest.raises(Unauthenticated, match="a token is needed"):
        read_secret([])


def test_experiment_is_read_of_its_key():
    assert read_experiment([("x-katib-experiment", "sweep")]) == "sweep"
    assert read_experiment([("x-katib-namespace", "team")]) is None


@pytest.mark.parametrize(
    ("server", "address", "is_secure"),
    [
        ("https://tbhub.example.org", "tbhub.example.org:443", True),
        ("https://tbhub.example.org:6061", "tbhub.example.org:6061", True),
        ("http://127.0.0.1:6061", "127.0.0.1:6061", False),
        ("http://[::1]", "[::1]:80", False),
    ],
)
def test_target_of_forwarder_is_host_and_port(server, address, is_secure):
    assert parse_target(server) == (address, is_secure)


def test_target_with_path_is_refused():
    with pytest.raises(UsageError, match="has a path"):
        parse_target("https://tbhub.example.org/api")


@pytest.mark.parametrize(
    ("text", "address"),
    [("0.0.0.0:6789", "0.0.0.0:6789"), ("[::]:6789", "[::]:6789"), ("localhost:0", "localhost:0")],
)
def test_listen_address_is_host_and_port(text, address):
    assert parse_listen(text) == address


@pytest.mark.parametrize("text", ["6789", ":6789", "host:", "host:port", "host:65536", "host:-1"])
def test_listen_address_without_host_or_port_is_refused(text):
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        parse_listen(text)
