"""Downloads: all points of a data class, or all sessions, as one file.

They are below the page, so that its cookie applies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tbservice.api.formats import MEDIA_TYPES, Format, encode_points
from tbservice.api.formats.record_tables import TableFormat, encode_table, make_table
from tbservice.api.http.head_requests import wants_body
from tbservice.api.http.streaming import stream_response
from tbservice.audit.recording import record_export
from tbservice.errors import NotFound, TooManyRequests, Unavailable
from tbservice.hparams.session_columns import open_session_columns
from tbservice.pages.stock_page import message_pages, page_auth, token_form
from tbservice.reading.source import ExperimentReader
from tbservice.types.sampling import SamplingRule
from tbwire.points import DATA_CLASSES, DataClass

SESSIONS: Final = "sessions"
"""The table of hyperparameters and last values of metrics, a row per session."""

FILES: Final = {
    f"{name}.{file_format.value}": (content, file_format)
    for name, content in (*DATA_CLASSES.items(), (SESSIONS, None))
    for file_format in (Format.CSV, Format.PARQUET)
}
"""Data class (None: sessions) and format of each file below `download/`, by file name."""

_UNNAMED: Final = "experiment"
_NAME_CHARS_MAX: Final = 100
# Characters that Windows, macOS or Linux do not allow in file names.
_FORBIDDEN_IN_FILE_NAME: Final = re.compile(r'[<>:"/\\|?*]')
# RFC 6266, appendix D: browsers decode "%" and non-ASCII in the plain `filename` in different ways.
_FORBIDDEN_IN_HEADER: Final = re.compile(r"[^ -~]|%")


def send_file(request: Request) -> Response:
    """Answer GET `download/{file}`: stream it in bounded memory.

    TooManyRequests and Unavailable are shown as a page: the request comes from a link.
    """
    try:
        return _send(request)
    except (TooManyRequests, Unavailable) as error:
        return message_pages.show_download_error(error)


def _send(request: Request) -> Response:
    name = request.path_params["file"]
    offered = request.query_params.getlist("token")
    if any(offered):
        return token_form.store_tokens(request, offered, quote(name, safe=""), "../")
    try:
        experiment = page_auth.open_experiment(request)
    except page_auth.ACCESS_ERRORS:
        return token_form.ask_for_token(request, "../")

    if name not in FILES:
        raise NotFound(f"there is no such file to download; the files are {', '.join(FILES)}")
    data_class, file_format = FILES[name]

    headers = {
        "Cache-Control": "no-store",  # a cached copy would only fill the browser's disk
        "Content-Disposition": _content_disposition(experiment.list_experiments()[0].name, name),
    }
    if not wants_body(request):
        return StreamingResponse(iter(()), headers=headers, media_type=MEDIA_TYPES[file_format])
    record_export(experiment.database, experiment.grant)
    return stream_response(
        lambda: _encode_chunks(experiment, data_class, file_format),
        headers,
        MEDIA_TYPES[file_format],
        show_refusal=message_pages.show_download_error,
    )


def _encode_chunks(
    experiment: ExperimentReader, data_class: DataClass | None, file_format: Format
) -> Iterator[bytes]:
    if data_class is None:
        sessions = open_session_columns(experiment)
        table = make_table(sessions.types, sessions.read_chunks())
        return encode_table(TableFormat(file_format.value), table)
    chunks = experiment.stream_all(data_class)
    return encode_points(file_format, data_class, chunks, SamplingRule.ALL.value)


def _content_disposition(experiment_name: str, file: str) -> str:
    """Return a Content-Disposition that names the file after the experiment.

    As in RFC 6266, section 5: `filename` in ASCII, and `filename*` (RFC 8187) with all characters.
    """
    safe = "".join(
        character if character.isprintable() else "_"
        for character in _FORBIDDEN_IN_FILE_NAME.sub("_", experiment_name)
    )
    name = f"{safe[:_NAME_CHARS_MAX].strip(' .') or _UNNAMED}-{file}"
    ascii_name = _FORBIDDEN_IN_HEADER.sub("_", name)
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"
