"""The commands of `tbservice` for administrators: `migrate`, `workspace`, `token` and `user`.

Imports only the standard library, as `tbservice.cli` does.
"""
# ruff: noqa: PLC0415, T201 - each command imports what it needs, and prints its answer

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tbservice.cli_commands import Commands, add_act, add_command, parse_workspace_id, tab_line
from tbservice.cli_overviews import add_user_show, add_workspace_show

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from tbservice.experiments.quota_changes import QuotaDetails
    from tbservice.settings import Settings

_QUOTA_UNITS = {
    "points": "points",
    "tensor_bytes": "bytes of tensors",
    "blob_bytes": "bytes of media and large tensors",
    "experiments": "experiments",
    "members": "members",
    "requests": "requests in a month",
    "export_bytes": "bytes of answers in a month",
}
"""The limits of a quota, as in `types/quotas.py`, which needs no import here for `--help`."""

_PERSON = "the person's e-mail address, or their id (`tbservice user list` shows it)"


def add_migrate(commands: Commands) -> None:
    """Add `tbservice migrate`."""
    migrate = add_command(commands, "migrate", _migrate, "upgrade the schema of the database")
    migrate.add_argument(
        "--check",
        action="store_true",
        help="print what would be run and locked, and change nothing; exit code 1 if anything is",
    )
    migrate.add_argument(
        "--compress-blocks",
        action="store_true",
        help="let servers store scalars compressed from their next start on, in half the bytes; "
        "servers of the release before refuse to start afterwards: first stop them all",
    )
    migrate.add_argument(
        "--sweep-objects",
        action="store_true",
        help="let servers delete objects that nothing refers to any more; includes "
        "--compress-blocks, and servers of the release before refuse to start afterwards, too",
    )


def add_workspace(commands: Commands) -> None:
    """Add `tbservice workspace`."""
    group = commands.add_parser("workspace", help="create, list, delete and restore workspaces")
    places = group.add_subparsers(required=True, metavar="COMMAND")
    create = add_act(places, "create", _create_workspace, "create a workspace and print its id")
    create.add_argument("name")
    text = "print the id and name of every workspace, or more of it"
    listing = add_act(places, "list", _list_workspaces, text)
    listing.add_argument(
        "--usage",
        action="store_true",
        help="the largest first: id, points, bytes, experiments, day of creation, last use, open "
        "reports, state, owners, name; separated by tabs",
    )
    listing.add_argument("--by-age", action="store_true", help="with --usage: the oldest first")
    listing.add_argument("--json", action="store_true", help="all of it, as a JSON object a line")
    listing.add_argument(
        "--deleted",
        action="store_true",
        help="those that are to be erased: id, when they were deleted and are erased, name",
    )
    add_workspace_show(places)
    text = (
        "delete a workspace, at once for everybody; it is erased after seven days. One that its "
        "owners have deleted: only this command restores it then"
    )
    delete = add_act(places, "delete", _delete_workspace, text)
    delete.add_argument(
        "workspace", type=parse_workspace_id, metavar="ID", help="the workspace's id"
    )
    delete.add_argument("name", metavar="NAME", help="its name, as a confirmation")
    delete.add_argument("--final", action="store_true", help="erase it ten minutes later")
    text = "undo the deletion of a workspace that is not erased yet"
    restore = add_act(places, "restore", _restore_workspace, text)
    restore.add_argument(
        "workspace", type=parse_workspace_id, metavar="ID", help="the workspace's id"
    )
    text = "print what a workspace stores and may store, or change what it may"
    quota = add_command(places, "quota", _workspace_quota, text)
    quota.add_argument(
        "workspace", type=parse_workspace_id, metavar="ID", help="the workspace's id"
    )
    _add_limits(quota, "default")
    quota.add_argument(
        "--recount", action="store_true", help="count all that is stored again, from the points"
    )
    text = "move a workspace to a person's account, whose quota counts it and whose turns it uses"
    account = add_command(places, "account", _workspace_account, text)
    account.add_argument(
        "workspace", type=parse_workspace_id, metavar="ID", help="the workspace's id"
    )
    account.add_argument("person", metavar="PERSON", help=f"{_PERSON}; 'none' for no account")


