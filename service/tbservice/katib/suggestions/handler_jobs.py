"""Jobs of handler processes: suggestions, which take a processor for up to seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions import reply


def suggest(_link: object, request: bytes) -> bytes:
    """Answer a GetSuggestionsRequest; returns a GetSuggestionsReply."""
    return reply.suggest(pb.GetSuggestionsRequest.FromString(request)).SerializeToString()


JOBS: Final[dict[str, Callable[..., Any]]] = {"katib_suggest": suggest}


def _load_all() -> None:
    """Load the libraries of all algorithms, and never pandas.

    scikit-learn imports it where it is installed, for 1 s and 60 MB: our rows are no data frames.
    """
    if "pandas" in sys.modules:
        reply.load_all()
        return
    sys.modules["pandas"] = None  # type: ignore[assignment] # so that importing it fails
    try:
        reply.load_all()
    finally:
        del sys.modules["pandas"]


# At import, which is before the processes are forked: the libraries take seconds to load.
_load_all()
