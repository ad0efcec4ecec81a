"""Batches over HTTP into a real database: committed completely, once; the newest point of a step
wins.
"""

from __future__ import annotations

import gzip
import socket
from urllib.parse import urlsplit

import numpy as np
import pytest
from psycopg.sql import SQL, Identifier
from sqlalchemy import text as sql

from support import batches
from support.batches import images, packed_scalars, scalars, segment, stream, texts
from support.postgres_faults import postgres_faults
from support.servers import database_name, live_api
from support.statements import record_statements
from tbservice import limits
from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.db.pipeline import fetch_binary
from tbservice.ingest import commit
from tbservice.ingest.decode import decode_batch
from tbservice.ingest.door import PointWriter
from tbservice.series.tables import scalar_format
from tbwire import wire_pb2


@pytest.fixture
def experiment(api):
    return api.new_experiment(name="ingest")


def read(api, experiment, path="scalars/data", **parameters):
    return api.get(experiment, path, downsample=1_000_000, **parameters)


def post(api, experiment, body, **headers):
    """Post any bytes as a batch; return the response."""
    headers = batches.PROTOBUF | headers
    path = f"/experiments/{experiment}/batches"
    return api.request("POST", path, content=body, headers=headers)


def test_scalars_are_read_back_bit_by_bit(api, experiment):
    values = np.array([1 / 3, -0.0, 5e-324, 1e308])
    result = api.write(experiment, segment(stream(), 0, 100, scalars("loss", [0, 1, 2, 3], values)))
    assert (result.scalars, result.cursors[0].offset) == (4, 100)
    series = read(api, experiment)["train"]["loss"]
    assert series["steps"] == [0, 1, 2, 3]
    assert np.array(series["values"]).tobytes() == values.tobytes()
    assert series["wall_times"] == [1.7e9, 1.7e9 + 1, 1.7e9 + 2, 1.7e9 + 3]
    assert series["total"] == 4


def test_numbers_that_are_not_finite_travel_as_strings(api, experiment):
    api.write(
        experiment, segment(stream(), 0, 100, scalars("loss", [0, 1, 2], [np.nan, np.inf, -np.inf]))
    )
    assert read(api, experiment)["train"]["loss"]["values"] == ["NaN", "Infinity", "-Infinity"]


def test_repeated_segment_changes_nothing(api, experiment):
    sent = segment(stream(), 0, 100, scalars("loss", [0, 1, 2]))
    assert api.write(experiment, sent).scalars == 3
    again = api.write(experiment, sent)
    assert (again.scalars, again.cursors[0].offset) == (0, 100)
    assert read(api, experiment)["train"]["loss"]["total"] == 3


def test_segment_with_gap_or_overlap_is_refused_with_cursor(api, experiment):
    api.write(experiment, segment(stream(), 0, 100, scalars("loss", [0])))
    for start, end in ((150, 200), (50, 200)):
        answer = api.send(experiment, segment(stream(), start, end, scalars("loss", [1])))
        assert answer.status_code == 409
        assert (answer.json()["code"], answer.json()["offset"]) == ("cursor_conflict", 100)
    assert read(api, experiment)["train"]["loss"]["total"] == 1


def test_segment_of_changed_file_starts_new_generation(api, experiment):
    api.write(experiment, segment(stream(), 0, 100, scalars("loss", [0])))
    answer = api.send(
        experiment, segment(stream(), 100, 200, scalars("loss", [1]), start_checksum=7)
    )
    assert (answer.status_code, answer.json()["code"]) == (409, "stream_replaced")
    api.write(experiment, segment(stream(generation=1), 0, 50, scalars("loss", [0, 5])))
    assert read(api, experiment)["train"]["loss"]["steps"] == [0, 5]


def test_batch_with_one_bad_segment_is_refused_whole(api, experiment):
    good = segment(stream("a"), 0, 100, scalars("loss", [0]))
    bad = segment(stream("b"), 5, 100, scalars("loss", [0]))
    assert api.send(experiment, good, bad).status_code == 409
    assert read(api, experiment) == {}
    assert api.get(experiment, "streams")["streams"] == []


def test_one_batch_may_carry_several_segments_of_stream(api, experiment):
    first = segment(stream(), 0, 100, scalars("loss", [0]))
    second = segment(stream(), 100, 200, scalars("loss", [1]))
    assert [cursor.offset for cursor in api.write(experiment, first, second).cursors] == [200, 200]
    assert read(api, experiment)["train"]["loss"]["steps"] == [0, 1]


