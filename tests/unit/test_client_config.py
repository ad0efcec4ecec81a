"""The configuration that `tbservice up` writes for `tbupload`, and what it leaves alone."""

import tomllib

import pytest

from tbservice.local.client_config import write_client_config

SERVER = "http://127.0.0.1:6060"


def no_token(_token):
    """Accept no token."""
    return False


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tbhub" / "config.toml"


def test_client_config_is_written_for_its_owner_alone(file):
    assert write_client_config(file, SERVER, "tbh_x", no_token) is None
    assert tomllib.loads(file.read_text()) == {"server": SERVER, "token": "tbh_x"}
    assert file.stat().st_mode & 0o777 == 0o600


def test_client_config_keeps_profiles_of_other_servers(file):
    file.parent.mkdir()
    work = '[profiles."my work"]\nserver = "https://work.example"\ntoken = "tbh_w"\n'
    file.write_text(
        f'server = "{SERVER}"\ntoken = "tbh_old"\ntoken_is_from_browser = true\n\n{work}'
    )
    assert write_client_config(file, SERVER, "tbh_new", no_token) is None
    assert tomllib.loads(file.read_text()) == {
        "server": SERVER,
        "token": "tbh_new",
        "profiles": {"my work": {"server": "https://work.example", "token": "tbh_w"}},
    }


def test_client_config_keeps_token_that_server_accepts(file):
    file.parent.mkdir()
    text = f'server = "{SERVER}"\ntoken = "tbh_mine"\ntoken_is_from_browser = true\n'
    file.write_text(text)
    assert write_client_config(file, SERVER, "tbh_x", "tbh_mine".__eq__) is None
    assert file.read_text() == text


def test_client_config_of_another_server_is_left_alone(file):
    file.parent.mkdir()
    text = 'server = "https://work.example"\ntoken = "tbh_w"\n'
    file.write_text(text)
    assert "https://work.example" in write_client_config(file, SERVER, "tbh_x", no_token)
    assert file.read_text() == text
