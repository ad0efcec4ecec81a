"""Points that a complete upload would have stored, and their differences, compared with plain
dictionaries.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import batches, hparams_records
from support.faulty_server import FaultyServer, Reply, faulty_server
from support.python39 import zip_strict
from tbupload.cli import main
from tbupload.errors import UploadError
from tbupload.verify.findings import Finding, Status, VerifyResult
from tbupload.verify.local_series import LocalRuns
from tbupload.verify.spool import Spool
from tbupload.verify.step_order import (
    Differences,
    RecordSource,
    StepSample,
    compare,
    merge_in_step_order,
)
from tbwire import digests

POINTS = st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 2), st.integers(0, 3)), max_size=12)
"""(step, wall time, value), few enough of each that they meet."""

METADATA_BYTES_MAX = 4 << 20


def records(points):
    columns = np.array(points, np.float64).reshape(-1, 3).T
    return digests.scalar_records(columns[0].astype(np.int64), columns[1], columns[2])


def newest(points):
    """Apply the deduplication rule point by point."""
    kept = {}
    for step, wall_time, value in points:
        if step not in kept or wall_time >= kept[step][0]:
            kept[step] = (wall_time, value)
    return [(step, *kept[step]) for step in sorted(kept)]


def as_piece(each):
    return RecordSource(len(each), lambda first, count: each[first : first + count])


def in_parts(each, size):
    return [each[first : first + size] for first in range(0, len(each), size)]


@pytest.fixture
def spool():
    spool = Spool()
    yield spool
    spool.close()


@given(st.lists(POINTS, max_size=5), st.integers(1, 4))
def test_chunks_overlapping_merge_newest_per_step(pieces, size):
    sorted_pieces = [records(newest(points)) for points in pieces]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tbupload.verify.step_order.RECORDS_PER_SOURCE_MIN", size)
        patch.setattr("tbupload.verify.step_order.RECORDS_IN_MEMORY", 1)
        merged = list(merge_in_step_order([as_piece(each) for each in sorted_pieces]))
    expected = records(newest([point for points in pieces for point in newest(points)]))
    assert np.concatenate([records([]), *merged]).tobytes() == expected.tobytes()


@given(POINTS, POINTS, st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_differences_are_counted_by_kind_and_first_are_named(
    ours, theirs, our_size, their_size, accepts_later
):
    ours, theirs = newest(ours), newest(theirs)
    differences = compare(
        in_parts(records(ours), our_size),
        in_parts(records(theirs), their_size),
        accepts_later=accepts_later,
    )
    local, stored = ({step: rest for step, *rest in points} for points in (ours, theirs))
    different = [step for step in local.keys() & stored.keys() if local[step] != stored[step]]
    if accepts_later:
        different = [step for step in different if stored[step][0] <= local[step][0]]
    for steps, expected in (
        (differences.missing, sorted(local.keys() - stored.keys())),
        (differences.extra, sorted(stored.keys() - local.keys())),
        (differences.different, sorted(different)),
    ):
        assert (steps.count, steps.first) == (len(expected), expected[:5])


def test_values_differ_by_bits():
    def point_of(value):
        return [digests.scalar_records(np.zeros(1, np.int64), np.zeros(1), np.array([value]))]

    assert compare(point_of(np.nan), point_of(np.nan)).different.count == 0
    assert compare(point_of(0.0), point_of(-0.0)).different.count == 1


@pytest.mark.parametrize("held_bytes_max", [1, 3_000, 10**9])
def test_run_too_large_for_memory_gives_same_digests(spool, held_bytes_max):
    local = LocalRuns(spool, METADATA_BYTES_MAX, held_bytes_max)
    random = np.random.default_rng(0)
    arrived = {tag: [] for tag in ("a", "b")}
    for _ in range(20):
        for tag, points in arrived.items():
            fresh = [
                (int(step), 1.0 * random.integers(3), float(random.integers(9)))
                for step in random.integers(0, 99, 30)
            ]
            points.extend(fresh)
            sent = batches.scalars(
                tag,
                *zip_strict(*[(step, value, wall_time) for step, wall_time, value in fresh]),
            )
            local.add("run", batches.batch(batches.segment(batches.stream(), 0, 1, sent)))
    for (_, tag), series in local.series.items():
        expected = records(newest(arrived[tag]))
        assert bool(series.extents) == (held_bytes_max < 10**9)
        digest = local.digest(series)
        assert (digest.count, digest.hexdigest()) == (
            len(expected),
            hashlib.sha256(expected.tobytes()).hexdigest(),
        )
        assert not compare(local.records(series), [expected]).different.count


def add(local, *series):
    return local.add("run", batches.batch(batches.segment(batches.stream(), 0, 1, *series)))


def test_tag_belongs_to_plugin_that_came_first_in_its_run(spool):
    local = LocalRuns(spool, METADATA_BYTES_MAX)
    plain = batches.metadata("", 1)
    assert not add(local, batches.scalars("x", [1]))
    reason = "tag 'x' belongs to plugin 'scalars' in this run already"
    assert add(local, batches.texts("x", [2, 3], [b"a", b"b"])) == Counter({reason: 2})
    assert add(
        local, batches.scalars("x", [4], summary_metadata=batches.metadata("other", 1))
    ) == Counter({reason: 1})
    other_class = batches.texts("x", [2], [b"a"])
    other_class.summary_metadata = batches.metadata("scalars", 2)
    assert add(local, other_class) == Counter({reason: 1})
    assert not add(
        local, batches.scalars("x", [5], summary_metadata=plain)
    )  # no plugin named: the tag's own
    (series,) = local.series.values()
    assert [int(step) for part in local.records(series) for step in part["step"]] == [1, 5]


def test_first_metadata_counts_except_of_hparams(spool):
    local = LocalRuns(spool, METADATA_BYTES_MAX)
    for plugin in ("hparams", "scalars"):
        for content, wall_time in ((b"first", 5.0), (b"older", 4.0), (b"newest", 5.0)):
            metadata = batches.metadata(plugin, 1, content=content)
            add(
                local,
                batches.scalars(plugin, [0], wall_times=[wall_time], summary_metadata=metadata),
            )
    sha256 = {
        tag: hashlib.sha256(batches.metadata(tag, 1, content=content)).hexdigest()
        for tag, content in (("hparams", b"newest"), ("scalars", b"first"))
    }
    assert {series.tag: series.metadata_sha256 for series in local.series.values()} == sha256


def test_hparams_are_united_as_server_unites_them(spool):
    sent = [({"a": 1, "b": 1}, 1.0), ({"a": 3}, 3.0), ({"a": 2, "c": 2}, 2.0)]
    digests = set()
    for order in permutations(sent):
        local = LocalRuns(spool, METADATA_BYTES_MAX)
        for values, wall_time in order:
            add(local, hparams_records.series(hparams_records.record(values), wall_time))
        (series,) = local.series.values()
        assert hparams_records.hparams_of(series.metadata.serialize()) == {"a": 3, "b": 1, "c": 2}
        digests.add(series.metadata_sha256)
    assert len(digests) == 1


def test_hparams_over_limit_are_counted_as_skipped(spool):
    local = LocalRuns(spool, 600)
    assert not add(local, hparams_records.series(hparams_records.record({"a": "x" * 300}), 1.0))
    reason = "hyperparameters of one run over the limit of 600 bytes"
    assert add(local, hparams_records.series(hparams_records.record({"b": "x" * 300}), 2.0)) == {
        reason: 1
    }
    assert local.points == 1


def test_without_room_for_large_run_it_is_said_what_to_do(spool, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(
        UploadError, match=r"No such file or directory; .* set TMPDIR to a directory with more"
    ):
        spool.append(records([(1, 1, 1)]))


def finding(**fields):
    return Finding(
        "run",
        "tag",
        "scalars",
        "scalar",
        **{"status": Status.DIFFERENT, "points": 3, "stored_points": 4} | fields,
    )


def test_finding_is_one_line_with_first_steps():
    differences = Differences(StepSample(7, [1, 2, 3, 4, 5]), StepSample(1, [9]), StepSample())
    line = finding(differences=differences).line()
    assert line.endswith("7 points missing (steps 1, 2, 3, 4, 5, …); 1 point extra (step 9)")
    fields = finding(differences=differences).as_json()
    assert (fields["missing"], fields["first_extra_steps"], fields["different"]) == (7, [9], 0)


@pytest.mark.parametrize(
    ("fields", "is_proven", "is_proven_strictly"),
    [
        ({}, True, True),
        ({"notes": ["cut"]}, True, True),
        ({"extra_runs": ["old"]}, True, False),
        ({"statuses": Counter({Status.EXTRA: 1})}, True, False),
        ({"statuses": Counter({Status.MISSING: 1})}, False, False),
        ({"statuses": Counter({Status.DIFFERENT: 1})}, False, False),
        ({"skipped": Counter({"reason": 1})}, False, False),
        ({"problems": ["path"]}, False, False),
    ],
)
def test_verdict_fails_on_missing_and_strict_extra(fields, is_proven, is_proven_strictly):
    assert VerifyResult("e", is_strict=False, **fields).is_matching is is_proven
    assert VerifyResult("e", is_strict=True, **fields).is_matching is is_proven_strictly


def test_verdict_says_first_whether_it_is_proven():
    assert next(VerifyResult("e", is_strict=False).lines()).startswith(
        "matches: experiment e has all points"
    )
    lines = list(
        VerifyResult(
            "e", is_strict=False, extra_runs=["old"], skipped=Counter({"reason": 2})
        ).lines()
    )
    assert lines[0].startswith("DOES NOT MATCH")
    assert "  cannot be uploaded: 2: reason" in lines
    assert "runs that are not in the logdir: 1 (old)" in lines


@pytest.fixture
def server(monkeypatch, tmp_path):
    with faulty_server() as server:
        for name, value in (
            ("SERVER", server.url),
            ("TOKEN", "tbh_secret"),
            ("CONFIG", str(tmp_path / "config.toml")),
        ):
            monkeypatch.setenv(f"TBHUB_{name}", value)
        yield server


def test_exit_codes_tell_later_from_wrong_usage(server: FaultyServer, tmp_path, capsys):
    server.replies = [Reply(503)]
    verify = ["verify", "--logdir", str(tmp_path), "--retry-timeout", "0.1"]
    assert main([*verify, "--experiment", "abc"]) == 75
    assert main([*verify, "--experiment", "abc", "--json"]) == 75
    assert '{"event": "failed"' in capsys.readouterr().out
    assert main([*verify, "--experiment", "?"]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(verify)
