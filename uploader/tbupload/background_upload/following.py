"""`follow`: uploads a log directory in the background of a training script."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final

from tbupload.background_upload.arguments import command_line
from tbupload.background_upload.process import UploaderProcess, logger
from tbupload.background_upload.rest_command import command_for_rest
from tbupload.background_upload.result import Result
from tbupload.background_upload.uploaders import (
    Uploader,
    flush_writers,
    leave,
    log_result,
    rejoin,
    start,
)
from tbupload.console.texts import counted
from tbupload.errors import UploadError
from tbupload.recording.exit_status import FINISHED, ending_of_exception
from tbupload.remote_files import make_path

if TYPE_CHECKING:
    from tbupload.notebook.live_picture import LivePicture
    from tbupload.notebook.page_view import Place

WAIT_SECONDS: Final = 60.0
"""Default time that `wait` and `stop` wait for the remaining data to be sent."""

_NOT_UPLOADED = "were written after the uploader had ended, and are not uploaded"


def follow(  # noqa: PLR0913  # the options of the command, by their names
    logdir: str | os.PathLike[str],
    *,
    name: str | None = None,
    description: str | None = None,
    visibility: str | None = None,
    experiment: str | None = None,
    experiment_name: str | None = None,
    resume: str | None = None,
    new: bool = False,
    plugins: Iterable[str] | None = None,
    include_runs: str | None = None,
    exclude_runs: str | None = None,
    include_tags: str | None = None,
    exclude_tags: str | None = None,
    hparams: str | os.PathLike[str] | None = None,
    server: str | None = None,
    token: str | None = None,
    cacert: str | os.PathLike[str] | None = None,
    poll_seconds: float | None = None,
    end_seconds: float | None = None,
    no_origin: bool = False,
    system_metrics: float | bool = False,
    console: int | bool = False,
) -> Following:
    """Upload a log directory, in a process of its own, while this one writes it; see `Following`.

        with tbupload.follow("runs/", name="a first try") as upload:
            print(upload.url)
            train("runs/")

    Args:
        logdir: the log directory; it need not exist yet.
        name: the name of a new experiment; by default that of the log directory, as `project/runs`.
        description: the description of a new experiment, as Markdown.
        visibility: "private" (default), or "link" for everyone who has the URL.
        experiment: ID or URL of an existing experiment to add to, from any machine.
        experiment_name: name of an experiment to add to; created if there is none.
        resume: "must", "allow" or "never", as for `tbupload --resume`.
        new: the same as resume="never".
        plugins: upload only series of these plugins, for example ["scalars", "images"].
        include_runs: upload only runs that this regular expression matches completely.
        exclude_runs: do not upload runs that match.
        include_tags: upload only tags that match completely.
        exclude_tags: do not upload tags that match.
        hparams: a JSON or YAML file with hyperparameters to set, as for `tbupload --hparams`.
        server: the server's address; by default TBHUB_SERVER, or that of the config file.
        token: the token; by default TBHUB_TOKEN, or that of the config file.
        cacert: a PEM file of certificate authorities to trust.
        poll_seconds: longest time until new runs, files and data are noticed; 5 by default.
        end_seconds: longest time that the script waits at its exit; see `Following`.
        no_origin: do not record machine, command, environment, start, end and status.
        system_metrics: measure the machine every 10 s, or as many seconds.
        console: record the last 100 lines that Python prints, or as many, secrets masked.

    Raises:
        TypeError, ValueError: an argument has the wrong type or value.
    """
    return Following(*command_line(dict(locals())), token, os.fsdecode(logdir), end_seconds).start()


class Following:
    """An upload in the background of a script, created by `follow`.

    The end of the block flushes the open writers of PyTorch, tensorboardX, TensorFlow and clu, and
    returns at once. They may be closed after it, or never: the upload ends when this process has
    ended, however that happens, and the files are unchanged for 10 s. Points that a writer has not
    written to its file are lost if the process is killed: only files are uploaded.

    Where the uploader would be killed with the script (in a container, and in jobs of SLURM, PBS
    and LSF), the script waits at its exit until everything is stored, for at most `end_seconds`: by
    default 60 s there, of which 10 s for a server that has never answered, and 0 s elsewhere. Files
    that are not sent by then are lost with a container's file system.

    If several processes train together, one should call `follow`, for the files of all. Called
    again with the same arguments while the upload is running, as in a notebook, it
    continues that, unless it is to create a new experiment.

    It is running already. In a notebook, whose process does not end, stop it if it is not needed
    any more:

        upload = tbupload.follow("runs/")
        ...
        upload.stop()

    The uploader is a separate process of lower priority that only reads files. If it fails, loses
    its server or is killed, the script continues without an exception: problems are logged to the
    logger "tbupload" when they occur, and `result` describes them. Once this process has ended,
    they are written to `follow.log` beside the config file.

    It may be restarted, and used from several threads. In a process forked from the one that
    started it, it does nothing.
    """

    def __init__(
        self,
        options: list[str],
        console_lines: int,
        token: str | None,
        logdir: str,
        end_seconds: float | None,
    ) -> None:
        self._options = options
        self._token = token
        self._logdir = logdir
        self._end_seconds = None if end_seconds is None else float(end_seconds)
        self._console_lines = console_lines
        self._uploader: Uploader | None = None
        self._depth = 0
        self._result: Result | None = None
        self._pictures: list[LivePicture] = []

    def start(self) -> Following:
        """Start the uploader unless it is running; return at once, and never raise."""
        process = self._process
        if process is not None and (process.is_running or not process.is_owned_here):
            if self._uploader is not None and process.is_running:
                rejoin(self._uploader)
            return self
        self._result = None
        try:
            self._uploader = start(
                self._options, self._token, self._logdir, self._end_seconds, self._console_lines
            )
        except Exception as error:  # noqa: BLE001  # no error may stop the training
            self._uploader = None
            self._set_result(
                Result(None, explanation=f"the uploader could not be started: {error}")
            )
        return self

    def wait(self, seconds: float = WAIT_SECONDS) -> Result | None:
        """Wait until everything written so far is stored, for at most `seconds`; return the result.

        Flushes the open writers first, and looks at every file. The upload continues. With
        `is_complete`, the result is a proof for all that was in the files when it was called; if
        the time is over, the `exit_code` is None. Problems are logged, never raised.

        After `stop`, or another end of the uploader, nothing more is sent: the result then says
        whether files have grown since, and is not complete if they have.
        """
        return self._finish(seconds, is_last=False)

    def stop(self, seconds: float = WAIT_SECONDS) -> Result | None:
        """Do as `wait`, and let the uploader exit then: what is written later is not uploaded.

        Return the result, or None if the upload was never started. Repeating the call sends
        nothing, and does as `wait` after it. If the time is over, the uploader continues to send
        what was there.
        """
        return self._finish(seconds, is_last=True)

    @property
    def url(self) -> str | None:
        """Return the experiment's URL, None while it is unknown, for example without a server.

        If a run is trained again meanwhile, it becomes that of another experiment. Waits for the
        URL until 30 s after the start, or 1 s after the first sign of a problem.
        """
        return self._event_field("url")

    @property
    def experiment_id(self) -> str | None:
        """Return the experiment's ID, None while it is unknown; wait as `url` does."""
        return self._event_field("experiment_id")

    @property
    def is_running(self) -> bool:
        """Return whether the uploader process is running."""
        return self._process is not None and self._process.is_running

    @property
    def result(self) -> Result | None:
        """Return how the upload ended; while it is running, the result of the latest `wait`."""
        process = self._process
        if process is not None and process.is_owned_here and not process.is_running:
            self._result = process.wait(0)
        return self._result

    def __enter__(self) -> Following:
        self._depth += 1
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        uploader = self._uploader
        if self._depth or uploader is None or not uploader.process.is_owned_here:
            return
        try:
            code = error.code if isinstance(error, SystemExit) else None
            leave(uploader, ending_of_exception(kind, code))
            flush_writers()
        except KeyboardInterrupt:
            if error is None:
                raise
            # A second Ctrl-C: the exception on its way is of the first.

    def __repr__(self) -> str:
        state = "running" if self.is_running else "not running"
        return f"<tbupload.Following {' '.join(self._options)!r} {state}>"

    def show(self, height: int | None = None) -> None:
        """Show the upload below a notebook's cell: a link, and curves that follow it.

        If the server allows frames, its page in place of the curves, `height` pixels high. After
        `wait` and `stop`, the curves have all that was stored.
        """
        # Here, because it needs what an upload does not.
        from tbupload.notebook import live_picture  # noqa: PLC0415

        picture = live_picture.show(self._find_place(), repr(self), height)
        self._pictures += [] if picture is None else [picture]

    _ipython_display_ = show

    def to_html(self, height: int | None = None) -> str:
        """Return what a notebook shows, as it is now."""
        from tbupload.notebook import page_view  # noqa: PLC0415  # as in `show`

        return page_view.render(self._find_place(), height).html

    _repr_html_ = to_html

    def _find_place(self) -> Place | None:
        from tbupload.notebook import page_view  # noqa: PLC0415  # as in `show`

        return page_view.find_place(self.url, self._token, self._options)

    @property
    def _process(self) -> UploaderProcess | None:
        return None if self._uploader is None else self._uploader.process

    def _event_field(self, key: str) -> str | None:
        return None if self._process is None else self._process.experiment_event().get(key)

    def _finish(self, seconds: float, *, is_last: bool) -> Result | None:
        process = self._process
        if process is None or not process.is_owned_here:
            return self._result
        if not process.is_running:
            return self._look_again()
        try:
            is_flushed = flush_writers()
            if is_last:
                if self._uploader is not None and self._uploader.console is not None:
                    self._uploader.console.finish()
                if self._uploader is not None and not self._uploader.has_left:
                    leave(self._uploader, FINISHED)
                process.request_stop()
                result = process.wait(seconds)
            else:
                result = process.wait_for_look(process.request_look(), seconds)
            if result.exit_code == 0 and not is_flushed:
                result = replace(result, is_growing=True)
            self._set_result(result)
            for picture in self._pictures:
                picture.draw()
        except Exception:  # noqa: BLE001  # no error may stop the training
            logger.exception("tbupload: the uploader could not be asked")
        return self._result

    def _look_again(self) -> Result | None:
        """Return the result of an upload that has ended, as the files are now."""
        result = self.result
        try:
            flush_writers()
            if result is not None and result.is_complete:
                result = look_again(result, self._options)
        except Exception:  # noqa: BLE001  # no error may stop the training
            logger.exception("tbupload: the files could not be looked at")
        if result is not None and result is not self._result:
            self._set_result(result)
        return result

    def _set_result(self, result: Result) -> None:
        self._result = result
        log_result(result)


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
    explanation = f"{what} {_NOT_UPLOADED}; to send the rest, run: {command}"
    return replace(result, is_growing=True, explanation=explanation)