def test_newest_point_of_step_wins_in_whatever_order_they_come(api, experiment):
    old = scalars("loss", [1, 2], [10, 20], [100, 100])
    new = scalars("loss", [1, 2], [11, 21], [200, 200])
    late = scalars("loss", [2], [99], [50])
    api.write(experiment, segment(stream(file_name="b"), 0, 9, new))
    api.write(experiment, segment(stream(file_name="a"), 0, 9, old))
    api.write(experiment, segment(stream(file_name="c"), 0, 9, late))
    series = read(api, experiment)["train"]["loss"]
    assert (series["steps"], series["values"], series["total"]) == ([1, 2], [11, 21], 2)
    listed = api.get(experiment, "scalars")["train"]["loss"]
    assert (listed["count"], listed["last_value"], listed["max_wall_time"]) == (2, 21, 200)


def test_greatest_wall_time_is_that_of_whichever_step_has_it(api, experiment):
    api.write(
        experiment, segment(stream(), 0, 9, scalars("loss", [1, 2, 9], [1, 2, 9], [100, 900, 300]))
    )
    assert api.get(experiment, "scalars")["train"]["loss"]["max_wall_time"] == 900
    api.write(
        experiment, segment(stream(), 9, 19, scalars("loss", [3, 4], [3, 4], [1_000, 950]))
    )  # restarted
    listed = api.get(experiment, "scalars")["train"]["loss"]
    assert (listed["max_step"], listed["max_wall_time"]) == (9, 1_000)


def test_newest_tensor_and_blob_sequence_of_step_win_too(api, experiment):
    api.write(experiment, segment(stream(file_name="b"), 0, 9, texts("note", [1], [b"new"], [200])))
    api.write(
        experiment,
        segment(stream(file_name="a"), 0, 9, texts("note", [1, 2], [b"old", b"two"], [100, 100])),
    )
    series = read(api, experiment, "tensors/data")["train"]["note"]
    assert [value["data"] for value in series["values"]] == [["new"], ["two"]]
    assert series["total"] == 2
    api.write(
        experiment,
        segment(stream(file_name="c"), 0, 9, images("cat", [1, 1], [[b"a"], [b"b", b"c"]])),
    )
    series = read(api, experiment, "blob_sequences/data")["train"]["cat"]
    assert [len(value) for value in series["values"]] == [2]
    assert api.get(experiment, "blob_sequences")["train"]["cat"]["max_length"] == 2


def test_steps_may_be_negative_repeated_and_extreme(api, experiment):
    steps = [2**63 - 1, -(2**63), 5, 5, 0, -7]
    api.write(
        experiment, segment(stream(), 0, 9, scalars("loss", steps, [1, 2, 3, 4, 5, 6], [10] * 6))
    )
    series = read(api, experiment)["train"]["loss"]
    assert series["steps"] == [-(2**63), -7, 0, 5, 2**63 - 1]
    assert series["values"] == [2, 6, 5, 4, 1]
    assert series["total"] == 5


def test_runs_and_tags_may_have_any_name(api, experiment):
    for name in (
        "a b",
        "a/b//c",
        'it\'s "quoted"',
        "../..",
        "😀",
        "x" * 10_000,
        "%(x)s :y $1",
        "",
        ".",
        "a\nb",
    ):
        api.write(
            experiment,
            segment(stream(name), 0, 9, scalars(name, [0]), texts(name[1:] + "!", [0], [b"t"])),
        )
        assert read(api, experiment)[name][name]["total"] == 1, name
        answer = api.request(
            "POST", f"/experiments/{experiment}/scalars/data", json={"run": [name], "tag": [name]}
        )
        assert list(answer.json()) == [name], name
        api.request(
            "DELETE", f"/experiments/{experiment}/series", params={"run": name, "tag": name}
        ).raise_for_status()
        assert read(api, experiment) == {}, name


def test_series_needs_metadata_only_when_new(api, experiment):
    answer = api.send(
        experiment, segment(stream(), 0, 9, scalars("loss", [0], summary_metadata=b""))
    )
    assert (answer.status_code, answer.json()["code"], answer.json()["segment"]) == (
        409,
        "metadata_missing",
        0,
    )
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", [0])))
    api.write(experiment, segment(stream(), 9, 19, scalars("loss", [1], summary_metadata=b"")))
    assert read(api, experiment)["train"]["loss"]["total"] == 2


