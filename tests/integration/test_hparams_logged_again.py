"""Hyperparameters that a run logs more than once: what the server has of them."""

from __future__ import annotations

import base64
import hashlib

from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data

from support import batches, hparams_records
from support.batches import scalars, segment, stream, texts
from tbservice import limits


def stored_hparams(api, experiment, run="train"):
    content = api.get(experiment, "tensors")[run][hparams_records.START]["summary_metadata"][
        "content"
    ]
    return hparams_records.values_of(
        parse_session_start_info_plugin_data(base64.b64decode(content))
    )


def metadata_sha256(api, experiment):
    (digest,) = api.get(experiment, "digests")["series"]
    return digest["metadata_sha256"]


LOGGED = [({"a": 1, "b": 1}, 1.0), ({"a": 2, "c": 2}, 2.0), ({"c": 3, "d": 3}, 3.0)]
UNITED = {"a": 2, "b": 1, "c": 3, "d": 3}


def test_hparams_of_run_are_united_in_either_order(api):
    """From one file, from several in either order, in one batch and in several: the same bytes."""
    digests = set()
    for order in (LOGGED, LOGGED[::-1]):
        experiment, together = api.new_experiment(), api.new_experiment()
        sent = [
            segment(
                stream(file_name=str(at)),
                0,
                9,
                hparams_records.series(hparams_records.record(values), at),
            )
            for values, at in order
        ]
        for each in sent:
            api.write(experiment, each)
            assert api.write(experiment, each).tensors == 0  # a repeat is no-op
        api.write(together, *sent)
        for name in (experiment, together):
            assert stored_hparams(api, name) == UNITED
            digests.add(metadata_sha256(api, name))

    experiment = api.new_experiment()
    for number, (values, at) in enumerate(LOGGED):
        sent = hparams_records.series(hparams_records.record(values), at)
        api.write(experiment, segment(stream(), number * 10, number * 10 + 10, sent))
    assert digests == {metadata_sha256(api, experiment)}


def test_hparams_logged_once_are_stored_as_written(api, experiment):
    written = hparams_records.record({"b": 1, "a": 2, "c": 3})
    for file_name, wall_time in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
        sent = hparams_records.series(written, wall_time)
        api.write(experiment, segment(stream(file_name=file_name), 0, 9, sent))
    assert metadata_sha256(api, experiment) == hashlib.sha256(written).hexdigest()


def test_hparams_of_runs_and_tags_are_not_mixed(api, experiment):
    for number, (values, at) in enumerate(LOGGED[:2]):
        for run in ("x", "y"):
            sent = [
                hparams_records.series(hparams_records.record({**values, run: at}), at),
                hparams_records.series(
                    hparams_records.wrap(session_end_info={"status": number}), at, "end"
                ),
                texts("note", [number], [b"n"]),
            ]
            api.write(experiment, segment(stream(run), number * 10, number * 10 + 10, *sent))
    for run in ("x", "y"):
        assert stored_hparams(api, experiment, run) == {"a": 2, "b": 1, "c": 2, run: 2}
    listed = api.get(experiment, "tensors")["x"]["end"]["summary_metadata"]["content"]
    assert base64.b64decode(listed) == hparams_records.content_of(
        hparams_records.wrap(session_end_info={"status": 1})
    )


def test_hparams_over_limit_are_skipped_with_reason(api, experiment, monkeypatch):
    monkeypatch.setattr(limits, "METADATA_BYTES_MAX", 1_000)
    large = [hparams_records.record({key: "x" * 600}) for key in "ab"]
    api.write(experiment, segment(stream(), 0, 9, hparams_records.series(large[0], 1.0)))
    refused = segment(stream(), 9, 19, hparams_records.series(large[1], 2.0), scalars("loss", [0]))
    result = api.write(experiment, refused)
    (skipped,) = result.cursors[0].skipped
    assert (skipped.reason, skipped.count) == (
        "hyperparameters of one run over the limit of 1,000 bytes",
        1,
    )
    assert (result.tensors, result.scalars) == (0, 1)
    api.write(
        experiment,
        segment(stream(), 19, 29, hparams_records.series(hparams_records.record({"c": 1}), 3.0)),
    )
    assert set(stored_hparams(api, experiment)) == {"a", "c"}

    both = [hparams_records.series(each, float(at)) for at, each in enumerate(large)]
    other = [segment(stream("new", str(at)), 0, 9, sent) for at, sent in enumerate(both)]
    result = api.write(experiment, *other)
    assert [len(cursor.skipped) for cursor in result.cursors] == [0, 1]
    assert set(stored_hparams(api, experiment, "new")) == {"a"}


def test_batch_that_unites_too_much_is_too_large(api, experiment, monkeypatch):
    monkeypatch.setattr("tbservice.ingest.series_writer.BATCH_STORED_METADATA_BYTES_MAX", 1_000)
    runs = ("x", "y")
    for number in range(2):
        record = hparams_records.record({f"key{number}": "x" * 600})
        sent = [
            segment(
                stream(run), number * 10, number * 10 + 10, hparams_records.series(record, number)
            )
            for run in runs
        ]
        if number == 0:
            api.write(experiment, *sent)
    answer = api.send(experiment, *sent)
    assert (answer.status_code, "fewer series" in answer.text) == (413, True)
    for each in sent:
        api.write(experiment, each)
    for run in runs:
        assert set(stored_hparams(api, experiment, run)) == {"key0", "key1"}


def test_value_without_plugin_leaves_hparams_alone(api, experiment):
    api.write(
        experiment,
        segment(stream(), 0, 9, hparams_records.series(hparams_records.record({"a": 1}), 1.0)),
    )
    nameless = hparams_records.series(batches.metadata("", 2), 2.0)
    api.write(experiment, segment(stream(file_name="b"), 0, 9, nameless))
    assert stored_hparams(api, experiment) == {"a": 1}
