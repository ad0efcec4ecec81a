"""Where server and token come from, and that a token is sent to no other server."""

import stat

import pytest

from tbupload.config import (
    Config,
    Profile,
    check_server,
    check_token,
    config_path,
    find_access,
    read_config,
    write_config,
)
from tbupload.errors import UsageError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tbhub" / "config.toml"


@pytest.fixture
def environment(path):
    return {"TBHUB_CONFIG": str(path)}


def test_what_is_written_is_read_again_and_only_owner_may(path):
    config = Config(
        Profile("https://tbhub.example", 'tbh_"quoted"\\'),
        {
            "work": Profile("https://work.example", "tbh_work"),
            'odd "name".é': Profile("https://odd.example"),
        },
    )
    write_config(path, config)
    assert read_config(path) == config
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["config.toml"]


def test_config_file_is_closed_to_others_when_written(path):
    path.parent.mkdir()
    path.write_text("")
    path.chmod(0o644)
    write_config(path, Config(Profile("https://tbhub.example", "tbh_x")))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["server = [", "server = 3\n", "token = []\n"])
def test_config_file_that_makes_no_sense_is_named(path, text):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(UsageError, match=r"config\.toml"):
        read_config(path)


def test_flag_comes_before_environment_and_that_before_file(path, environment):
    write_config(path, Config(Profile("https://file.example", "tbh_file")))
    assert find_access(None, environment).server == "https://file.example"
    environment["TBHUB_SERVER"] = "https://environment.example"
    assert find_access(None, environment).server == "https://environment.example"
    assert find_access("https://flag.example/", environment).server == "https://flag.example"


def test_files_token_goes_to_files_server_only(path, environment):
    write_config(path, Config(Profile("https://file.example", "tbh_file")))
    assert find_access("https://file.example/", environment).token == "tbh_file"
    assert find_access("https://other.example", environment).token is None
    environment["TBHUB_TOKEN"] = "tbh_environment"
    assert find_access("https://other.example", environment).token == "tbh_environment"
    assert find_access(None, environment).token == "tbh_environment"


def test_token_that_others_can_read_is_warned_of(path, environment):
    write_config(path, Config(Profile("https://file.example", "tbh_file")))
    assert find_access(None, environment).warnings == ()
    path.chmod(0o640)
    assert "chmod 600" in find_access(None, environment).warnings[0]


def test_token_over_plain_http_warns_except_loopback(environment):
    environment["TBHUB_TOKEN"] = "tbh_x"
    assert "not https" in find_access("http://tbhub.example", environment).warnings[0]
    for server in (
        "http://127.0.0.1:6060",
        "http://localhost:6060",
        "http://[::1]:6060",
        "https://tbhub.example",
    ):
        assert find_access(server, environment).warnings == ()


@pytest.mark.parametrize(
    "server",
    [
        "tbhub.example:6060",
        "ftp://tbhub.example",
        "https://",
        "https://user:secret@host",
        "https://h?x=1",
        "http://h:x",
    ],
)
def test_what_is_no_server_address_is_refused(server):
    with pytest.raises(UsageError, match="not a server address"):
        check_server(server)


def test_server_may_live_under_path():
    assert check_server(" https://host.example/tbhub/ ") == "https://host.example/tbhub"


@pytest.mark.parametrize("token", ["", " \n", "tbh_a b", "tbh_ä", "tbh_\x00"])
def test_what_cannot_be_token_is_refused_without_repeating_it(token):
    with pytest.raises(UsageError) as caught:
        check_token(token)
    assert "tbh_" not in str(caught.value)


def test_config_file_is_where_environment_says(tmp_path):
    assert config_path({"TBHUB_CONFIG": "/x/y.toml"}).as_posix() == "/x/y.toml"
    assert config_path({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "tbhub" / "config.toml"
    assert config_path({}).parts[-3:] == (".config", "tbhub", "config.toml")


@pytest.fixture
def profiles(path):
    write_config(
        path,
        Config(
            Profile("https://file.example", "tbh_file"),
            {
                "work": Profile("https://work.example", "tbh_work"),
                "other": Profile("https://file.example", "tbh_other"),
            },
        ),
    )


@pytest.mark.usefixtures("profiles")
def test_profile_is_chosen_by_option_or_variable(environment):
    access = find_access(None, environment, profile="work")
    assert (access.server, access.token) == ("https://work.example", "tbh_work")
    access = find_access(None, {**environment, "TBHUB_PROFILE": "work"})
    assert (access.server, access.token) == ("https://work.example", "tbh_work")
    access = find_access(None, {**environment, "TBHUB_PROFILE": "work"}, profile="other")
    assert (access.server, access.token) == ("https://file.example", "tbh_other")


@pytest.mark.usefixtures("profiles")
def test_profile_of_option_comes_before_environment(environment):
    environment |= {"TBHUB_SERVER": "https://environment.example", "TBHUB_TOKEN": "tbh_environment"}
    access = find_access(None, environment, profile="work")
    assert (access.server, access.token) == ("https://work.example", "tbh_work")
    access = find_access(None, {**environment, "TBHUB_PROFILE": "work"})
    assert (access.server, access.token) == ("https://environment.example", "tbh_environment")


@pytest.mark.usefixtures("profiles")
def test_profile_that_is_missing_is_named_with_the_others(environment):
    with pytest.raises(UsageError, match=r"no profile 'wrok' \(it has: work, other\)"):
        find_access(None, environment, profile="wrok")


@pytest.mark.usefixtures("profiles")
def test_server_of_any_profile_gets_its_token(environment):
    assert find_access("https://work.example/", environment).token == "tbh_work"
    assert find_access("https://file.example", environment).token == "tbh_file"
    assert find_access("https://file.example", environment, profile="other").token == "tbh_other"
    assert find_access("https://evil.example", environment, profile="work").token is None


def test_profile_is_replaced_and_removed():
    config = Config(Profile("https://a.example", "tbh_a"))
    config = config.replace("work", Profile("https://b.example", "tbh_b", is_from_browser=True))
    assert config.find("work") == Profile("https://b.example", "tbh_b", is_from_browser=True)
    assert config.replace("work", None) == Config(Profile("https://a.example", "tbh_a"))
    assert config.replace(None, None).find("work") == config.find("work")


@pytest.mark.parametrize(
    "text",
    ["profiles = 3\n", "[profiles]\nwork = 3\n", "[profiles.work]\nserver = 3\n"],
)
def test_profile_that_makes_no_sense_is_named(path, text):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(UsageError, match=r"config\.toml.*profiles"):
        read_config(path)
