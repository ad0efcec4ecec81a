"""Options of the commands that change an experiment, and of an upload that creates one."""

from __future__ import annotations

import argparse

from tbupload.commands.options.shared import (
    OptionGroup,
    add_experiment,
    add_visibility,
    parse_new_name,
)


def add_tags_and_notes(group: OptionGroup, *, tag_help: str, note_help: str) -> None:
    """Add `--tag`, None unless it is given, and `--note`."""
    group.add_argument("--tag", metavar="TAG", action="append", help=tag_help)
    group.add_argument("--note", metavar="TEXT", help=note_help)


def add_expiry(group: OptionGroup) -> None:
    """Add `--expires`, None unless it is given."""
    group.add_argument(
        "--expires",
        metavar="TIME",
        help='delete it by itself so much later, as in 30d (m, h, d or w), or "never"; it can be '
        "restored for seven days, and stays while it has a frozen link",
    )


def add_update_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload update-metadata`."""
    add_experiment(command)
    command.add_argument("--name", type=parse_new_name, help="the new name")
    command.add_argument("--description", help="the new description, as Markdown")
    add_visibility(command)
    add_tags_and_notes(
        command, tag_help="add a tag; repeatable", note_help="the new notes, as Markdown"
    )
    command.add_argument(
        "--remove-tag", metavar="TAG", action="append", help="remove a tag; repeatable"
    )
    command.add_argument(
        "--property",
        metavar="KEY=VALUE",
        dest="set_property",
        action="append",
        help="set a property; repeatable",
    )
    command.add_argument(
        "--remove-property", metavar="KEY", action="append", help="remove a property; repeatable"
    )
    add_expiry(command)
    command.add_argument(
        "--archive",
        action=argparse.BooleanOptionalAction,
        help="let lists leave it out, or not any more; nothing else changes",
    )
    command.add_argument(
        "--publish",
        action=argparse.BooleanOptionalAction,
        help="let search engines list its pages, or not any more; only with the visibility link",
    )
    command.add_argument(
        "--remove-origin", action="store_true", help="remove host, user, command and git commit"
    )


def add_delete_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload delete`."""
    add_experiment(command)
    command.add_argument(
        "--run",
        metavar="NAME",
        action="append",
        help="delete this run instead of the experiment, at once and for good; repeatable",
    )
    command.add_argument(
        "--yes",
        "-y",
        action="store_true",
        help="do not ask for confirmation; required without a terminal",
    )
    command.add_argument(
        "--permanently",
        action="store_true",
        help="erase it as soon as possible: it cannot be restored",
    )
    command.add_argument(
        "--keep-frozen-links",
        action=argparse.BooleanOptionalAction,
        help="let its frozen links go on showing their copies, each until it ends; or delete them, "
        "too (default: ask if there are any, and delete them with --yes)",
    )


def add_restore_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload restore`."""
    command.add_argument(
        "experiment",
        metavar="ID",
        nargs="?",
        help="the deleted experiment's ID or URL; without it, list what can be restored",
    )
