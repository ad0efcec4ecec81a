"""Follows a logdir from inside a training script, by an uploader in the background that never gets in its way."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, Self

from tbupload.background_upload.process import Result, UploaderProcess, logger
from tbupload.console.terminal import escape

STOP_SECONDS: Final = 60.0
"""How long the end of a `with` block waits for the rest to be sent, unless told otherwise."""

TEXT_OPTIONS: Final = (
    *("name", "description", "visibility", "experiment", "server"),
    *("include_runs", "exclude_runs", "include_tags", "exclude_tags"),
)
"""The arguments of `follow` that are handed on as they are."""


def follow(  # noqa: PLR0913  # the options of the command, by their names
    logdir: str | os.PathLike[str],
    *,
    name: str | None = None,
    description: str | None = None,
    visibility: str | None = None,
    experiment: str | None = None,
    new: bool = False,
    plugins: Iterable[str] | None = None,
    include_runs: str | None = None,
    exclude_runs: str | None = None,
    include_tags: str | None = None,
    exclude_tags: str | None = None,
    server: str | None = None,
    token: str | None = None,
    cacert: str | os.PathLike[str] | None = None,
    poll_seconds: float | None = None,
    end_seconds: float = STOP_SECONDS,
) -> Following:
    """Uploads a logdir while a training script writes it.

        import tbupload

        with tbupload.follow("runs/", name="a first try") as upload:
            print(upload.url)
            train("runs/")

    The arguments are the options of `tbupload upload`; `server` and `token` come from the environment (TBHUB_SERVER,
    TBHUB_TOKEN) and the config file when they are not given. The logdir need not be there yet. At the block's end, also
    by an exception or Ctrl-C, what was written until then is sent; that is waited for at most `end_seconds`, after
    which the uploader goes on by itself while the script does, too. See `Following` for what happens meanwhile.

    When many processes train together, let one of them follow: it sees the files of all.

    Raises TypeError or ValueError for arguments of the wrong kind, and nothing else. Nothing happens before the block,
    or `start`.
    """
    arguments = dict(locals())  # every argument, by its name
    return Following(_command_line(arguments), token, float(end_seconds))


class Following:
    """An uploader in the background of a script. Made by `follow`; a block starts and stops it, as the methods do.

    It is a process of its own with a lower priority, which only reads files: it may be killed, lose its server or fail,
    and the script is not slowed, stopped or shown an exception. What goes wrong is logged (logger "tbupload") when it
    happens, and stands in the `result`. When the script dies, the uploader sends what is there, and ends.

    In a notebook: `upload = tbupload.follow("runs/").start()`, and `upload.stop()` in the end. It may be started again,
    and used from several threads. In a process forked from the one that started it, it does nothing.
    """

    def __init__(self, options: list[str], token: str | None, end_seconds: float) -> None:
        self._options = options
        self._token = token
        self._end_seconds = end_seconds
        self._uploader: UploaderProcess | None = None
        self._depth = 0
        self._result: Result | None = None

    def start(self) -> Self:
        """Starts the uploader, unless it is running, and returns at once."""
        if self._uploader is not None and (
            self._uploader.is_running or not self._uploader.is_owned_here
        ):
            return self
        self._result = None
        try:
            self._uploader = UploaderProcess(self._options, self._token)
        except Exception as error:  # noqa: BLE001  # whatever it is, the training goes on
            self._uploader = None
            self._set_result(
                Result(None, explanation=f"the uploader could not be started: {error}")
            )
        return self

    def stop(self, end_seconds: float | None = None) -> Result | None:
        """Asks the uploader to send what is there now and end, and waits at most `end_seconds` for it.

        Answers the result, and None when there is nothing to stop. What is missing is logged as well.
        """
        uploader = self._uploader
        if (
            uploader is None
            or not uploader.is_owned_here
            or (self._result is not None and self._result.exit_code is not None)
        ):
            return self._result
        try:
            uploader.request_stop()
            self._set_result(
                uploader.wait(self._end_seconds if end_seconds is None else end_seconds)
            )
        except Exception:  # noqa: BLE001  # whatever it is, the training goes on
            logger.exception("tbupload: the uploader could not be ended")
        return self._result

    @property
    def url(self) -> str | None:
        """Where the experiment can be seen.

        None while it is not known, as when the server is away: within EXPERIMENT_SECONDS of the start that is waited for.
        """
        return self._event_field("url")

    @property
    def experiment_id(self) -> str | None:
        """The experiment's id, or None, as for `url`."""
        return self._event_field("experiment_id")

    @property
    def is_running(self) -> bool:
        """Whether the uploader is at work."""
        return self._uploader is not None and self._uploader.is_running

    @property
    def result(self) -> Result | None:
        """How it ended; None before that."""
        uploader = self._uploader
        is_known = self._result is not None and self._result.exit_code is not None
        if (
            uploader is not None
            and uploader.is_owned_here
            and not is_known
            and not uploader.is_running
        ):
            self._result = uploader.wait(0)
        return self._result

    def __enter__(self) -> Self:
        self._depth += 1
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.stop()

    def __repr__(self) -> str:
        return f"<tbupload.Following {' '.join(self._options)!r} {'running' if self.is_running else 'not running'}>"

    def _event_field(self, key: str) -> str | None:
        return None if self._uploader is None else self._uploader.experiment_event().get(key)

    def _set_result(self, result: Result) -> None:
        self._result = result
        if result.is_complete:
            logger.info("tbupload: everything is uploaded: %s", escape(result.url or ""))
        elif (
            result.exit_code is None or result.exit_code < 0
        ):  # otherwise the uploader has said it itself
            logger.warning("tbupload: %s", escape(result.explanation))


def _command_line(arguments: dict[str, Any]) -> list[str]:
    """The arguments of `follow` as options of the command; the logdir first, and no secret among them."""
    texts = {
        "logdir": os.fsdecode(arguments["logdir"]),
        "cacert": None if arguments["cacert"] is None else os.fsdecode(arguments["cacert"]),
        "plugins": _join_names(arguments["plugins"]),
        "poll-seconds": None
        if arguments["poll_seconds"] is None
        else f"{arguments['poll_seconds']:f}",
    }
    texts |= {name.replace("_", "-"): arguments[name] for name in TEXT_OPTIONS}
    for name, text in {**texts, "token": arguments["token"]}.items():
        if not isinstance(text, str | None):
            raise TypeError(f"{name} has to be a string, not {type(text).__name__}")
    options = [f"--{name}={text}" for name, text in texts.items() if text is not None]
    return [*options, "--new"] if arguments["new"] else options


def _join_names(names: Iterable[str] | None) -> str | None:
    return ",".join(names) if names is not None and not isinstance(names, str) else names
