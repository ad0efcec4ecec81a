"""A log directory that is trained again gets another experiment; what only looks like that does not.

The points of two trainings are never mixed without a word.
"""

import json
import shutil
import threading
from contextlib import nullcontext
from dataclasses import replace

import pytest

import tbupload
from support import event_files
from support.flaky_proxy import flaky_proxy
from support.uploading import tensorboard_scalars, wait_until

FIRST, SECOND = event_files.WALL_TIME, event_files.WALL_TIME + 1000
"""When the trainings started, in seconds since the epoch."""


def train(logdir, steps, started, run="run", name=None, value=1.0):
    """Write a file as a training does that starts at this time; return its path."""
    events = [
        event_files.version_event(started),
        *(event_files.scalar_event("loss", step, value, started + step) for step in steps),
    ]
    path = logdir / run / (name or f"events.out.tfevents.{int(started)}.host")
    event_files.write_records(path, events)
    return path


def train_again(logdir, steps=range(4), **options):
    """Delete a run and train it once more."""
    shutil.rmtree(logdir / "run")
    return train(logdir, steps, SECOND, "run", value=2.0, **options)


def events_of(out):
    """Return the events with an experiment: [(event, experiment)]."""
    lines = [json.loads(line) for line in out.splitlines()]
    return [(line["event"], line["experiment_id"]) for line in lines if "url" in line]


@pytest.fixture
def upload(uploader, logdir):
    """Run `tbupload --one-shot --json` for the log directory."""
    return lambda *arguments: uploader.run("--logdir", logdir, "--one-shot", "--json", *arguments)


@pytest.fixture
def first(upload, logdir):
    """The experiment of a first training of two runs."""
    for run in ("run", "other"):
        train(logdir, range(10), FIRST, run)
    return upload().experiment_id


def test_dry_run_tells_where_upload_would_go(uploader, upload, logdir, first):
    def dry_run(*options):
        ended = uploader.run("--logdir", logdir, "--dry-run", "--json", *options)
        assert ended.code == 0
        return ended.done["experiment_id"], ended.done["retrained_run"]

    id_ = first
    assert dry_run() == (id_, None)
    assert dry_run("--new") == (None, None)
    assert dry_run("--name", "other") == (None, None)
    train_again(logdir)
    assert dry_run() == (None, "run")
    assert dry_run("--resume", "allow") == (id_, "run")
    assert dry_run("--experiment", id_) == (id_, "run")
    said = uploader.run("--logdir", logdir, "--dry-run").err
    assert f"run 'run' was trained again since it was uploaded to experiment {id_}" in said
    assert upload().experiment_id != id_  # as was said


@pytest.mark.parametrize("name", [None, f"events.out.tfevents.{int(FIRST)}.host"])
def test_retrained_run_gets_new_experiment(upload, reader, logdir, first, name):
    before = reader.scalars(first)
    train_again(logdir, name=name)
    ended = upload()
    ((event, second),) = events_of(ended.out)
    assert (ended.code, event, second != first) == (0, "created", True)
    assert "run 'run' was trained again" in ended.err
    assert f"/experiment/{first}/" in ended.err
    (moved,) = [line for line in ended.err.splitlines() if "from now on" in line]
    assert moved.endswith(f"/experiment/{second}/")
    assert reader.scalars(first) == before
    assert reader.scalars(second) == tensorboard_scalars(logdir)
    assert events_of(upload().out) == [("resumed", second)]


def test_retrained_run_is_added_if_resume_says_so(upload, reader, logdir, first):
    train_again(logdir)
    ended = upload("--resume", "allow")
    assert (ended.code, events_of(ended.out)) == (0, [("resumed", first)])
    assert "run 'run' was trained again" in ended.err
    assert "added to those of the earlier training" in ended.err
    values = [value for _, value in reader.scalars(first)["run"]["loss"].values()]
    assert values == [2.0] * 4 + [1.0] * 6


def test_resume_never_creates_experiment_as_new_does(upload, first):
    third = [upload(*option) for option in (("--resume", "never"), ("--new",))]
    created = [events_of(ended.out)[0] for ended in third]
    assert [event for event, _ in created] == ["created"] * 2
    assert len({first, *(experiment for _, experiment in created)}) == 3


