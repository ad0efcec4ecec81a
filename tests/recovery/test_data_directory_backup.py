"""`tbservice backup` and `restore` of a data directory, as the user of `tbservice up` runs them."""

from __future__ import annotations

from starlette.testclient import TestClient

from support.batches import ApiClient, images, scalars, segment, stream
from support.maintenance import command_runner
from support.servers import new_workspace
from tbservice.local.embedded.instance import make_settings
from tbservice.local.embedded.ports import LOOPBACK
from tbservice.server.app import create_app


def test_backup_of_data_directory_becomes_another(servers, tmp_path, monkeypatch, capsys):
    """The first one runs; the second is started, for the restore and for its own backup."""
    run = command_runner(monkeypatch, capsys)
    instance = servers.instance
    settings = make_settings(instance, host=LOOPBACK, port=0, public_url="http://testserver")
    with TestClient(create_app(settings)) as client:
        api = ApiClient(client, new_workspace(instance.postgres.url()).owner_token)
        sent = scalars("loss", range(2_000)), images("image", [1], [[b"an image"]])
        api.write(api.new_experiment(), segment(stream(), 0, 1, *sent))
    path, new, target = instance.directory.path, tmp_path / "new", tmp_path / "backup"
    code, _, error = run("backup", path / "backups", "--data-dir", path)
    assert (code, "inside of the data directory" in error) == (2, True)
    assert run("backup", target, "--data-dir", path)[0] == 0
    assert run("restore", target, "--data-dir", new)[0] == 0
    code, out, _ = run("check", "--data-dir", new, "--content")
    assert (code, "1 experiments, 2 series, 2,001 points, 1 blobs" in out) == (0, True)
    assert "nothing damaged" in out
    code, out, _ = run("backup", target, "--data-dir", new)
    assert (code, "1 objects of 8 bytes, of which 0 of 0 bytes are new" in out) == (0, True)
    code, _, error = run("restore", target, "--data-dir", new)
    assert (code, f"{new} is not empty" in error) == (2, True)
    code, _, error = run("backup", target, "--data-dir", tmp_path / "none")
    assert (code, "is no data directory" in error) == (2, True)
