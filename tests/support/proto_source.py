"""Parse the declarations of a .proto file: enough of the language for ours."""

from __future__ import annotations

import re
from pathlib import Path

_TOKEN = re.compile(r'//[^\n]*|"[^"]*"|[\w.]+|\S')


def declared(path: Path) -> dict[str, dict[str, tuple]]:
    """{message: {field: (number, type, is_repeated, oneof)}} and {enum: {value: (number,)}}; names
    without package.
    """
    tokens = [token for token in _TOKEN.findall(path.read_text()) if not token.startswith("//")]
    declarations: dict[str, dict[str, tuple]] = {}
    while tokens:
        if tokens[0] in {"message", "enum"}:
            _read_block(tokens, "", declarations)
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
        else:
            repeated = tokens[0] == "repeated" and bool(tokens.pop(0))
            type_name, field, _, number = (tokens.pop(0) for _ in range(4))
            entries[field] = (int(number), type_name.rpartition(".")[2], repeated, oneof)
            _skip_statement(tokens)
    tokens.pop(0)


def _skip_statement(tokens: list[str]) -> None:
    while tokens.pop(0) != ";":
        pass
