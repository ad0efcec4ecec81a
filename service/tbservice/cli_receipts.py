"""The commands on receipts of deletion: `tbservice receipts`, `verify-receipt`, `receipt-key`.

Imports only the standard library, as `tbservice.cli` does.
"""
# ruff: noqa: PLC0415, T201 - each command imports what it needs, and prints its answer

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbservice.cli_commands import Commands, add_command, parse_workspace_id

if TYPE_CHECKING:
    from tbservice.settings import Settings

_SECONDS_MAX = 30
"""Seconds that the keys of a service may take to come."""


def add_receipts(commands: Commands) -> None:
    """Add these commands."""
    text = "print the receipts of what was erased, a JSON object a line, the last 10,000"
    receipts = add_command(commands, "receipts", _print_receipts, text)
    receipts.add_argument(
        "--workspace",
        type=parse_workspace_id,
        default=0,
        metavar="ID",
        help="of this workspace and its experiments (default: of people)",
    )
    text = "verify the signatures of receipts; ends with 1 if one is not genuine"
    verify = commands.add_parser("verify-receipt", help=text, description=text)
    verify.add_argument("file", type=Path, help="a receipt, or several; - for standard input")
    keys = verify.add_mutually_exclusive_group(required=True)
    keys.add_argument("--server", metavar="URL", help="the service whose public keys to use")
    keys.add_argument("--keys", type=Path, metavar="FILE", help="a file with these keys")
    verify.set_defaults(command=_verify)
    text = "print a new private key for TBHUB_RECEIPT_KEYS, and its public key"
    key = commands.add_parser("receipt-key", help=text, description=text)
    key.set_defaults(command=_print_key)


def _print_receipts(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.audit import receipts
    from tbservice.audit.signatures import sign
    from tbservice.server.administration import open_database
    from tbservice.types.identifiers import WorkspaceId

    chain = WorkspaceId(options.workspace)
    with open_database(settings) as database, database.snapshot(chain) as db:
        found = receipts.list_of_erased(db, chain)
    for receipt in found:
        stated = receipt.to_json(settings.backup_keep_days)
        print(json.dumps(sign(stated, settings.receipt_keys, settings.public_url)))


def _verify(options: argparse.Namespace) -> int:
    from tbservice.audit.signatures import NotGenuine, verify
    from tbservice.errors import StartupError

    try:
        keys = _read_keys(options)
        content = sys.stdin.read() if str(options.file) == "-" else options.file.read_text()
        receipts = list(_parse(content))
    except (OSError, ValueError) as error:
        raise StartupError(f"the receipts or the keys cannot be read: {error}") from None
    if not receipts:
        raise StartupError("the file has no receipt")
    is_genuine = True
    for each in receipts:
        kind = each.get("kind")
        # The texts of a file are anybody's: they are printed as JSON, on a line.
        what = (
            f"{json.dumps(kind)} {json.dumps(each.get(f'{kind}_id') or each.get('experiment_id'))}"
        )
        try:
            key_id = verify(each, keys)
            print(f"genuine: {what}, of {json.dumps(each.get('issuer'))}, key {key_id}")
        except NotGenuine as error:
            print(f"NOT genuine: {what}: {error}")
            is_genuine = False
    return 0 if is_genuine else 1


def _read_keys(options: argparse.Namespace) -> Any:
    """Return the JWK Set of a file or a service. Raises OSError and ValueError."""
    if options.keys is not None:
        return json.loads(options.keys.read_text())
    import requests

    address = f"{options.server.rstrip('/')}/api/v1/receipt-keys"
    answer = requests.get(address, timeout=_SECONDS_MAX)
    answer.raise_for_status()
    return answer.json()


def _parse(content: str) -> Iterator[dict[str, Any]]:
    """Yield the receipts of an object, a list, an answer of the API, or of a line each."""
    try:
        values = [json.loads(content)]
    except ValueError:
        values = [json.loads(line) for line in content.splitlines() if line.strip()]
    for value in values:
        listed = value.get("receipts", value) if isinstance(value, dict) else value
        for each in listed if isinstance(listed, list) else [listed]:
            if not isinstance(each, dict):
                raise ValueError("a receipt is a JSON object")  # noqa: TRY004 - of the file
            yield each


def _print_key(_options: argparse.Namespace) -> None:
    from tbservice.audit.signatures import generate_key

    print("\n".join(generate_key()))
