"""Parse the declarations of a .proto file: enough of the language for ours."""

from __future__ import annotations

import re
from pathlib import Path

_TOKEN = re.compile(r'//[^\n]*|"[^"]*"|[\w.]+|\S')


def declared(path: Path) -> dict[str, dict[str, tuple]]:
    """{message: {field: (number, type, is_repeated, oneof)}} and {enum: {value: (number,)}}; names
    without package or services. A map is, as in descriptors, a repeated field of entries.
    """
    tokens = [token for token in _TOKEN.findall(path.read_text()) if not token.startswith("//")]
    declarations: dict[str, dict[str, tuple]] = {}
    while tokens:
        if tokens[0] in {"message", "enum"}:
            _read_block(tokens, "", declarations)
        elif tokens[0] == "service":
            _skip_service(tokens)
        else:
            _skip_statement(tokens)
    return declarations


def _read_block(tokens: list[str], outer: str, declarations: dict) -> None:
    kind, name = tokens.pop(0), outer + tokens.pop(0)
    assert tokens.pop(0) == "{"
    entries = declarations[name] = {}
    oneof = None
    while tokens[0] != "}" or oneof is not None:
        if tokens[0] == "}":
            oneof = tokens.pop(0) and None
        elif tokens[0] in {"message", "enum"}:
            _read_block(tokens, f"{name}.", declarations)
        elif tokens[0] == "oneof":
            _, oneof, _ = (tokens.pop(0) for _ in range(3))
        elif kind == "enum":
            value, _, number = (tokens.pop(0) for _ in range(3))
            entries[value] = (int(number),)
            _skip_statement(tokens)
        elif tokens[0] == "map":
            _read_map(tokens, name, declarations)
        else:
            repeated = tokens[0] == "repeated" and bool(tokens.pop(0))
            type_name, field, _, number = (tokens.pop(0) for _ in range(4))
            entries[field] = (int(number), type_name.rpartition(".")[2], repeated, oneof)
            _skip_statement(tokens)
    tokens.pop(0)


def _read_map(tokens: list[str], message: str, declarations: dict) -> None:
    _, _, key, _, value, _, field, _, number = (tokens.pop(0) for _ in range(9))
    entry = f"{field.title().replace('_', '')}Entry"
    declarations[f"{message}.{entry}"] = {
        "key": (1, key, False, None),
        "value": (2, value, False, None),
    }
    declarations[message][field] = (int(number), entry, True, None)
    _skip_statement(tokens)


def _skip_service(tokens: list[str]) -> None:
    while tokens[0] != "}":
        tokens.pop(0)
    tokens.pop(0)


def _skip_statement(tokens: list[str]) -> None:
    while tokens.pop(0) != ";":
        pass
