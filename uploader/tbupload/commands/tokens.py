"""The command `token`: create, list and revoke tokens of a person or of a workspace; print ours."""

from __future__ import annotations

import argparse
from typing import Any, Final

from tbupload.commands.connect import (
    access_from_options,
    make_transport,
    progress_from_options,
)
from tbupload.commands.expiry import expiry_field
from tbupload.commands.token_lines import print_token
from tbupload.console.output import print_message, print_result
from tbupload.errors import Refused, UsageError
from tbupload.http.account import AccountClient

_FORBIDDEN: Final = 403


def token(options: argparse.Namespace) -> int:
    """Run `tbupload token create|list|revoke|print`."""
    if (options.action == "revoke") != (options.token_id is not None):
        raise UsageError("TOKEN_ID is for `tbupload token revoke TOKEN_ID`, which needs it")
    if options.action == "print":
        return _print_own(options)
    client = AccountClient(make_transport(options))
    try:
        _run(client, options)
    except Refused as refusal:
        if refusal.status != _FORBIDDEN or options.workspace is not None:
            raise
        raise Refused(
            f"{refusal}. For the tokens of a workspace, add --workspace ID (`tbupload whoami` "
            "shows it)",
            status=refusal.status,
            code=refusal.code,
        ) from refusal
    return 0


def _print_own(options: argparse.Namespace) -> int:
    """Print the token that would be sent to the server, and nothing else, on stdout."""
    access = access_from_options(options, progress_from_options(options))
    if access.token is None:
        raise UsageError(
            f"there is no token for {access.server}: run `tbupload login --server "
            f"{access.server}`, or set TBHUB_TOKEN"
        )
    content = {"server": access.server, "token": access.token}
    print_result(content, access.token, is_json=options.json)
    return 0


def _run(client: AccountClient, options: argparse.Namespace) -> None:
    if options.action == "create":
        _create(client, options)
    elif options.action == "revoke":
        client.revoke_token(options.workspace, options.token_id)
        print_message(f"revoked {options.token_id}")
    else:
        for each in client.list_tokens(options.workspace):
            print_token(each, is_json=options.json)


def _create(client: AccountClient, options: argparse.Namespace) -> None:
    fields: dict[str, Any] = {"scopes": options.scopes}
    if options.label is not None:
        fields["label"] = options.label
    if options.expires is not None:
        fields["expires_at"] = expiry_field(options.expires)
    created = client.create_token(options.workspace, fields)
    print_result(created, created["token"], is_json=options.json)
