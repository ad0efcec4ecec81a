"""Schemas for the server's JSON, so that a broken server causes an error and not a traceback.

A schema is a function that raises `_Mismatch` for a value that does not fit; some functions, such
as `record`, make one from others. Fields that a schema does not name may have any value: a newer
server may send more.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tbupload.errors import Refused

Json = dict[str, Any]

Schema = Callable[[Any], None]

INTEGER_MAX: Final = 2**63 - 1

NESTING_MAX: Final = 4
"""Levels of lists and objects in a field that is printed as it is."""

NOT_A_TBHUB_ANSWER: Final = "the answer is not one of a tbhub server"

ADDRESS_ADVICE: Final = "check the server's address"


class _Mismatch(Exception):
    """A value does not fit; the message says where and why. Never raised to other modules."""


def parse(body: bytes | str, schema: Schema) -> Json:
    """Return the JSON object in a response's body.

    Raises Refused if it is not one, or does not fit: the address may not be a tbhub server's.
    """
    try:
        content = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise unreadable_answer() from None
    if not isinstance(content, dict):
        raise unreadable_answer()
    check(content, schema)
    return content


def check(content: Any, schema: Schema) -> None:
    """Raise Refused unless the content fits the schema."""
    try:
        schema(content)
    except _Mismatch as mismatch:
        raise unreadable_answer(str(mismatch)) from None


def unreadable_answer(why: str = "") -> Refused:
    """Return the error for a response that a tbhub server would not send."""
    return Refused(
        f"{NOT_A_TBHUB_ANSWER}{f' ({why})' if why else ''}: {ADDRESS_ADVICE}", status=200
    )


def anything(_value: Any) -> None:
    """Accept any value."""


def check_that(condition: object, why_not: str) -> None:
    """For schemas of other modules: accept a value if the condition is true."""
    if not condition:
        raise _Mismatch(why_not)


def string(value: Any) -> None:
    """Accept valid Unicode: JSON's escapes may be lone surrogates (RFC 8259, section 8.2)."""
    if not isinstance(value, str):
        raise _Mismatch("no string where one should be")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Mismatch("a string that is no text") from None


def identifier(value: Any) -> None:
    """Accept an experiment's id, which is safe in URLs, commands and file names."""
    if not isinstance(value, str) or not re.fullmatch("[0-9A-Za-z]{1,100}", value):
        raise _Mismatch("no id where one should be")


def integer(low: int = 0, high: int = INTEGER_MAX) -> Schema:
    """Accept whole numbers from `low` to `high`."""

    def check_integer(value: Any) -> None:
        if type(value) is not int or not low <= value <= high:
            raise _Mismatch(f"no whole number from {low:,} to {high:,} where one should be")

    return check_integer


def number(value: Any) -> None:
    """Accept finite numbers that fit a float64."""
    is_number = type(value) is float and math.isfinite(value)
    if not is_number and not (type(value) is int and abs(value) <= INTEGER_MAX):
        raise _Mismatch("no number where one should be")


def boolean(value: Any) -> None:
    """Accept true and false."""
    if not isinstance(value, bool):
        raise _Mismatch("no true or false where one should be")


def plain(value: Any, depth: int = NESTING_MAX) -> None:
    """Accept what can be printed as it is: any JSON without deep nesting."""
    if not isinstance(value, (list, dict)):
        return
    if not depth:
        raise _Mismatch("deeper nesting than there should be")
    for each in value.values() if isinstance(value, dict) else value:
        plain(each, depth - 1)


def nullable(schema: Schema) -> Schema:
    """Accept null as well."""
    return lambda value: None if value is None else schema(value)


def array(schema: Schema) -> Schema:
    """Accept lists of what the schema accepts."""

    def check_array(value: Any) -> None:
        if not isinstance(value, list):
            raise _Mismatch("no list where one should be")
        for each in value:
            schema(each)

    return check_array


def mapping(schema: Schema) -> Schema:
    """Accept objects with any names, whose values the schema accepts."""

    def check_mapping(value: Any) -> None:
        if not isinstance(value, dict):
            raise _Mismatch("no object where one should be")
        for name, each in value.items():
            string(name)
            schema(each)

    return check_mapping


def record(fields: Mapping[str, Schema], rest: Schema = anything) -> Schema:
    """Accept objects with all of these fields; `rest` is the schema of all others."""

    def check_record(value: Any) -> None:
        if not isinstance(value, dict):
            raise _Mismatch("no object where one should be")
        for name, schema in fields.items():
            if name not in value:
                raise _Mismatch(f"{name!r} is missing")
            try:
                schema(value[name])
            except _Mismatch as mismatch:
                raise _Mismatch(f"{name}: {mismatch}") from None
        if rest is not anything:
            for name in value.keys() - fields.keys():
                rest(value[name])

    return check_record


def by_run_and_tag(fields: Mapping[str, Schema]) -> Schema:
    """Accept objects of series: such a record by run, and then by tag."""
    return mapping(mapping(record(fields)))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
