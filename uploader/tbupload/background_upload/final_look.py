"""A look at the files of an upload that has ended: what was written since then is not uploaded."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace

from tbupload.background_upload.rest_command import command_for_rest
from tbupload.background_upload.result import Result
from tbupload.console.texts import counted
from tbupload.errors import UploadError
from tbupload.remote_files import make_path

NOT_UPLOADED = "were written after the uploader had ended, and are not uploaded"


def look_again(result: Result, options: Sequence[str]) -> Result:
    """Return the result of an upload that has ended, with what it says of the files as they are.

    `options` are those of its command, `--logdir` first. A result that is not complete is returned
    as it is; so is one if the files cannot be listed.
    """
    if not result.is_complete:
        return result
    # Here, because the script needs it only after the end of an upload.
    from tbupload.events.filters import SeriesFilter  # noqa: PLC0415
    from tbupload.logdir.scan import scan_logdir  # noqa: PLC0415

    texts = dict(option[2:].split("=", 1) for option in options if "=" in option)
    include, exclude = (
        re.compile(texts[name]) if name in texts else None
        for name in ("include-runs", "exclude-runs")
    )
    series_filter = SeriesFilter(include_runs=include, exclude_runs=exclude)
    try:
        scan = scan_logdir(make_path(texts["logdir"]), series_filter, sys.maxsize)
    except (UploadError, OSError):
        return result

    new_bytes, new_files = scan.bytes - result.file_bytes, len(scan.files) - result.files
    if new_bytes <= 0 and new_files <= 0:
        return result
    what = counted(new_files, "file")
    if new_bytes > 0:
        what = f"{counted(new_bytes, 'byte')} of event files"
    command = command_for_rest(options, result.experiment_id)
    explanation = f"{what} {NOT_UPLOADED}; to send the rest, run: {command}"
    return replace(result, is_growing=True, explanation=explanation)
