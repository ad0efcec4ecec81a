"""`tbupload verify`: from its options to its exit code."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tbupload.commands.connect import access_of, client_of, find_experiment_id, progress_of, series_filter_of
from tbupload.commands.exit_codes import EXIT_FAILED
from tbupload.console.output import put_json, put_line
from tbupload.console.progress import Progress
from tbupload.console.texts import size_text
from tbupload.errors import ServerError
from tbupload.events.malloc_tuning import hold_freed_memory
from tbupload.http.client import Client
from tbupload.http.retry import Patience
from tbupload.logdir.scan import check_logdir
from tbupload.verify.findings import Finding, Status, Verdict
from tbupload.verify.repair import Repair
from tbupload.verify.verification import Verification, VerifyOptions

FINDINGS_SHOWN: Final = 200
"""Series that are named one by one; `--json` has them all."""


def verify(options: argparse.Namespace) -> int:
    """Proves that an experiment holds what a logdir's files say, or names what it does not."""
    logdir: Path = options.logdir.expanduser()
    check_logdir(logdir)
    hold_freed_memory()
    experiment_id = find_experiment_id(options.experiment)
    choice = VerifyOptions(logdir, series_filter_of(options), experiment_id, options.strict, options.deep)
    progress = progress_of(options)
    patience = Patience(options.give_up_seconds)
    client = client_of(access_of(options, progress), options, patience, progress)
    progress.begin()
    try:
        verification = Verification(client, choice, progress)
        unproven = _put_findings(verification, options)
        if options.repair and verification.verdict.lost_objects:
            _repair(client, choice, verification.verdict, progress, options)
            verification = Verification(client, choice, progress)
            unproven = _put_findings(verification, options)
    except ServerError as error:
        if options.json:
            put_json({"event": "failed", "error": str(error)})
        raise
    finally:
        progress.close()
    verdict = verification.verdict
    if options.json:
        put_json({"event": "verified", **verdict.as_json()})
        return 0 if verdict.is_proven else EXIT_FAILED
    if unproven > FINDINGS_SHOWN:
        put_line(f"and {unproven - FINDINGS_SHOWN:,} more series; --json names them all")
    for line in verdict.lines():
        put_line(line)
    if verdict.lost_objects and not options.repair:
        put_line(f"to send what was lost again, from these files: {_repair_command(options, choice)}")
    return 0 if verdict.is_proven else EXIT_FAILED


def _repair(
    client: Client, choice: VerifyOptions, verdict: Verdict, progress: Progress, options: argparse.Namespace
) -> None:
    """Sends again what was lost, and says so; whether all of it is there then is for another verification to say."""
    progress.say(f"sending {verdict.lost_count:,} lost objects again, and verifying once more")
    repaired = Repair(client, choice, verdict.lost_objects, progress).run()
    if options.json:
        put_json({"event": "repaired", **asdict(repaired)})
    else:
        put_line(f"sent again: {repaired.objects:,} objects ({size_text(repaired.bytes)})")
    if repaired.left:
        progress.warn(f"{repaired.left:,} lost objects are in none of the files: only a copy of the bucket has them")


def _repair_command(options: argparse.Namespace, choice: VerifyOptions) -> str:
    """The command that repairs, to be pasted into a shell. Without filters: what they leave out is repaired, too."""
    words = ["tbupload", "verify", "--logdir", str(choice.logdir), "--experiment", choice.experiment_id]
    words += ["--server", options.server] if options.server else []
    words += ["--deep"] if choice.is_deep else []
    return shlex.join([*words, "--repair"])


def _put_findings(verification: Verification, options: argparse.Namespace) -> int:
    """Prints what is found as it is found; answers how many series are not just proven."""
    unproven = 0
    for finding in verification.run():
        unproven += finding.status is not Status.PROVEN
        if options.json:
            put_json({"event": "series", **finding.as_json()})
        elif _is_shown(finding, unproven, options):
            put_line(finding.line())
    return unproven


def _is_shown(finding: Finding, unproven: int, options: argparse.Namespace) -> bool:
    if finding.status is Status.PROVEN:
        return bool(options.verbose)
    return unproven <= FINDINGS_SHOWN
