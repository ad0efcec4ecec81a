"""Jobs of handler processes: suggestions, which take a processor for up to seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions import reply, validation


def suggest(_link: object, request: bytes, state: bytes | None) -> tuple[bytes, bytes | None]:
    """Answer a GetSuggestionsRequest; returns a GetSuggestionsReply, and the state to keep."""
    message, state = reply.suggest(pb.GetSuggestionsRequest.FromString(request), state)
    return message.SerializeToString(), state


def validate(_link: object, experiment: bytes) -> bytes:
    """Check an Experiment; returns an empty ValidateAlgorithmSettingsReply."""
    validation.validate(pb.Experiment.FromString(experiment))
    return b""


JOBS: Final[dict[str, Callable[..., Any]]] = {
    "katib_suggest": suggest,
    "katib_validate": validate,
}

# At import, which is before the processes are forked: the libraries take seconds to load.
reply.load_all()
