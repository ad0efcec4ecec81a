"""Native `tbhub_state`: whether there are new data, by which the page reloads them by itself."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response
from werkzeug.wrappers import Request

from tbservice.reading.comparison import Source
from tbservice.tensorboard.native import json_answers


def read_state(source: Source, request: Request) -> Response:
    """Answer with `{state, age}`: a text that changes with the data; and seconds since the newest.

    `age` is null if it is not known, as for readers of links that show a part.
    """
    experiments = source.list_experiments()
    times = [each.data_at for each in experiments if each.data_at is not None]
    age = (datetime.now(UTC) - max(times)).total_seconds() if times else None
    state = " ".join(f"{each.experiment_id}.{each.version}" for each in experiments)
    return json_answers.json_response(request, {"state": state, "age": age})