def test_tag_of_other_plugin_is_counted_as_skipped(api, experiment):
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", [0])))
    result = api.write(
        experiment,
        segment(stream(), 9, 19, texts("loss", [0, 1], [b"a", b"b"]), scalars("acc", [0])),
    )
    (skipped,) = result.cursors[0].skipped
    assert (skipped.count, "loss" in skipped.reason, result.tensors) == (2, True, 0)
    assert set(read(api, experiment)["train"]) == {"loss", "acc"}
    (listed,) = api.get(experiment, "streams")["streams"]
    assert list(listed["skipped"].values()) == [2]


def test_values_of_no_plugin_go_to_series_of_their_tag(api, experiment):
    nameless = texts("note", [1], [b"second"])
    nameless.summary_metadata = batches.metadata("", 2)
    api.write(experiment, segment(stream(), 0, 9, texts("note", [0], [b"first"])))
    result = api.write(experiment, segment(stream(file_name="b"), 0, 9, nameless))
    assert (len(result.cursors[0].skipped), result.tensors) == (0, 1)
    assert read(api, experiment, "tensors/data")["train"]["note"]["steps"] == [0, 1]
    assert api.get(experiment, "plugins") == {"plugins": ["text"]}


def test_skipped_counts_of_client_are_summed_per_stream(api, experiment):
    api.write(experiment, segment(stream(), 0, 9, skipped={"bad record": 2}))
    result = api.write(experiment, segment(stream(), 9, 19, skipped={"bad record": 3}))
    assert [(skipped.reason, skipped.count) for skipped in result.cursors[0].skipped] == [
        ("bad record", 5)
    ]


def test_metadata_of_hparams_is_newest_and_of_others_first(api, experiment):
    def described(tag, plugin, data_class, text, wall_time):
        series = texts(tag, [0], [b""], [wall_time])
        series.summary_metadata = batches.metadata(plugin, data_class, description=text)
        return series

    for name, text, wall_time in (("a", "second", 20), ("b", "first", 10), ("c", "third", 30)):
        sent = [
            described("h", "hparams", 2, text, wall_time),
            described("t", "text", 2, text, wall_time),
        ]
        api.write(experiment, segment(stream(file_name=name), 0, 9, *sent))
    listed = api.get(experiment, "tensors")["train"]
    assert listed["h"]["summary_metadata"]["description"] == "third"
    assert listed["t"]["summary_metadata"]["description"] == "second"


def test_batch_may_be_gzip(api, experiment):
    body = gzip.compress(batches.batch(segment(stream(), 0, 9, scalars("loss", [0]))))
    compressed = {"Content-Encoding": "gzip"}
    assert post(api, experiment, body, **compressed).status_code == 200
    for bad in (body[:-3], b"no gzip", body + body, body + b"junk"):
        answer = post(api, experiment, bad, **compressed)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    bomb = gzip.compress(bytes(17 * 1024 * 1024))
    assert post(api, experiment, bomb, **compressed).status_code == 413


def test_batches_that_contradict_themselves_are_refused(api, experiment):
    def sent_with(**columns):
        series = wire_pb2.Series(tag="x", summary_metadata=batches.metadata())
        series.scalars.CopyFrom(wire_pb2.ScalarPoints(**columns))
        return segment(stream(), 0, 9, series)

    eight, four = bytes(8), bytes(4)
    for sent, status in (
        (sent_with(steps=eight, wall_times=eight, values32=eight), 422),
        (sent_with(steps=eight, wall_times=eight), 422),
        (sent_with(steps=b"123", wall_times=eight, values32=four), 422),
        (sent_with(steps=eight, wall_times=np.array([np.nan]).tobytes(), values32=four), 422),
        (segment(stream(), 10, 9), 422),
        (segment(stream("a\0b"), 0, 9), 422),
        (segment(stream("x" * 10_001), 0, 9), 413),
        (segment(stream(), 0, 9, scalars("a\0b", [0])), 422),
        (segment(stream(), 0, 9, texts("t", [0, 1], [b"only one"])), 422),
        (segment(stream(), 0, 9, texts("t", [0], [bytes(11 * 1024 * 1024)])), 413),
    ):
        answer = api.send(experiment, sent)
        assert answer.status_code == status, (answer.text, str(sent)[:200])
        assert answer.json()["detail"]
    answer = post(api, experiment, b"\xff")
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert post(api, experiment, bytes(16 * 1024 * 1024 + 1)).status_code == 413
    assert read(api, experiment) == {}


