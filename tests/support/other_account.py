"""Tries what another account of the machine could try on an instance's servers; run as a program,
with `try_as_other`.

Root becomes `nobody` first. An ordinary user cannot: what is tried with its own account then proves
only what does not depend on accounts, and callers leave the rest out (`IS_OTHER`).
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import pwd
import socket
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc

from support.waiting import SECONDS_MAX
from tbservice.launch import drop_privileges
from tbservice.local.embedded.certificate import create_certificate
from tbservice.local.embedded.ports import LOOPBACK

IS_OTHER = os.geteuid() == 0
CLOSED_PORT = 1


def try_as_other(attempts):
    """Return the result of each attempt (the name of a function here, and its arguments): a status,
    or an error's name.
    """
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "support.other_account"],
        input=json.dumps(attempts).encode(),
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def ask_http(port, method, path, headers, key):
    """Return the status, or the error's name. `key` is "" (no TLS), "none", "own" (one just made)
    or a file.
    """
    if key:
        connection = http.client.HTTPSConnection(
            LOOPBACK, port, timeout=SECONDS_MAX, context=_context(key)
        )
    else:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=SECONDS_MAX)
    body = b"x" if method in ("POST", "PUT") else None
    try:
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def ask_grpc(port, method, request, key, authority):
    """Return the status of a gRPC call, "OK" when it was answered. `request` is hexadecimal,
    `authority` PEM.
    """
    address = f"{LOOPBACK}:{port}"
    if key:
        pem = None if key == "none" else _own_key() if key == "own" else Path(key).read_bytes()
        channel = grpc.secure_channel(
            address, grpc.ssl_channel_credentials(authority.encode(), pem, pem)
        )
    else:
        channel = grpc.insecure_channel(address)
    with channel:
        call = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        try:
            call(bytes.fromhex(request), timeout=SECONDS_MAX)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"


def connect_unix(path):
    """Return "connected", or the error's name."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except OSError as error:
            return type(error).__name__
        return "connected"


def read_file(path):
    """Return "read", or the error's name."""
    try:
        Path(path).read_bytes()
    except OSError as error:
        return type(error).__name__
    return "read"


@functools.cache
def _own_key():
    return create_certificate().encode()


@functools.cache
def _context(key):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if key == "own":
        with tempfile.NamedTemporaryFile() as file:
            file.write(_own_key())
            file.flush()
            context.load_cert_chain(file.name)
    elif key != "none":
        context.load_cert_chain(key)
    return context


def main():
    """Read the attempts, become another user, make them, print their results."""
    attempts = json.load(sys.stdin)
    ask_http(
        CLOSED_PORT, "GET", "/", {}, "own"
    )  # imports all that it takes, while that can still be read
    ask_grpc(CLOSED_PORT, "/x/y", "", "own", _own_key().decode())
    if IS_OTHER:
        nobody = pwd.getpwnam("nobody")
        drop_privileges(nobody.pw_uid, nobody.pw_gid)
    functions = {
        function.__name__: function for function in (ask_http, ask_grpc, connect_unix, read_file)
    }
    print(json.dumps([functions[name](*arguments) for name, *arguments in attempts]))  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
