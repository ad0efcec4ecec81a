"""Messages of Katib with too many fields are refused before any of them is built."""

import pytest

from support.katib_client import METHODS, report
from support.wire_format import LENGTH, key, varint
from tbservice.api.grpc import call
from tbservice.errors import MalformedRequest, TooLarge
from tbservice.ingest.field_counts import count_fields
from tbservice.katib import katib_pb2 as pb

REQUESTS = [getattr(pb, f"{method}Request") for method in METHODS]


def repeated_places(kind, outer=()):
    """Yield the field numbers that lead to each list of messages or strings in a message."""
    for field in kind.fields:
        place = (*outer, field.number)
        if field.is_repeated and field.type in {field.TYPE_MESSAGE, field.TYPE_STRING}:
            yield place
        if field.message_type:
            yield from repeated_places(field.message_type, place)


def nested(place, count):
    """Return a message with `count` empty items at a place."""
    *outer, number = place
    content = (key(number, LENGTH) + b"\0") * count
    for field in reversed(outer):
        content = key(field, LENGTH) + varint(len(content)) + content
    return content


PLACES = [
    pytest.param(request, place, id=f"{request.DESCRIPTOR.name}-{'.'.join(map(str, place))}")
    for request in REQUESTS
    for place in repeated_places(request.DESCRIPTOR)
]


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr("tbservice.api.grpc.call.GRPC_MESSAGE_FIELDS_MAX", 1_000)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("request_type", "place"), PLACES)
def test_list_over_limit_is_refused_wherever_it_is(request_type, place):
    request_type.FromString(nested(place, 1_001))
    with pytest.raises(TooLarge, match=r"at most 1000 fields \(grpc_message_fields_max\)"):
        call.check_count(nested(place, 1_001), request_type)
    call.check_count(nested(place, 1_000 - len(place)), request_type)


def test_places_include_lists_of_each_service():
    assert len(PLACES) > 30
    kinds = {place.values[0] for place in PLACES}
    assert {pb.ReportObservationLogRequest, pb.GetSuggestionsRequest} < kinds
    assert pb.ValidateEarlyStoppingSettingsRequest in kinds


def test_log_counts_as_one_field():
    message = report("t", *[("loss", number) for number in range(500)]).SerializeToString()
    counted = call._find_counted(pb.ReportObservationLogRequest.DESCRIPTOR)
    assert count_fields(message, counted, 10_000) == 500 + 2


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("end", [b"\x0b", b"\x0f", b"\x0a", b"\x0a\xff", b"\xff" * 11])
def test_what_is_no_message_is_malformed(end):
    unknown = key(15, LENGTH) + varint(5_000) + bytes(5_000)
    call.check_count(unknown, pb.GetSuggestionsRequest)
    with pytest.raises(MalformedRequest, match=r"is not a api\.v1\.beta1\.GetS"):
        call.check_count(unknown + end, pb.GetSuggestionsRequest)


def test_largest_request_that_is_served_has_fewer_fields():
    """10,000 trials of 100 parameters, with an observation and times."""
    trial = pb.Trial(name="sweep-bcdfghjk")
    trial.spec.parameter_assignments.assignments.extend(
        [pb.ParameterAssignment(name="x", value="1")] * 100
    )
    trial.spec.objective.objective_metric_name = "loss"
    trial.status.start_time = trial.status.completion_time = "2026-01-02T03:04:05Z"
    trial.status.condition = pb.TrialStatus.SUCCEEDED
    trial.status.observation.metrics.extend([pb.Metric(name="loss", value="1")] * 10)
    request = pb.GetSuggestionsRequest(trials=[trial] * 10_000)
    call.check_count(request.SerializeToString(), pb.GetSuggestionsRequest)