def test_packed_blocks_are_stored_block_by_block_and_readable(
    api, experiment, database, workspace_id
):
    values = np.random.default_rng(0).normal(size=20_000).astype(np.float32)
    sent = packed_scalars("loss", np.arange(20_000), values, block_points=4000)
    assert api.write(experiment, segment(stream(), 0, 100, sent)).scalars == 20_000
    assert (
        api.write(experiment, segment(stream(), 100, 200, scalars("loss", [20_000], [7.0]))).scalars
        == 1
    )
    series = read(api, experiment)["train"]["loss"]
    assert series["steps"] == list(range(20_001))
    assert series["values"] == [*values.astype(np.float64).tolist(), 7.0]
    with database.snapshot(workspace_id) as db:
        kept = [
            bytes(row.data)
            for row in db.execute(sql("SELECT data FROM scalar_blocks ORDER BY block_id"))
        ]
    for stored, block in zip(kept, sent.scalars.blocks, strict=True):
        assert len(stored) < len(block)
        points, expected = scalar_format.unpack(stored), scalar_format.unpack(block)
        assert points.steps.tolist() == expected.steps.tolist()
        assert points.wall_times.tolist() == expected.wall_times.tolist()
        assert points.values.tobytes() == expected.values.tobytes()


def test_packed_blocks_of_few_points_are_repacked(api, experiment, database, workspace_id):
    sent = packed_scalars("loss", np.arange(3_000), block_points=10)
    assert api.write(experiment, segment(stream(), 0, 100, sent)).scalars == 3_000
    with database.snapshot(workspace_id) as db:
        assert db.execute(sql("SELECT count FROM scalar_blocks")).scalars().all() == [3_000]
    assert read(api, experiment)["train"]["loss"]["steps"] == list(range(3_000))


def _packed(**fields):
    sent = packed_scalars("loss", np.arange(2_000))
    fields = {"blocks": list(sent.scalars.blocks)} | fields
    sent.scalars.CopyFrom(wire_pb2.ScalarPoints(**fields))
    return sent


def test_packed_blocks_malformed_are_refused_with_reason(api, experiment):
    for series, status, reason in (
        (_packed(steps=bytes(8)), 422, "both packed blocks and columns"),
        (_packed(blocks=[b"", b""]), 422, "shorter than its header"),
        (_packed(blocks=[packed_scalars("x", [0]).scalars.blocks[0][:-1]]), 422, "length"),
        (packed_scalars("loss", np.arange(9_000), block_points=9_000), 413, "at most 8192 points"),
        (packed_scalars("loss", [0, 1, 1, 2]), 422, "not strictly ascending"),
        (packed_scalars("loss", [0, 1, 5, 4], block_points=2), 422, "not strictly ascending"),
        (packed_scalars("loss", [0, 1], wall_times=[0.0, np.nan]), 422, "NaN"),
    ):
        answer = api.send(experiment, segment(stream(), 0, 100, series))
        assert (answer.status_code, reason in answer.json()["detail"]) == (status, True), (
            answer.text
        )


def test_skipped_counts_end_at_wire_maximum(api, experiment):
    for start in (0, 10, 10):
        sent = segment(
            stream(), start, start + 10, scalars("loss", [start]), skipped={"odd": 2**64 - 1}
        )
        assert api.write(experiment, sent).cursors[0].skipped[0].count == 2**63 - 1
    assert api.get(experiment, "streams")["streams"][0]["skipped"] == {"odd": 2**63 - 1}


@pytest.mark.parametrize("shape", [[0, 2**40, 2**40], [2**62, 0]])
@pytest.mark.parametrize("dtype", [1, 7])
def test_empty_tensor_with_dimensions_no_array_has_is_refused(api, experiment, dtype, shape):
    sent = texts("note", [0], [b""])
    sent.tensors.tensors[0].CopyFrom(wire_pb2.Tensor(dtype=dtype, shape=shape))
    answer = api.send(experiment, segment(stream(), 0, 9, sent))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_body_of_leaving_client_commits_nothing(live_service):
    address = urlsplit(live_service.url)
    with live_api(live_service.url, live_service.new_owner()) as api:
        experiment = api.new_experiment()
        with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
            connection.sendall(
                f"POST /api/v1/experiments/{experiment}/batches HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
                f"Content-Type: application/x-protobuf\r\nAuthorization: {api.headers['Authorization']}\r\n\r\nabc".encode()
            )
            connection.shutdown(socket.SHUT_WR)  # the client is gone in the middle of its body
            connection.recv(1)
        assert api.get(experiment, "streams")["streams"] == []


