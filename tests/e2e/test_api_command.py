"""`tbupload api` and `tbupload token print`: the HTTP API by hand, with the token in use."""

from __future__ import annotations

import json

import pytest

from support.uploading import Uploader


def test_api_prints_answer(uploader, tmp_path):
    made = uploader.run_process("create", "--name", "sweep", "--json")
    experiment_id = json.loads(made.out)["experiment_id"]
    for path in ("experiments?q=sweep", "/experiments?q=sweep", "/api/v1/experiments?q=sweep"):
        listed = uploader.run_process("api", path)
        assert (listed.code, listed.err) == (0, "")
        assert [each["name"] for each in json.loads(listed.out)["experiments"]] == ["sweep"]

    (tmp_path / "body.json").write_text('{"name": "other"}')
    made = uploader.run_process("api", "/experiments", "--input", tmp_path / "body.json")
    assert json.loads(made.out)["name"] == "other"
    path = f"/experiments/{experiment_id}"
    changed = uploader.run_process(
        "api", "-X", "patch", path, "--input", "-", stdin='{"tags": ["a"]}'
    )
    assert json.loads(changed.out)["tags"] == ["a"]
    deleted = uploader.run_process("api", "--method", "DELETE", path)
    assert (deleted.code, deleted.out, deleted.err) == (0, "", "")
    gone = uploader.run_process("api", path)
    assert (gone.code, gone.out) == (1, "")
    assert f"there is no experiment {experiment_id}, or it is not yours (HTTP 404)" in gone.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("https://other.example/x",), "is a URL: give the path below /api/v1"),
        (("/experiments?q=a b",), "percent-encode"),
        (("/experiments", "-X", "BREW"), "invalid choice: 'BREW'"),
        (("GET", "/experiments"), "the method is an option: tbupload api -X GET PATH"),
        (("/experiments", "--input", "/nowhere.json"), "No such file"),
    ],
)
def test_api_refuses_wrong_usage(uploader, arguments, text):
    ended = uploader.run_process("api", *arguments)
    assert (ended.code, text in ended.err) == (2, True)


def test_api_without_server_is_temporary_failure(uploader, tmp_path, monkeypatch):
    monkeypatch.setattr("tbupload.commands.connect.SHORT_RETRY_TIMEOUT_SECONDS", 0.01)
    away = Uploader("http://127.0.0.1:9", uploader.token, tmp_path)
    assert away.run("api", "/me").code == 75


def test_token_is_printed_alone(uploader, tmp_path):
    printed = uploader.run_process("token", "print")
    assert (printed.code, printed.out, printed.err) == (0, f"{uploader.token}\n", "")
    config = tmp_path / "config.toml"
    config.write_text(f'[profiles.work]\nserver = "{uploader.server}"\ntoken = "tbh_work"\n')
    config.chmod(0o600)
    assert uploader.run_process("token", "print", "--profile", "work").out == "tbh_work\n"
    as_json = json.loads(uploader.run_process("token", "print", "--json").out)
    assert as_json == {"server": uploader.server, "token": uploader.token}


def test_missing_token_is_refused(uploader, tmp_path):
    refused = Uploader(uploader.server, "", tmp_path).run_process("token", "print")
    assert (refused.code, refused.out) == (2, "")
    assert f"no token for {uploader.server}: run `tbupload login" in refused.err