def test_resume_must_fails_without_earlier_upload(upload, reader, first):
    ended = upload("--resume", "must", "--name", "another")
    assert (ended.code, ended.out) == (2, "")
    assert "has not uploaded this directory" in ended.err
    reader.http.delete(f"/api/v1/experiments/{first}").raise_for_status()
    ended = upload("--resume", "must")
    assert (ended.code, ended.out) == (2, "")
    assert "was deleted" in ended.err
    assert reader.experiments() == []


def resumed_training(logdir):
    train(logdir, range(5, 15), SECOND, value=2.0)


def rotated_files(logdir):
    shutil.rmtree(logdir / "run")
    train(logdir, range(10, 15), SECOND)


def deleted_run(logdir):
    shutil.rmtree(logdir / "run")


def renamed_file(logdir):
    path = next((logdir / "run").iterdir())
    path.rename(path.with_name("tfevents.renamed"))


def copied_points(logdir):
    shutil.rmtree(logdir / "run")
    path = train(logdir, range(10), FIRST, name="tfevents.copy")
    head = event_files.encode_records([event_files.version_event(SECOND)])
    path.write_bytes(head + path.read_bytes())


def another_run(logdir):
    train(logdir, range(5), SECOND, "third")


def another_tag(logdir):
    shutil.rmtree(logdir / "run")
    events = [event_files.scalar_event("new", step, 1.0, SECOND) for step in range(5)]
    event_files.write_records(logdir / "run" / "tfevents.2", events)


@pytest.mark.parametrize(
    ("change", "is_live"),
    [
        (resumed_training, False),
        (rotated_files, False),
        (rotated_files, True),
        (deleted_run, False),
        (renamed_file, False),
        (renamed_file, True),
        (copied_points, False),
        (another_run, False),
        (another_tag, False),
    ],
    ids=lambda value: getattr(value, "__name__", "live" if value else "later"),
)
def test_retraining_is_not_mistaken(uploader, upload, reader, logdir, first, change, is_live):
    if is_live:
        with uploader.follow(logdir, "--json") as following:
            following.wait_for_experiment()
            change(logdir)
            train(logdir, range(3), SECOND, "last")
            wait_until(lambda: "last" in reader.scalars(first))
            ended = following.stop()
    else:
        change(logdir)
        ended = upload()
    assert (ended.code, events_of(ended.out)) == (0, [("resumed", first)])
    assert "trained again" not in ended.err
    stored = reader.scalars(first)
    for run, tags in tensorboard_scalars(logdir).items():
        for tag, points in tags.items():
            assert points.items() <= stored[run][tag].items()


@pytest.fixture
def following(uploader, reader, logdir):
    """A live upload of a training that was sent already."""
    train(logdir, range(10), FIRST)
    with uploader.follow(logdir, "--json") as following:
        experiment_id = following.wait_for_experiment()
        wait_until(lambda: reader.scalars(experiment_id))
        yield following


def second_experiment(following, reader, logdir):
    """Wait until another experiment has what the files have, and stop; return both."""
    wait_until(lambda: len(events_of(following.out())) > 1)
    _, (event, second) = events_of(following.out())
    assert event == "created"
    wait_until(lambda: reader.scalars(second) == tensorboard_scalars(logdir))
    ended = following.stop()
    assert ended.code == 0, ended.err
    assert ended.err.count("was trained again") == 1
    last = ended.err.splitlines()[-1]
    assert last.startswith("this is in another experiment than at first: http")
    assert f"/experiment/{second}/" in last
    return [experiment for _, experiment in events_of(ended.out)]


def test_logdir_recreated_while_followed_gets_new_experiment(following, reader, logdir):
    shutil.rmtree(logdir)
    train(logdir, range(4), SECOND, value=2.0)
    first, _ = second_experiment(following, reader, logdir)
    assert set(reader.scalars(first)["run"]["loss"].values()) == {
        (FIRST + step, 1.0) for step in range(10)
    }


