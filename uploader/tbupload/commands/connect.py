"""Objects built from parsed options: the client of a server, the filter of series, progress."""

from __future__ import annotations

import argparse
import os
from typing import Final

from tbupload.config import Access, find_access
from tbupload.console.progress import ConsoleProgress, make_progress
from tbupload.events.filters import SeriesFilter
from tbupload.http.client import Client
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Transport

SHORT_RETRY_TIMEOUT_SECONDS: Final = 20.0
"""Retry timeout of the commands that only send a few requests."""

REFUSED_TIMEOUT_SECONDS: Final = 2.0
"""Retry timeout of commands whose first connection is refused, and that upload nothing."""


def make_client(options: argparse.Namespace) -> Client:
    """Return a client for a command that only sends a few requests."""
    return Client(make_transport(options))


def make_transport(options: argparse.Namespace) -> Transport:
    """Return the transport for a command that only sends a few requests, in place of a client."""
    return transport_from_options(options, reading_policy(), progress_from_options(options))


def reading_policy(
    default_seconds: float | None = None, chosen_seconds: float | None = None
) -> RetryPolicy:
    """Return the retry policy of a command that uploads nothing: somebody waits for its answer.

    Unless they chose a retry timeout, refused connections end it soon. The default is
    `SHORT_RETRY_TIMEOUT_SECONDS`.
    """
    if chosen_seconds is not None:
        return RetryPolicy(chosen_seconds)
    seconds = SHORT_RETRY_TIMEOUT_SECONDS if default_seconds is None else default_seconds
    return RetryPolicy(seconds, refused_timeout_seconds=REFUSED_TIMEOUT_SECONDS)


def transport_from_options(
    options: argparse.Namespace, retry_policy: RetryPolicy, progress: ConsoleProgress
) -> Transport:
    """Return the transport to the server to use, as `transport_from_access`."""
    access = access_from_options(options, progress)
    return transport_from_access(access, options, retry_policy, progress)


def transport_from_access(
    access: Access,
    options: argparse.Namespace,
    retry_policy: RetryPolicy,
    progress: ConsoleProgress,
) -> Transport:
    """Return a transport that retries by `retry_policy` and reports failures as warnings."""
    return Transport(access.server, access.token, options.cacert, retry_policy, progress.warn)


def access_from_options(options: argparse.Namespace, progress: ConsoleProgress) -> Access:
    """Return the server and token to use, and print the warnings about them."""
    access = find_access(options.server, os.environ, profile=options.profile)
    for warning in access.warnings:
        progress.warn(f"tbupload: {warning}")
    return access


def progress_from_options(options: argparse.Namespace) -> ConsoleProgress:
    """Return a progress display with the verbosity of `--verbose` or `--quiet`."""
    return make_progress(int(options.verbose) - int(options.quiet))


def series_filter_from_options(options: argparse.Namespace) -> SeriesFilter:
    """Return the filter of the options of `add_series_filter`."""
    return SeriesFilter(
        plugins=options.plugins,
        include_runs=options.include_runs,
        exclude_runs=options.exclude_runs,
        include_tags=options.include_tags,
        exclude_tags=options.exclude_tags,
    )