def _add_limits(quota: argparse.ArgumentParser, default_plan: str) -> None:
    quota.add_argument(
        "--plan",
        metavar="NAME",
        help=f"a plan of the file TBHUB_PLANS_FILE; '{default_plan}' for none",
    )
    for name, unit in _QUOTA_UNITS.items():
        quota.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            metavar="N",
            help=f"{unit} at most; 'none' for no limit, 'plan' for that of its plan",
        )
    quota.add_argument(
        "--clear", action="store_true", help="first remove the plan and limits that were set before"
    )


def add_token(commands: Commands) -> None:
    """Add `tbservice token`."""
    group = commands.add_parser("token", help="create or revoke a workspace token")
    tokens = group.add_subparsers(required=True, metavar="COMMAND")
    text = "create an admin token of a workspace and print it, this once"
    create = add_command(tokens, "create", _create_token, text)
    create.add_argument(
        "--workspace", type=int, required=True, metavar="ID", help="the workspace's id"
    )
    create.add_argument("--label", default="", help="what the token is for")
    text = "revoke a token for a whole workspace, a machine's or a person's"
    revoke = add_act(tokens, "revoke", _revoke_token, text)
    revoke.add_argument(
        "--workspace",
        type=parse_workspace_id,
        required=True,
        metavar="ID",
        help="the workspace's id",
    )
    revoke.add_argument("token", metavar="TOKEN", help="the token's id, as in the audit log")


def add_user(commands: Commands) -> None:
    """Add `tbservice user`."""
    text = "invite people by sign-in links; list, disable, enable, delete and restore them"
    people = commands.add_parser("user", help=text).add_subparsers(required=True, metavar="COMMAND")
    _add_invite(people)
    text = "print id, e-mail address, name, state and workspaces of everyone, separated by tabs"
    listing = add_act(people, "list", _list_users, text)
    text = "more of it, as a JSON object a line, those who came last first"
    listing.add_argument("--json", action="store_true", help=text)
    add_user_show(people, _PERSON)
    for name, command, text in (
        ("disable", _disable_user, "disable a person: end all sessions and revoke all tokens"),
        ("enable", _enable_user, "enable a person again, who must then sign in"),
    ):
        add_act(people, name, command, text).add_argument("person", metavar="PERSON", help=_PERSON)
    text = "end all browser sessions and links of a person; tokens stay"
    sign_out = add_act(people, "sign-out", _sign_out_user, text)
    sign_out.add_argument("person", metavar="PERSON", help=_PERSON)
    sign_out.add_argument("--session", metavar="ID", help="end this one alone, see 'user show'")
    _add_operator(people)
    text = (
        "delete a person: end all sessions and revoke all tokens; after seven days, name and "
        "address are erased. Refused while nobody else owns one of their workspaces"
    )
    delete = add_act(people, "delete", _delete_user, text)
    delete.add_argument("person", metavar="PERSON", help=_PERSON)
    delete.add_argument("--final", action="store_true", help="erase them ten minutes later")
    text = "undo the deletion of a person who is not erased yet; they must sign in again"
    restore = add_act(people, "restore", _restore_user, text)
    restore.add_argument("person", metavar="PERSON", help=_PERSON)
    text = "print what all workspaces of a person's account store and may store, or change that"
    quota = add_command(people, "quota", _user_quota, text)
    quota.add_argument("person", metavar="PERSON", help=_PERSON)
    _add_limits(quota, "account")


def _add_invite(people: Commands) -> None:
    text = (
        "print a link that signs a person in, once, within 24 hours; for an e-mail address that "
        "nobody has, the person is created"
    )
    invite = add_command(people, "invite", _invite_user, text)
    invite.add_argument("person", metavar="PERSON", help=_PERSON)
    invite.add_argument("--name", default="", help="what others see of a new person")
    invite.add_argument(
        "--new",
        action="store_true",
        help="create a person also if somebody joined with this address, which nobody confirmed",
    )
    invite.add_argument(
        "--workspace",
        type=parse_workspace_id,
        metavar="ID",
        help="make the person a member of this workspace",
    )
    invite.add_argument(
        "--role",
        choices=("owner", "editor", "viewer"),
        default="editor",
        help="the role in it (default: %(default)s); a member keeps a higher one",
    )