def test_run_replaced_before_its_answer_is_noticed(uploader, reader, logdir):
    """Its points are stored, but the uploader does not know that yet when they are deleted."""
    train(logdir, range(10), FIRST)
    answers = threading.Event()
    with (
        flaky_proxy(uploader.server, [""], answers_batches=answers) as proxy,
        replace(uploader, server=proxy).follow(logdir, "--json") as following,
    ):
        first = following.wait_for_experiment()
        wait_until(lambda: "run" in reader.scalars(first))
        shutil.rmtree(logdir / "run")
        train(logdir, range(3), FIRST, "other")
        wait_until(lambda: "other" in reader.scalars(first))  # so it has seen the deletion, too
        answers.set()
        train(logdir, range(4), SECOND, value=2.0)
        assert second_experiment(following, reader, logdir)[0] == first


def test_retraining_that_begins_with_empty_file_is_noticed(following, reader, logdir):
    path = train_again(logdir, steps=())
    wait_until(lambda: has_stream(reader, following.wait_for_experiment(), path.name))
    events = [event_files.scalar_event("loss", step, 2.0, SECOND + step) for step in range(3)]
    event_files.write_records(path, events, append=True)
    first, _ = second_experiment(following, reader, logdir)
    assert len(reader.scalars(first)["run"]["loss"]) == 10


def has_stream(reader, experiment_id, name):
    streams = reader.get(experiment_id, "streams")["streams"]
    return any(stream["file_name"] == name for stream in streams)


def test_file_rewritten_in_place_is_noticed(following, reader, logdir):
    train(logdir, range(4), SECOND, name=f"events.out.tfevents.{int(FIRST)}.host", value=2.0)
    second_experiment(following, reader, logdir)


def test_logdir_that_appears_later_is_compared_too(uploader, reader, logdir, first):
    shutil.rmtree(logdir)
    with uploader.follow(logdir, "--json", "--wait-for-logdir") as following:
        assert following.wait_for_experiment() == first
        train(logdir, range(4), SECOND, value=2.0)
        assert second_experiment(following, reader, logdir)[0] == first


@pytest.mark.usefixtures("configured")
def test_follow_in_script_has_resume(reader, logdir, caplog):
    with pytest.raises(ValueError, match="resume must be one of"):
        tbupload.follow(logdir, resume="auto")
    with pytest.raises(ValueError, match="new=True and resume='must' exclude each other"):
        tbupload.follow(logdir, resume="must", new=True)
    with tbupload.follow(logdir, resume="must") as refused:
        pass
    refused.stop()
    assert (refused.result.exit_code, refused.url) == (2, None)
    train(logdir, range(10), FIRST)
    with tbupload.follow(logdir, poll_seconds=0.05) as upload:
        first = wait_until(lambda: upload.experiment_id)  # None after 30 s on a starved machine
        wait_until(lambda: reader.scalars(first))
        train_again(logdir)
        wait_until(lambda: upload.experiment_id != first)
    assert upload.stop().is_complete
    assert upload.result.experiment_id == upload.experiment_id != first
    assert "was trained again" in caplog.text
    assert f"from now on, this upload goes to {upload.url}" in caplog.text
    with tbupload.follow(logdir, resume="must") as resumed:
        assert wait_until(lambda: resumed.experiment_id) == upload.experiment_id
    resumed.stop()


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("block", ["none", "short", "long"])
def test_failed_training_keeps_its_record_when_another_follows(reader, logdir, block):
    """The second one is recorded with its own experiment if it is in a block, or not at all; also
    if the block ends before its files are seen.
    """

    def ends(experiment_id):
        uploads = reader.get(experiment_id, "uploads")["uploads"]
        return [(each["status"], each["detail"]) for each in uploads]

    upload = tbupload.follow(logdir, poll_seconds=0.05)
    train(logdir, range(10), FIRST)
    with pytest.raises(ValueError, match="first"), upload:
        raise ValueError("first")
    first = wait_until(lambda: upload.experiment_id)
    wait_until(lambda: ends(first) == [("failed", "ValueError")] and reader.scalars(first))
    with nullcontext() if block == "none" else upload:
        train_again(logdir)
        wait_until(lambda: block == "short" or upload.experiment_id != first)
    wait_until(lambda: upload.experiment_id != first)
    assert upload.stop().is_complete
    assert ends(first) == [("failed", "ValueError")]
    assert ends(upload.experiment_id) == ([] if block == "none" else [("finished", "")])
