"""One experiment by its name, for uploads from many machines: `create`, `--experiment-name`."""

import json
from contextlib import ExitStack

import pytest

from support.event_files import append_scalars
from support.uploading import Uploader, wait_until


@pytest.fixture
def hosts(uploader, tmp_path):
    """Uploaders with a configuration of their own, as on several machines, each with a run."""
    made = []
    for number in range(4):
        host = tmp_path / f"host{number}"
        append_scalars(host / "logs", run=f"run{number}")
        made.append(Uploader(uploader.server, uploader.token, host))
    return made


def test_create_prints_url_of_one_experiment(uploader, reader):
    first = uploader.run("create", "--name", "sweep", "--description", "a *try*")
    again = uploader.run("create", "--name", "sweep", "--visibility", "link")
    told = uploader.run("create", "--name", "sweep", "--json")
    assert (first.code, first.err, again.code) == (0, "", 0)
    assert first.out == again.out == f"{json.loads(told.out)['url']}\n"
    assert "exists; it was not changed" in again.err
    assert json.loads(told.out)["event"] == "exists"
    (experiment,) = reader.experiments()
    assert (experiment["description"], experiment["visibility"]) == ("a *try*", "private")
    other = uploader.run("create", "--name", "other", "--json", "--visibility", "link")
    assert (json.loads(other.out)["event"], json.loads(other.out)["visibility"]) == (
        "created",
        "link",
    )
    assert uploader.run("create").code == 2


def test_named_experiment_has_runs_of_all_hosts(hosts, reader):
    ended = [
        host.run("--logdir", host.directory / "logs", "--one-shot", "--experiment-name", "sweep")
        for host in hosts
    ]
    assert [each.code for each in ended] == [0] * 4
    (experiment_id,) = {each.experiment_id for each in ended}
    assert list(reader.scalars(experiment_id)) == [f"run{number}" for number in range(4)]
    assert "exists: uploading to it" in ended[1].err
    assert "trained again" not in "".join(each.err for each in ended)
    again = hosts[0].run(
        "--logdir", hosts[0].directory / "logs", "--one-shot", "--experiment-name", "sweep"
    )
    assert "another --experiment-name uploads it to another one" in again.err  # no --new beside it


def test_hosts_that_start_at_once_make_one_experiment(hosts, reader):
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                host.follow(host.directory / "logs", "--experiment-name", "sweep", "--json")
            )
            for host in hosts
        ]
        (experiment_id,) = {each.wait_for_experiment() for each in running}
        wait_until(lambda: len(reader.scalars(experiment_id)) == len(hosts))
        ended = [each.stop() for each in running]
    assert [each.code for each in ended] == [0] * 4
    events = sorted(json.loads(each.out.splitlines()[0])["event"] for each in ended)
    assert events == ["created", "resumed", "resumed", "resumed"]
    assert len(reader.experiments()) == 1


def test_name_that_several_have_is_refused(uploader, reader, logdir):
    append_scalars(logdir)
    for _ in range(2):
        assert uploader.run("--logdir", logdir, "--one-shot", "--new", "--name", "x").code == 0
    ended = uploader.run("--logdir", logdir, "--one-shot", "--experiment-name", "x")
    assert (ended.code, ended.out) == (1, "")
    assert "several experiments have this name" in ended.err
    assert len(reader.experiments()) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--experiment-name", "x", "--experiment", "abc"), "exclude each other"),
        (("--experiment-name", "x", "--new"), "exclude each other"),
        (("--experiment-name", ""), "--experiment-name: it is empty"),
        (("--one-shot", "--end-with-process", "1"), "exclude each other"),
        (("--commands-from-stdin",), "needs --end-with-process"),
    ],
)
def test_options_that_contradict_are_refused(uploader, logdir, options, said):
    append_scalars(logdir)
    ended = uploader.run("--logdir", logdir, *options)
    assert (ended.code, ended.out, said in ended.err) == (2, "", True), ended.err


def test_upload_without_name_is_named_by_its_directory(uploader, reader, tmp_path):
    logdir = tmp_path / "spirals" / "runs"
    append_scalars(logdir)

    def name_of(ended):
        return reader.http.get(f"/api/v1/experiments/{ended.experiment_id}").json()["name"]

    first = uploader.run("--logdir", logdir, "--one-shot")
    assert name_of(first) == "spirals/runs"
    assert "named 'spirals/runs'; --name NAME chooses another name" in first.err
    uploader.run("update-metadata", first.experiment_id, "--name", "mine")
    again = uploader.run("--logdir", logdir, "--one-shot")
    assert (again.experiment_id, name_of(again)) == (first.experiment_id, "mine")
    assert name_of(uploader.run("--logdir", logdir, "--one-shot", "--new", "--name", "")) == ""
    private = uploader.run("--logdir", logdir, "--one-shot", "--new", "--no-origin")
    assert name_of(private) == "runs"