def _add_operator(people: Commands) -> None:
    text = (
        "make a person an operator, who sees and does on the pages at /operator what "
        "administrators do by commands; without a person, print the operators: id, address, name, "
        "since when"
    )
    operator = add_act(people, "operator", _change_operator, text)
    operator.add_argument("person", metavar="PERSON", nargs="?", help=_PERSON)
    text = "take the right away, from the next request on"
    operator.add_argument("--revoke", action="store_true", help=text)


def _migrate(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.errors import StartupError
    from tbservice.server.administration import check_migrations, upgrade_database

    if not options.check:
        for name in upgrade_database(
            settings,
            compress_blocks=options.compress_blocks,
            sweep_objects=options.sweep_objects,
        ):
            print(name)
        return
    lines, is_current = check_migrations(settings)
    print("\n".join(lines))
    if not is_current:
        raise StartupError(f"steps to do: {len(lines)}; run 'tbservice migrate'")


def _create_workspace(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.auth import workspaces

    yield str(workspaces.create_workspace(db, options.name))


def _list_workspaces(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.auth import workspaces
    from tbservice.experiments import workspace_overview

    if options.deleted:
        for each in workspaces.list_deleted(db):
            moments = (each.deleted_at.isoformat(), each.erase_at.isoformat())
            yield tab_line((each.workspace_id, *moments, each.name))
        return
    if options.json or options.usage:
        for details in workspace_overview.list_all(db, by_age=options.by_age):
            line = tab_line(details.columns())
            yield json.dumps(details.as_dict()) if options.json else line
        return
    for workspace_id, name in workspaces.list_workspaces(db):
        yield tab_line((workspace_id, name))


def _delete_workspace(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.auth import deletion

    deletion.delete_any_workspace(db, options.workspace, options.name, is_final=options.final)
    yield f"workspace {options.workspace} is deleted"


def _restore_workspace(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.auth import deletion

    deletion.restore_workspace(db, None, options.workspace)
    yield f"workspace {options.workspace} is restored"


def _workspace_quota(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.experiments.quota_changes import change_quota, read_quota, recount
    from tbservice.server.administration import open_database

    changes = _parse_limits(options)
    with open_database(settings) as database:
        if changes:
            change_quota(database, options.workspace, *changes, clears=options.clear)
        if options.recount:
            print(f"experiments counted again: {recount(database, options.workspace)}")
        _print_quota("default", read_quota(database, options.workspace))


def _user_quota(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.experiments.quota_changes import change_account_quota, read_account_quota
    from tbservice.server.administration import open_database

    changes = _parse_limits(options)
    with open_database(settings) as database:
        if changes:
            change_account_quota(database, options.person, *changes, clears=options.clear)
        _print_quota("account", read_account_quota(database, options.person))


def _workspace_account(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.experiments.quota_changes import move_workspace
    from tbservice.server.administration import open_database

    named = None if options.person == "none" else options.person
    with open_database(settings) as database:
        move_workspace(database, options.workspace, named)
    print(f"workspace {options.workspace} belongs to {named or 'no account'}")


def _print_quota(default_plan: str, quota: QuotaDetails) -> None:
    print(f"plan\t{quota.plan or default_plan}")
    for name, limit in quota.totals.quota.as_dict().items():
        print(f"{name}\t{quota.totals.used(name)}\t{'none' if limit is None else limit}")


def _parse_limits(
    options: argparse.Namespace,
) -> tuple[str | None, dict[str, int | None]] | None:
    """Return the plan and the limits to change; None if none of the options says so."""
    given = {name: getattr(options, name) for name in _QUOTA_UNITS}
    limits = {name: _parse_limit(name, text) for name, text in given.items() if text is not None}
    if limits or options.plan is not None or options.clear:
        return options.plan, limits
    return None


def _parse_limit(name: str, text: str) -> int | None:
    """Return the limit that an option names; None for that of the plan. Raises Invalid."""
    from tbservice.errors import Invalid
    from tbservice.types.quotas import QUOTA_MAX

    if text in ("none", "plan"):
        return QUOTA_MAX if text == "none" else None
    if not (text.isascii() and text.isdecimal()) or int(text) > QUOTA_MAX:
        raise Invalid(
            f"--{name.replace('_', '-')} {text}: a limit is a whole number from 0 to {QUOTA_MAX}, "
            "'none' or 'plan'"
        )
    return int(text)


def _create_token(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.auth import tokens, workspaces
    from tbservice.errors import NotFound
    from tbservice.server.administration import open_database
    from tbservice.types.identifiers import WorkspaceId

    workspace_id = WorkspaceId(options.workspace)
    with open_database(settings) as database:
        with database.transaction() as db:
            known = dict(workspaces.list_workspaces(db))
        if workspace_id not in known:
            raise NotFound(
                f"there is no workspace {workspace_id}: `tbservice workspace list` shows them"
            )
        with database.transaction(workspace_id) as db:
            _, secret = tokens.create_owner_token(db, workspace_id, options.label)
    print(secret)


def _revoke_token(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.auth import tokens
    from tbservice.experiments import workspace_overview

    grant = workspace_overview.administrate(db, options.workspace)
    tokens.revoke_workspace_token(db, grant, options.token)
    yield f"token {options.token} is revoked"


def _invite_user(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.auth import people
    from tbservice.auth.link_urls import sign_in_url
    from tbservice.auth.sign_in_links import create_link
    from tbservice.server.administration import open_database
    from tbservice.types.people import Role

    with open_database(settings) as database, database.transaction() as db:
        person = people.admit(db, options.person, options.name, is_new=options.new)
        secret = create_link(db, person.user_id)
        if options.workspace is not None:
            people.add_member(db, options.workspace, person.user_id, Role(options.role))
    print(sign_in_url(settings.public_url, secret), flush=True)
    if options.data_dir is not None:
        from tbservice.local.attach import is_served

        if not is_served(options.data_dir):
            print(
                "tbservice: 'tbservice up' is not running on this directory: start it, then open "
                "the link (another --port is another port in the link)",
                file=sys.stderr,
            )


def _list_users(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.auth import deletion, people
    from tbservice.server import overviews

    if options.json:
        yield from map(json.dumps, overviews.list_people(db))
        return
    deleted = deletion.list_deleted_people(db)
    for user in people.list_people(db):
        person = user.person
        state = "disabled" if user.is_disabled else "active"
        if person.user_id in deleted:
            state = "deleted"
        memberships = people.list_memberships(db, person.user_id)
        places = " ".join(f"{each.workspace_id}:{each.role.value}" for each in memberships)
        yield tab_line((person.user_id, person.email, person.name, state, places))


def _disable_user(options: argparse.Namespace, db: Connection) -> None:
    from tbservice.auth import people

    people.disable(db, people.find_named(db, options.person).user_id)


def _sign_out_user(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.auth import people, sessions

    user_id = people.find_named(db, options.person).user_id
    if options.session is not None:
        sessions.revoke_session(db, user_id, options.session)
        yield "browser sessions ended: 1"
        return
    yield f"browser sessions ended: {sessions.revoke_other_sessions(db, user_id, '')}"


def _enable_user(options: argparse.Namespace, db: Connection) -> None:
    from tbservice.auth import people

    people.enable(db, people.find_named(db, options.person).user_id)


def _change_operator(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.auth import operators, people
    from tbservice.errors import Invalid

    if options.person is not None:
        change = operators.revoke_operator if options.revoke else operators.make_operator
        change(db, people.find_named(db, options.person).user_id)
        yield f"{options.person} is {'no operator any more' if options.revoke else 'an operator'}"
        return
    if options.revoke:
        raise Invalid("--revoke needs a person")
    for person, made_at in operators.list_operators(db):
        yield tab_line((person.user_id, person.email, person.name, made_at.isoformat()))


def _delete_user(options: argparse.Namespace, db: Connection) -> None:
    from tbservice.auth import deletion, people

    user_id = people.find_named(db, options.person).user_id
    deletion.delete_person(db, user_id, is_final=options.final)


def _restore_user(options: argparse.Namespace, db: Connection) -> None:
    from tbservice.auth import deletion, people

    deletion.restore_person(db, people.find_named(db, options.person).user_id)
