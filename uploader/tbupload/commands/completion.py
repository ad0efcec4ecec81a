"""The command `tbupload completion`: a script for a shell, and its questions while one types."""

from __future__ import annotations

import argparse
import os
import re
import signal
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from tbupload.commands.connect import make_client
from tbupload.commands.find_command import (
    DEFAULT_COMMAND,
    order_arguments,
    skip_common_options,
)
from tbupload.console.output import print_line
from tbupload.console.terminal import escape
from tbupload.errors import UploadError, UsageError
from tbwire.completion import Offer, Values, complete, format_offers, write_script

WAIT_SECONDS_MAX: Final = 1
"""Seconds that the server has to list experiments; then no more are offered."""

OFFERED_EXPERIMENTS_MAX: Final = 100
"""Experiments (items) that are looked through for those offered: the latest ones."""

_PLAIN_NAME: Final = re.compile(r"[\w.,+@/-]+")
"""A name that is one word in every shell."""


def completion(options: argparse.Namespace) -> int:
    """Run `tbupload completion SHELL`: print the script, or what the last of the words may be."""
    words = options.behind_dashes
    if not words:
        print_line(write_script("tbupload", options.shell).rstrip("\n"), is_escaped=True)
        return 0
    offers = [Offer(escape(word), escape(text)) for word, text in _find_offers(options, words)]
    for line in format_offers(options.shell, offers):
        print_line(line, is_escaped=True)
    return 0


def _find_offers(options: argparse.Namespace, words: Sequence[str]) -> list[Offer]:
    """Return the offers of the command that the words begin with, which is `upload` without one."""
    *before, word = words
    if "--" in before:  # the command of `run`
        return []
    root = options.build_parser(None)
    names = [each.word for each in complete(root, [""])]
    try:
        ordered = order_arguments(before, names) or [DEFAULT_COMMAND]
    except UsageError:
        ordered = [DEFAULT_COMMAND, *before]

    parser = options.build_parser(ordered[0])
    is_elsewhere = any(each.startswith(("--server", "--profile")) for each in before)
    offers = complete(
        parser, [*ordered, word], None if is_elsewhere else _list_experiments(options)
    )
    if skip_common_options(before) == len(before):
        offers = complete(root, [word]) + offers
    return list(dict.fromkeys(offers))


def _list_experiments(options: argparse.Namespace) -> Values:
    """Return what finds the latest experiments of an ID, and of a name where one may be."""

    def find_values(action: argparse.Action, word: str) -> Iterator[Offer]:
        metavar = str(action.metavar)
        if action.dest not in {"experiment", "experiments", "words"} or "ID" not in metavar:
            return
        has_alarm = hasattr(signal, "SIGALRM")
        if has_alarm:
            signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
            signal.alarm(WAIT_SECONDS_MAX)
        try:
            for each in islice(make_client(options).list_experiments(), OFFERED_EXPERIMENTS_MAX):
                if each["experiment_id"].startswith(word):
                    yield Offer(each["experiment_id"], each["name"])
                if (
                    "NAME" in metavar
                    and each["name"].startswith(word)
                    and _PLAIN_NAME.fullmatch(each["name"])
                ):
                    yield Offer(each["name"])
        except UploadError:  # no server or no token: there is nothing to offer
            return
        finally:
            if has_alarm:
                signal.alarm(0)

    return find_values
