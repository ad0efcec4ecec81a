"""The commands that change an experiment: `update-metadata`, `delete` and `restore`."""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import Any

from tbupload.commands.connect import make_client
from tbupload.commands.exit_codes import EXIT_FAILED
from tbupload.commands.experiment_address import resolve_experiment_id
from tbupload.commands.experiment_text import print_fields
from tbupload.commands.expiry import experiment_expiry_field
from tbupload.console.output import print_json, print_message, print_result
from tbupload.console.texts import counted, runs_text
from tbupload.errors import UsageError
from tbupload.http.client import Client


def update_metadata(options: argparse.Namespace) -> int:
    """Run `tbupload update-metadata ID`: change the fields for which there are options."""
    names = ("name", "description", "visibility")
    fields: dict[str, Any] = {
        name: getattr(options, name) for name in names if getattr(options, name) is not None
    }
    if options.note is not None:
        fields["notes"] = options.note
    if options.set_property or options.remove_property:
        properties: dict[str, str | None] = dict(map(_parse_property, options.set_property or ()))
        fields["properties"] = properties | dict.fromkeys(options.remove_property or ())
    if options.archive is not None:
        fields["archived"] = options.archive
    if options.publish is not None:
        fields["published"] = options.publish
    if options.remove_origin:
        fields["origin"] = {}
    if options.expires is not None:
        fields["expires_at"] = experiment_expiry_field(options.expires)
    if not (fields or options.tag or options.remove_tag):
        raise UsageError(
            "nothing to change: give --name, --description, --visibility, --tag, --remove-tag, "
            "--note, --property, --remove-property, --expires, --archive, --publish or "
            "--remove-origin"
        )

    client = make_client(options)
    experiment_id = resolve_experiment_id(options.experiment, client)
    if options.tag or options.remove_tag:
        tags = client.get_experiment(experiment_id).get("tags", [])
        removed = {tag.casefold() for tag in options.remove_tag or ()}
        kept = [tag for tag in tags if tag.casefold() not in removed]
        fields["tags"] = [*kept, *(options.tag or ())]
    print_experiment(client.update_experiment(experiment_id, fields), options)
    return 0


def delete(options: argparse.Namespace) -> int:
    """Run `tbupload delete ID`: ask for confirmation on a terminal, require --yes elsewhere."""
    if not options.yes and not sys.stdin.isatty():
        raise UsageError("without a terminal to ask on, deleting requires --yes")
    if options.permanently and options.run:
        raise UsageError("--permanently and --run exclude each other: runs cannot be restored")
    client = make_client(options)
    experiment_id = resolve_experiment_id(options.experiment, client)
    if options.yes and not options.quiet:
        _say_what_is_meant(client, options.experiment, experiment_id)
    if options.run:
        return _delete_runs(options, client, experiment_id)
    keeps_links = options.keep_frozen_links
    if not options.yes:
        if not _is_confirmed(client, experiment_id):
            return EXIT_FAILED
        if keeps_links is None:
            keeps_links = _is_keeping_links(client, experiment_id)
    client.delete_experiment(
        experiment_id, is_final=options.permanently, keeps_frozen_links=bool(keeps_links)
    )
    content = {"event": "deleted", "experiment_id": experiment_id}
    print_result(content, f"deleted {experiment_id}", is_json=options.json)
    if not options.permanently and not options.quiet and not options.json:
        print_message(f"for seven days, this can be undone: tbupload restore {experiment_id}")
    return 0


def _delete_runs(options: argparse.Namespace, client: Client, experiment_id: str) -> int:
    """Delete the runs of `--run`, after a confirmation with what they have."""
    runs = list(dict.fromkeys(options.run))
    existing = client.list_runs(experiment_id)
    for run in runs:
        if run not in existing:
            near = difflib.get_close_matches(run, existing, n=1)
            advice = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"the experiment has no run {run!r}{advice}")
    if not options.yes:
        series, points = client.measure_runs(experiment_id, runs)
        print_message(
            f"Delete {runs_text(runs)} of experiment {experiment_id}, with "
            f"{counted(series, 'series')} and {counted(points, 'point')}? This cannot be undone. "
            "[y/N] ",
            end="",
        )
        if not is_yes():
            return EXIT_FAILED

    client.delete_runs(experiment_id, runs)
    content = {"event": "deleted", "experiment_id": experiment_id, "runs": runs}
    print_result(content, f"deleted {runs_text(runs)}", is_json=options.json)
    return 0


def restore(options: argparse.Namespace) -> int:
    """Run `tbupload restore ID`: undo a deletion; or list what can be restored."""
    client = make_client(options)
    if options.experiment is None:
        for experiment in client.list_deleted():
            fields = (experiment[key] for key in ("experiment_id", "deleted_at", "name"))
            print_result(experiment, "  ".join(fields).rstrip(), is_json=options.json)
        return 0
    experiment_id = resolve_experiment_id(options.experiment, client, is_deleted=True)
    print_experiment(client.restore_experiment(experiment_id), options)
    return 0


def print_experiment(experiment: dict[str, Any], options: argparse.Namespace) -> None:
    """Print the fields of an experiment, for people or as JSON."""
    if options.json:
        print_json(experiment)
        return
    print_fields(experiment)


def _say_what_is_meant(client: Client, text: str, experiment_id: str) -> None:
    """Print the complete ID and the name of an experiment of which the beginning was given."""
    if text != experiment_id and experiment_id.startswith(text):
        name = client.get_experiment(experiment_id)["name"]
        print_message(f"{text} is experiment {experiment_id} ({name or 'unnamed'})")


def _is_confirmed(client: Client, experiment_id: str) -> bool:
    name = client.get_experiment(experiment_id)["name"]
    print_message(
        f"Delete experiment {experiment_id} ({name or 'unnamed'}) and all its data? [y/N] ", end=""
    )
    return is_yes()


def _is_keeping_links(client: Client, experiment_id: str) -> bool:
    """Ask whether the frozen links of an experiment stay, if it has any."""
    copies = client.count_frozen_links(experiment_id)
    if not copies:
        return False
    print_message(
        f"It has {counted(copies, 'frozen link')}, each with a copy of its data. Keep them? [y/N] ",
        end="",
    )
    return is_yes()


def is_yes() -> bool:
    """Return whether the answer to a question on the terminal is yes."""
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _parse_property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--property {text!r}: expected KEY=VALUE")
    return key.strip(), value
