"""The command that sends what an uploader has not sent, as a script tells its user."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

_FOLLOWING: Final = ("--poll-seconds", "--system-metrics", "--git-diff")
"""Options that are for following alone."""

_CREATING: Final = (
    *("--name", "--description", "--visibility", "--experiment-name", "--experiment"),
    *("--tag", "--note", "--expires", "--new", "--resume"),
)
"""Options that choose or describe an experiment before there is one."""


def command_for_rest(options: Sequence[str], experiment_id: str | None) -> str:
    """Return the command, quoted for a shell, that goes to the same server with the same filters.

    `options` are those of the uploader, and `experiment_id` its experiment if it has told one.
    """
    left_out = _FOLLOWING if experiment_id is None else (*_FOLLOWING, *_CREATING)
    kept = [option for option in options if option.partition("=")[0] not in left_out]
    chosen = [] if experiment_id is None else [f"--experiment={experiment_id}"]
    return shlex.join(["tbupload", *kept, "--one-shot", *chosen])
