"""From a command's parsed options to what they mean: a client of a server, a choice of series."""

from __future__ import annotations

import argparse
import os
import re
from typing import Final

from tbupload.config import Access, find_access
from tbupload.console.progress import ConsoleProgress, make_progress
from tbupload.errors import UsageError
from tbupload.events.filters import SeriesFilter
from tbupload.http.client import Client
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Transport

SHORT_RETRY_TIMEOUT_SECONDS: Final = 20.0
"""How long the short commands try a server that does not answer."""


def make_client(options: argparse.Namespace) -> Client:
    """A client for a short command."""
    progress = progress_from_options(options)
    return client_from_access(
        access_from_options(options, progress),
        options,
        RetryPolicy(SHORT_RETRY_TIMEOUT_SECONDS),
        progress,
    )


def client_from_access(
    access: Access,
    options: argparse.Namespace,
    retry_policy: RetryPolicy,
    progress: ConsoleProgress,
) -> Client:
    """A client of this server, which tries as long as `patience` lasts and warns of what goes wrong."""
    return Client(
        Transport(access.server, access.token, options.cacert, retry_policy, progress.warn)
    )


def access_from_options(options: argparse.Namespace, progress: ConsoleProgress) -> Access:
    """The server and token in force; what a person should know about them is said."""
    access = find_access(options.server, os.environ)
    for warning in access.warnings:
        progress.warn(f"tbupload: {warning}")
    return access


def progress_from_options(options: argparse.Namespace) -> ConsoleProgress:
    """Progress as loud as the options say."""
    return make_progress(int(options.verbose) - int(options.quiet))


def find_experiment_id(text: str) -> str:
    """The id in an experiment's URL, or the text itself; UsageError when it can be neither."""
    match = re.search(r"/experiment/([0-9A-Za-z]+)(?:[/?#]|$)", text) or re.fullmatch(
        r"([0-9A-Za-z]+)", text
    )
    if match is None:
        raise UsageError(f"{text!r} is neither an experiment's id nor its URL")
    return match[1]


def series_filter_from_options(options: argparse.Namespace) -> SeriesFilter:
    """Which series are chosen."""
    return SeriesFilter(
        plugins=options.plugins,
        include_runs=options.include_runs,
        exclude_runs=options.exclude_runs,
        include_tags=options.include_tags,
        exclude_tags=options.exclude_tags,
    )