def test_batch_takes_constant_number_of_statements(api, experiment, monkeypatch):
    statements = record_statements(monkeypatch)

    def count(start, tags, **more):
        statements.clear()
        sent = [scalars(f"tag {tag}", [start], **more) for tag in range(tags)]
        api.write(
            experiment,
            *(segment(stream(f"run {run}"), start, start + 1, *sent) for run in range(3)),
        )
        # Another connection may be opened, because compaction has the first.
        opening = ("TimeZone", "pg_extension")
        return sum(not any(word in each for word in opening) for each in statements)

    count(0, 1)
    made, known = count(1, 100), count(2, 100, summary_metadata=b"")
    assert (made, known) == (count(3, 200), count(4, 200, summary_metadata=b""))
    assert 0 < known < made <= 31  # on a cluster, which finds the token and the experiment apart


def prepared_statements(database):
    """Yield (text, number of custom plans, generic plan) of each prepared statement of the pool's
    one connection.
    """
    with database.transaction() as db:
        fetch_binary(db, "SELECT set_config('plan_cache_mode', 'force_generic_plan', true)", {})
        rows = fetch_binary(
            db,
            "SELECT name, statement, custom_plans, parameter_types FROM pg_prepared_statements",
            {},
        )
        for name, statement, custom_plans, types in rows:
            values = f"({', '.join(['NULL'] * len(types))})" if types else ""
            plan = db.execute(sql(f"EXPLAIN EXECUTE {name}{values}")).scalars()
            yield statement, custom_plans, "\n".join(plan)


@pytest.mark.plain("counts statements at one server, and looks at its prepared ones")
@pytest.mark.parametrize("count", [1, 50])
def test_flush_into_known_series_takes_six_trips_and_no_planning(
    api, experiment, database_url, monkeypatch, count
):
    # A write buffer row per point: the most work.
    monkeypatch.setattr(limits, "WRITE_BUFFER_ROW_POINTS_MIN", 1)
    secret, tags = (
        api.headers["Authorization"].split()[1],
        [f"tag {number}" for number in range(count)],
    )
    with postgres_faults(database_url) as proxy:
        database = Database(proxy.url, 1)
        # A statement is prepared at its sixth execution, and then planned five times more.
        for step in range(16):
            proxy.disarm()
            more = {"summary_metadata": b""} if step else {}
            sent = batches.batch(
                segment(stream(), step, step + 1, *(scalars(tag, [step], **more) for tag in tags))
            )
            with database.without_transaction() as db:
                grant = grants.grant_append(db, experiment, secret)
            with database.transaction(grant.workspace_id) as db:
                result = commit.write_batch(PointWriter(db), grant, decode_batch(sent))
                assert result.counts.scalars == count
        words = [statement.split(maxsplit=1)[0].strip(";") for statement in proxy.statements]
        assert words == ["SELECT", "BEGIN"] + ["SELECT"] * 2 + ["INSERT"] * 2 + ["UPDATE"] * 3 + [
            "COMMIT"
        ]
        assert proxy.trips == 6
        prepared = list(prepared_statements(database))
        database.close()
    assert len(prepared) == 8
    assert max(custom_plans for _, custom_plans, _ in prepared) <= 5
    (writing,) = (plan for _, _, plan in prepared if " on time_series " in plan.splitlines()[0])
    assert not {"Join", "Nested"} & set(writing.split()), (
        "where values are joined, some day all are compared with all"
    )
    assert {columns["total"] for columns in read(api, experiment)["train"].values()} == {16}


@pytest.mark.own_database
def test_ingest_after_rollback_behind_open_connections(api, experiment, servers, database_url):
    """Clients of a connection pooler keep their connections when the database behind it is restored
    to an older state.
    """
    for step in range(2):
        api.write(experiment, segment(stream(), step, step + 1, scalars("loss", [step])))
    with servers.instance.postgres.connect_as_superuser(database_name(database_url)) as superuser:
        for table in ("scalar_tail", "time_series", "upload_streams", "tags"):
            superuser.execute(SQL("DELETE FROM {}").format(Identifier(table)))
        superuser.execute("SELECT setval('tags_tag_id_seq', 1, false)")
    api.write(experiment, segment(stream(), 0, 1, scalars("accuracy", [0])))
    api.write(experiment, segment(stream(), 1, 2, scalars("loss", [0, 1])))
    assert {tag: columns["steps"] for tag, columns in read(api, experiment)["train"].items()} == {
        "accuracy": [0],
        "loss": [0, 1],
    }
