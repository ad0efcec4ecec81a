"""Exports as tables from a server without tables, or with one over a limit."""

from __future__ import annotations

import hashlib
import json

import pytest

from support.faulty_server import Reply, refusal, running
from support.hostile_server import BLOB, HostileServer
from tbupload.cli import main
from tbupload.export.client import ExportClient
from tbwire import frames


class WithoutTables(HostileServer):
    """An older server, which has no routes of tables."""

    def _route(self, request):
        return refusal(404, "not_found") if "/tables/" in request.path else super()._route(request)


class WithLimit(HostileServer):
    """A server whose table of sessions is over a limit, and which shows no uploads."""

    def _route(self, request):
        if "/tables/sessions" in request.path:
            return refusal(413, "too_large")
        if "/tables/uploads" in request.path:
            return refusal(401, "unauthenticated")
        return super()._route(request)


class WithLongDigest(HostileServer):
    """A server that names a blob by something else than a SHA-256, of which files get their names."""

    digest = b""

    def _route(self, request):
        reply = super()._route(request)
        if not request.path.endswith("blob_sequences/data"):
            return reply
        sha256 = hashlib.sha256(BLOB).digest()
        sent = list(frames.decode_frames([reply.body])) if sha256 in reply.body else []
        for frame in sent:
            if frame.HasField("part"):
                frame.part.blob_sequences.sequences[0].blobs[0].sha256 = self.digest
        return Reply(body=b"".join(map(frames.encode_frame, sent))) if sent else reply


class WithoutBlobs(HostileServer):
    """A server that has no blob of those that it names."""

    def _route(self, request):
        return refusal(404, "not_found") if "/blobs/" in request.path else super()._route(request)


@pytest.fixture
def export(monkeypatch, tmp_path, capsys):
    """Export from a server; return the exit code, the names of the files, and what is said."""
    monkeypatch.setenv("TBHUB_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("TBHUB_TOKEN", "tbh_secret")

    def export(server, *options):
        monkeypatch.setenv("TBHUB_SERVER", server.url)
        output = tmp_path / "output"
        command = ["export", "--experiment", "abc", "--output", str(output), "--json", *options]
        code = main([*command, "--retry-timeout", "0.05"])
        files = {path.relative_to(output).as_posix() for path in output.rglob("*.parquet")}
        out, err = capsys.readouterr()
        return code, files, json.loads(out.splitlines()[-1]), err

    return export


KINDS = ("scalars", "tensors", "blob_sequences")
POINTS = {f"{kind}/part-{number:05d}.parquet" for number, kind in enumerate(KINDS, 1)}


def test_export_from_older_server_has_points_and_says_so(export):
    with running(WithoutTables()) as server:
        _, files, _, err = export(server)
        assert files == POINTS
        assert "the server has no tables" in err


@pytest.mark.parametrize("digest", [b"", b"\x2e" * 10_000])
def test_blob_without_sha256_is_malformed_response(export, digest):
    with running(WithLongDigest()) as server:
        server.digest = digest
        code, _, done, err = export(server)
        assert (code, done["event"]) == (75, "failed")
        assert "a blob with a SHA-256 of" in err


def test_export_without_table_over_limit_is_complete_but_fails(export):
    with running(WithLimit()) as server:
        for _ in range(2):  # the second finds all of it there
            code, files, done, err = export(server)
            assert code == 1
            assert list(done["missing_tables"]) == ["sessions"]
            assert "left out: the table sessions: " in err
        tables = ("experiment", "properties", "hparams")
        parts = {f"{name}/part-00001.parquet" for name in ("runs", "series", "blobs")}
        assert files == POINTS | parts | {f"{name}.parquet" for name in tables}


@pytest.mark.parametrize("kind", ["parquet", "events"])
def test_error_ends_threads_that_read_blobs(export, monkeypatch, kind):
    begun = []
    read_blobs = ExportClient.read_blobs

    def record(client, blobs):
        begun.append(read_blobs(client, blobs))
        return begun[-1]

    monkeypatch.setattr(ExportClient, "read_blobs", record)
    with running(WithoutBlobs()) as server:
        code, *_ = export(server, "--format", kind)
    assert code != 0
    assert begun
    assert all(each.gi_frame is None for each in begun)
