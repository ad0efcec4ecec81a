"""An experiment's points as files to keep: all of them, at full resolution, below the page, whose cookie opens them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tbservice.api.formats import MEDIA_TYPES, Format, encode_points, json_encoding
from tbservice.api.http.streaming import stream_response
from tbservice.api.v1.point_queries import DATA_CLASSES
from tbservice.errors import NotFound, TooManyRequests, Unavailable
from tbservice.pages import message_pages, page_auth, token_form
from tbservice.reading.source import ExperimentReader
from tbservice.types import DataClass, Json, SamplingRule

FILES: Final = {
    f"{kind}.{chosen.value}": (data_class, chosen)
    for kind, data_class in DATA_CLASSES.items()
    for chosen in (Format.CSV, Format.PARQUET)
}
"""What there is below `download/`, by name."""

_UNNAMED: Final = "experiment"
_NAME_CHARS_MAX: Final = 100
_FORBIDDEN_IN_FILE_NAME: Final = re.compile(
    r'[<>:"/\\|?*]'
)  # what a file's name cannot hold on one system or another
_FORBIDDEN_IN_HEADER: Final = re.compile(
    r"[^ -~]|%"
)  # what browsers read differently in a header's plain field


def send_file(request: Request) -> Response:
    """GET `download/{file}`: all points of a data class, sent while they are read.

    In the place of a file that is not to be had, a page that says why.
    """
    try:
        return _send(request)
    except (TooManyRequests, Unavailable) as error:
        return message_pages.show_download_error(error)


def _send(request: Request) -> Response:
    try:
        experiment = page_auth.open_experiment(request)
    except page_auth.ACCESS_ERRORS:
        return token_form.ask_for_token(request, "../")
    name = request.path_params["file"]
    if name not in FILES:
        raise NotFound(f"there is no such file to download; there are {', '.join(FILES)}")
    data_class, chosen = FILES[name]
    headers = {
        "Cache-Control": "no-store",  # a copy for every look would fill the browser's disk
        "Content-Disposition": _content_disposition(experiment.list_experiments()[0].name, name),
    }
    if request.method == "HEAD":
        return StreamingResponse(iter(()), headers=headers, media_type=MEDIA_TYPES[chosen])
    return stream_response(
        lambda: _encode_chunks(experiment, data_class, chosen), headers, MEDIA_TYPES[chosen]
    )


def _encode_chunks(
    experiment: ExperimentReader, data_class: DataClass, chosen: Format
) -> Iterator[bytes]:
    rule = SamplingRule.ALL.value

    def as_json(sample: Any) -> Json:
        return json_encoding.sample_to_json(sample, json_encoding.sample_values(sample), rule)

    return encode_points(chosen, data_class, experiment.stream_all(data_class), rule, as_json)


def _content_disposition(experiment_name: str, file: str) -> str:
    """The header that has a file kept under the experiment's name; in letters of any script where browsers can."""
    safe = "".join(
        letter if letter.isprintable() else "_"
        for letter in _FORBIDDEN_IN_FILE_NAME.sub("_", experiment_name)
    )
    name = f"{safe[:_NAME_CHARS_MAX].strip(' .') or _UNNAMED}-{file}"
    return f"attachment; filename=\"{_FORBIDDEN_IN_HEADER.sub('_', name)}\"; filename*=UTF-8''{quote(name, safe='')}"
