"""Filters that match nothing are an error before anything is created, and name what is similar."""

import pytest

import tbupload
from support import event_files
from support.projector import write_projector_run
from support.uploading import wait_until


@pytest.fixture
def runs(logdir):
    """Two runs with scalars and an image."""
    for run in ("train/a", "eval"):
        events = [
            event_files.version_event(),
            event_files.scalar_event("loss", 0, 1.0),
            event_files.scalar_event("accuracy", 0, 1.0),
            event_files.image_event("cat", 0, [event_files.PNG]),
        ]
        event_files.write_records(logdir / run / "tfevents.1", events)
    return logdir


@pytest.mark.parametrize(
    ("filters", "sentence"),
    [
        (("--plugins", "scalar"), "no such plugin; did you mean scalars?"),
        (("--plugins", "mine"), "the plugins there are images, scalars"),
        (("--include-tags", "los"), "none of 3 tags completely; did you mean loss?"),
        (("--include-tags", "zebra"), "none of 3 tags completely (accuracy, cat, loss)"),
        (("--exclude-tags", ".*"), "--exclude-tags .* excludes all of 3 tags"),
        (("--include-runs", "train"), "none of 2 runs completely; did you mean train/a?"),
        (("--exclude-runs", ".*a.*"), "--exclude-runs .*a.* excludes all of 2 runs"),
        (("--include-tags", "cat", "--plugins", "scalars"), "no series matches all of them"),
    ],
)
def test_filter_without_match_is_refused(uploader, reader, runs, filters, sentence):
    dry = uploader.run("--logdir", runs, "--dry-run", *filters)
    ended = uploader.run("--logdir", runs, "--one-shot", *filters)
    assert (dry.code, dry.err) == (ended.code, ended.err)
    assert (ended.code, ended.out) == (2, "")
    assert sentence in ended.err
    assert ended.err.startswith("tbupload: ")
    assert reader.experiments() == []
    assert not (uploader.directory / "uploads.json").exists()


def test_filter_without_match_is_refused_for_experiment(uploader, reader, runs):
    experiment_id = uploader.run("--logdir", runs, "--one-shot").experiment_id
    before = reader.get(experiment_id, "streams")["streams"]
    ended = uploader.run(
        "--logdir", runs, "--one-shot", "--experiment", experiment_id, "--include-tags", "x"
    )
    assert (ended.code, ended.out) == (2, "")
    assert reader.get(experiment_id, "streams")["streams"] == before


def test_filter_matched_by_embeddings_is_accepted(uploader, reader, runs):
    write_projector_run(runs / "eval")
    ended = uploader.run("--logdir", runs, "--one-shot", "--plugins", "projector")
    assert ended.code == 0, ended.err
    assert reader.get(ended.experiment_id, "plugins") == {"plugins": ["projector"]}


def test_live_upload_refuses_misspelled_plugin(uploader, reader, logdir):
    with uploader.follow(logdir, "--plugins", "scalar,mine") as following:
        ended = following.wait()
    assert (ended.code, ended.out) == (2, "")
    assert "--plugins scalar: there is no such plugin; did you mean scalars?" in ended.err
    assert reader.experiments() == []


def test_own_plugin_with_similar_name_is_accepted(uploader, reader, logdir):
    event = event_files.plugin_event("scalar", "mine", 0, event_files.tensor_proto([1.0]))
    event_files.write_records(logdir / "run" / "tfevents.1", [event])
    ended = uploader.run("--logdir", logdir, "--one-shot", "--plugins", "scalar")
    assert ended.code == 0, ended.err
    assert reader.get(ended.experiment_id, "plugins") == {"plugins": ["scalar"]}


def test_live_upload_reports_filter_without_match_yet(uploader, reader, runs):
    with uploader.follow(runs, "--include-tags", "val_loss") as following:
        experiment_id = following.wait_for_experiment()
        wait_until(lambda: "none of 3 tags completely; did you mean loss?" in following.err())
        events = [event_files.scalar_event("val_loss", 0, 1.0)]
        event_files.write_records(runs / "eval" / "tfevents.1", events, append=True)
        wait_until(lambda: reader.scalars(experiment_id))
        ended = following.stop()
    assert ended.code == 0, ended.err
    assert ended.err.count("none of 3 tags") == 1


@pytest.mark.usefixtures("configured")
def test_wait_and_stop_of_follow_say_that_nothing_matched(runs, caplog):
    upload = tbupload.follow(runs, include_tags="val_loss", poll_seconds=60)
    for result in (upload.wait(), upload.stop()):
        assert (result.exit_code, result.is_complete) == (1, False)
        assert "did you mean loss?" in result.explanation
    assert "did you mean loss?" in caplog.text

    upload = tbupload.follow(runs, include_tags="late", poll_seconds=60)
    assert upload.wait().exit_code == 1
    late = event_files.scalar_event("late", 0, 1.0)
    event_files.write_records(runs / "eval" / "tfevents.1", [late], append=True)
    assert upload.wait().is_complete
    assert upload.stop().is_complete


def test_filter_without_match_proves_and_exports_nothing(uploader, runs, tmp_path):
    experiment_id = uploader.run("--logdir", runs, "--one-shot").experiment_id
    named = ("--experiment", experiment_id, "--include-tags", "los")
    ended = uploader.run("verify", "--logdir", runs, *named)
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert "did you mean" in ended.err
    ended = uploader.run("export", "--output", tmp_path / "out", *named)
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert "did you mean" in ended.err
    assert not (tmp_path / "out").exists()
