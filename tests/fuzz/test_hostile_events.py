"""Event files that no writer writes: read as protobuf reads them, and accepted by the server."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.damaged_files import Bench, read_plainly, read_to_end
from support.event_files import encode_records, scalar_event
from support.hostile_events import event_file
from support.read_events import open_file
from support.wire_format import LENGTH, Choices, drawn, key, varint
from tbservice import limits
from tbservice.ingest import decode
from tbupload.http.wire_limits import WireLimits
from tbupload.upload.segments import encode_segment
from tbwire import wire_pb2

WIRE_LIMITS = WireLimits(
    **{name: getattr(limits, name.upper()) for name in WireLimits.__dataclass_fields__}
)
STREAM = wire_pb2.Stream(
    run="r", file_name="f", first_record_digest=bytes(32), filters_digest=bytes(32)
)

choices = st.binary(max_size=400)
fuzzing = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@settings(fuzzing, max_examples=200)
@given(choices, st.booleans())
def test_any_mixture_of_events_is_read_as_protobuf_reads_it(bench, data, final):
    bench.check(event_file(Choices(data)), final=final)


@settings(fuzzing, max_examples=100)
@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_payloads_leave_records_beside_them_alone(bench, payloads):
    content = encode_records([scalar_event("t", 0, 1.0), *payloads * 9, scalar_event("t", 1, 1.0)])
    assert bench.check(content).damaged == 0


@settings(fuzzing, max_examples=100)
@given(st.binary(max_size=200), st.integers(0, 200))
def test_bytes_after_sound_records_are_damage_or_incomplete(bench, noise, cut):
    sound = encode_records([scalar_event("t", step, 1.0) for step in range(3)])
    result = bench.check(sound[: len(sound) - cut] + noise)
    assert set(result.payloads) <= set(read_plainly(sound).payloads)


def test_server_takes_what_reader_lets_through(tmp_path):
    taken = 0
    for data in drawn(600):
        (tmp_path / "file").write_bytes(event_file(Choices(data)))
        for chunk in read_to_end(open_file(tmp_path / "file"), final=True)[0]:
            segment = encode_segment(STREAM, chunk, None, {}, WIRE_LIMITS)
            if len(segment.body) <= limits.BATCH_BYTES_MAX:
                (received,) = decode.decode_batch(segment.body)
                assert [series.tag for series in received.series] == [
                    series.tag for series in chunk.series
                ]
                taken += len(received.series)
    assert taken > 300


# Records read as if they were too long to be loaded


@settings(fuzzing, max_examples=100)
@given(choices, st.sampled_from([0, 2, 5, 20, 100]))
def test_long_record_gives_same_points_as_loaded_one(bench, data, field_bytes_max):
    bench.check_streamed(event_file(Choices(data)), field_bytes_max=field_bytes_max)


@pytest.mark.parametrize(
    "odd", [key(2**29, LENGTH) + b"\x03abc", key(15, LENGTH) + varint(3, padding=5) + b"abc"]
)
def test_long_record_with_invalid_field_is_no_event(bench, odd):
    content = encode_records([scalar_event("t", 0, 1.0).SerializeToString() + odd])
    bench.check(content)
    bench.check_streamed(content, field_bytes_max=0)
