"""`follow`: uploads a log directory in the background of a training script."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, Self

from tbupload.background_upload.process import Result, UploaderProcess, logger
from tbupload.console.terminal import escape

STOP_SECONDS: Final = 60.0
"""Default time that the end of a `with` block waits for the remaining data to be sent."""

TEXT_OPTIONS: Final = (
    *("name", "description", "visibility", "experiment", "experiment_name", "resume"),
    "server",
    *("include_runs", "exclude_runs", "include_tags", "exclude_tags"),
)
"""Arguments of `follow` that become options of the same name, without conversion."""

RESUME_CHOICES: Final = ("must", "allow", "never")
"""The values of `resume`."""


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
    end_seconds: float = STOP_SECONDS,
) -> Following:
    """Upload a log directory in the background, while a training script writes it.

        import tbupload

        with tbupload.follow("runs/", name="a first try") as upload:
            print(upload.url)
            train("runs/")

    The upload starts with the `with` block, or with `start()`. At the end of the block, also after
    an exception or Ctrl-C, the script waits until everything written so far is sent, for at most
    `end_seconds`; the rest is then sent in the background. Problems with the upload are logged and
    never raised: see `Following`. Of several processes, one should call it, for the files of all.

    Args:
        logdir: the log directory; it need not exist yet.
        name: the name of a new experiment.
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
        end_seconds: longest time, in seconds, that the end of the block waits.

    Raises:
        TypeError, ValueError: an argument has the wrong type or value.
    """
    return Following(_command_line(dict(locals())), token, float(end_seconds))


class Following:
    """An upload in the background of a script, created by `follow`.

    Start and stop it with a `with` block, or with `start` and `stop`, for example in a notebook:

        upload = tbupload.follow("runs/").start()
        ...
        upload.stop()

    The uploader is a separate process of lower priority that only reads files. If it fails, loses
    its server or is killed, the script continues without an exception: problems are logged to the
    logger "tbupload" when they occur, and `result` describes them. If the script dies, the uploader
    sends what is there and exits.

    It may be restarted, and used from several threads. In a process forked from the one that
    started it, it does nothing.
    """

    def __init__(self, options: list[str], token: str | None, end_seconds: float) -> None:
        self._options = options
        self._token = token
        self._end_seconds = end_seconds
        self._uploader: UploaderProcess | None = None
        self._depth = 0
        self._result: Result | None = None

    def start(self) -> Self:
        """Start the uploader unless it is running; return at once, and never raise."""
        if self._uploader is not None and (
            self._uploader.is_running or not self._uploader.is_owned_here
        ):
            return self
        self._result = None
        try:
            self._uploader = UploaderProcess(self._options, self._token)
        except Exception as error:  # noqa: BLE001  # no error may stop the training
            self._uploader = None
            self._set_result(
                Result(None, explanation=f"the uploader could not be started: {error}")
            )
        return self

    def stop(self, end_seconds: float | None = None) -> Result | None:
        """Let the uploader send what is there now and exit; wait for that at most `end_seconds`.

        Return the result, or None if the upload was never started. The default of `end_seconds` is
        that of `follow`. Repeating the call returns the same result. Problems are logged, never
        raised; if the time is over, the uploader continues, and the result's `exit_code` is None.
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
        except Exception:  # noqa: BLE001  # no error may stop the training
            logger.exception("tbupload: the uploader could not be stopped")
        return self._result

    @property
    def url(self) -> str | None:
        """Return the experiment's URL, None while it is unknown, for example without a server.

        If a run is trained again meanwhile, it becomes that of another experiment. Waits for the
        URL until 10 s after the start.
        """
        return self._event_field("url")

    @property
    def experiment_id(self) -> str | None:
        """Return the experiment's ID, None while it is unknown; wait as `url` does."""
        return self._event_field("experiment_id")

    @property
    def is_running(self) -> bool:
        """Return whether the uploader process is running."""
        return self._uploader is not None and self._uploader.is_running

    @property
    def result(self) -> Result | None:
        """Return how the upload ended, None while it is running or was not started."""
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
        state = "running" if self.is_running else "not running"
        return f"<tbupload.Following {' '.join(self._options)!r} {state}>"

    def _event_field(self, key: str) -> str | None:
        return None if self._uploader is None else self._uploader.experiment_event().get(key)

    def _set_result(self, result: Result) -> None:
        self._result = result
        if result.is_complete:
            logger.info("tbupload: everything is uploaded: %s", escape(result.url or ""))
        # With an exit code, the uploader has logged the reason itself.
        elif result.exit_code is None or result.exit_code < 0:
            logger.warning("tbupload: %s", escape(result.explanation))


def _command_line(arguments: dict[str, Any]) -> list[str]:
    """Return the options of the command, `--logdir` first; the token is not among them."""
    texts = {
        "logdir": os.fsdecode(arguments["logdir"]),
        "cacert": None if arguments["cacert"] is None else os.fsdecode(arguments["cacert"]),
        "hparams": None if arguments["hparams"] is None else os.fsdecode(arguments["hparams"]),
        "plugins": _join_names(arguments["plugins"]),
        "poll-seconds": None
        if arguments["poll_seconds"] is None
        else f"{arguments['poll_seconds']:f}",
    }
    texts |= {name.replace("_", "-"): arguments[name] for name in TEXT_OPTIONS}
    for name, text in {**texts, "token": arguments["token"]}.items():
        if not isinstance(text, str | None):
            raise TypeError(f"{name} must be a string, not {type(text).__name__}")
    if arguments["resume"] not in {None, *RESUME_CHOICES}:
        raise ValueError(f"resume must be one of {RESUME_CHOICES}, not {arguments['resume']!r}")
    options = [f"--{name}={text}" for name, text in texts.items() if text is not None]
    return [*options, "--new"] if arguments["new"] else options


def _join_names(names: Iterable[str] | None) -> str | None:
    return ",".join(names) if names is not None and not isinstance(names, str) else names
