"""`tbupload verify`: compares an experiment with a log directory, and repairs lost objects."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tbupload.commands.connect import (
    progress_from_options,
    reading_policy,
    series_filter_from_options,
    transport_from_options,
)
from tbupload.commands.exit_codes import EXIT_FAILED
from tbupload.commands.experiment_address import resolve_experiment_id
from tbupload.commands.options.shared import READ_RETRY_TIMEOUT_SECONDS
from tbupload.commands.uploading.dry_run import DEFAULT_LIMITS
from tbupload.console.output import print_json, print_line, print_result
from tbupload.console.progress import ConsoleProgress
from tbupload.console.texts import counted, size_text
from tbupload.errors import ServerError, UsageError
from tbupload.events.malloc_tuning import retain_freed_memory
from tbupload.http.client import Client
from tbupload.logdir.scan import check_logdir
from tbupload.upload.filter_check import explain_filters
from tbupload.verify.findings import Finding, Status, VerifyResult
from tbupload.verify.repair import Repair
from tbupload.verify.verification import Verification, VerifyOptions

FINDINGS_SHOWN: Final = 200
"""Series that are listed one by one; `--json` lists all."""


def verify(options: argparse.Namespace) -> int:
    """Run `tbupload verify`: print every series that does not match, and a summary.

    Raises UsageError for filters that match nothing of the files.
    """
    logdir: Path = options.logdir.expanduser()
    check_logdir(logdir)
    if sentence := explain_filters(logdir, series_filter_from_options(options), DEFAULT_LIMITS):
        raise UsageError(sentence)  # of nothing, everything would match
    retain_freed_memory()
    progress = progress_from_options(options)
    retry_policy = reading_policy(READ_RETRY_TIMEOUT_SECONDS, options.retry_timeout)
    client = Client(transport_from_options(options, retry_policy, progress))
    experiment_id = resolve_experiment_id(options.experiment, client)
    verify_options = VerifyOptions(
        logdir, series_filter_from_options(options), experiment_id, options.strict, options.deep
    )
    progress.start()

    try:
        verification = Verification(client, verify_options, progress)
        unmatched_count = _print_findings(verification, options)
        if options.repair and verification.result.lost_objects:
            _repair(client, verify_options, verification.result, progress, options)
            verification = Verification(client, verify_options, progress)
            unmatched_count = _print_findings(verification, options)
    except ServerError as error:
        if options.json:
            print_json({"event": "failed", "error": str(error)})
        raise
    finally:
        progress.close()

    result = verification.result
    if options.json:
        print_json({"event": "verified", **result.as_json()})
        return 0 if result.is_matching else EXIT_FAILED

    if unmatched_count > FINDINGS_SHOWN:
        print_line(
            f"and {counted(unmatched_count - FINDINGS_SHOWN, 'more series')}; --json lists them all"
        )
    for line in result.lines():
        print_line(line)
    if result.lost_objects and not options.repair:
        print_line(
            "to send lost objects again from these files: "
            f"{_repair_command(options, verify_options)}"
        )
    return 0 if result.is_matching else EXIT_FAILED


def _repair(
    client: Client,
    verify_options: VerifyOptions,
    result: VerifyResult,
    progress: ConsoleProgress,
    options: argparse.Namespace,
) -> None:
    """Send lost objects again, and report how many; only a new verification can tell the result."""
    progress.info(
        f"sending {counted(result.lost_count, 'lost object')} again, and verifying once more"
    )
    repaired = Repair(client, verify_options, result.lost_objects, progress).run()
    text = f"sent again: {counted(repaired.objects, 'object')} ({size_text(repaired.bytes)})"
    print_result({"event": "repaired", **asdict(repaired)}, text, is_json=options.json)
    if repaired.left:
        progress.warn(
            f"{counted(repaired.left, 'lost object')} not found in the files: restore from a "
            "backup of the bucket"
        )


def _repair_command(options: argparse.Namespace, verify_options: VerifyOptions) -> str:
    """Return the repair command, quoted for a shell; without filters, so that it repairs all."""
    words = [
        "tbupload",
        "verify",
        "--logdir",
        str(verify_options.logdir),
        "--experiment",
        verify_options.experiment_id,
    ]
    words += ["--server", options.server] if options.server else []
    words += ["--deep"] if verify_options.is_deep else []
    return shlex.join([*words, "--repair"])


def _print_findings(verification: Verification, options: argparse.Namespace) -> int:
    """Print findings as they arrive; return how many series are not MATCHING."""
    unmatched_count = 0
    for finding in verification.run():
        unmatched_count += finding.status is not Status.MATCHING
        if options.json:
            print_json({"event": "series", **finding.as_json()})
        elif _is_printed(finding, unmatched_count, options):
            print_line(finding.line())
    return unmatched_count


def _is_printed(finding: Finding, unmatched_count: int, options: argparse.Namespace) -> bool:
    if finding.status is Status.MATCHING:
        return bool(options.verbose)
    return unmatched_count <= FINDINGS_SHOWN
