"""The templates of all pages, in `pages/templates`, and what each of them may use."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from markupsafe import Markup

from tbservice.api.http.html_templates import Templates
from tbservice.pages.base.static_files import static_url
from tbservice.types.people import Token

_SECONDS: Final = {
    "year": 365 * 24 * 3600,
    "month": 30 * 24 * 3600,
    "day": 24 * 3600,
    "hour": 3600,
    "minute": 60,
}
_ROUNDED_UP_FROM: Final = 0.99
"""Fraction of a unit: a link that expires after 7 days has 6.999 left when the page is shown."""
_NOW_SECONDS: Final = 45
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")
_UNIT_FACTOR: Final = 1024
_USER_AGENT_CHARS: Final = 60
_ONE_DECIMAL_BELOW: Final = 10
_LARGE: Final = 10_000
_SCIENTIFIC_FROM: Final = 1_000_000


def format_moment(moment: datetime, now: datetime | None = None) -> Markup:
    """Return a `<time>` element that says how long ago it was, or how far ahead.

    Its title is the time in UTC.
    """
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    utc = moment.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        utc.isoformat(timespec="seconds"),
        utc.strftime("%-d %B %Y, %H:%M UTC"),
        _describe_distance(seconds),
    )


def _describe_distance(seconds: float) -> str:
    distance = abs(seconds)
    for unit, unit_seconds in _SECONDS.items():
        if distance >= _ROUNDED_UP_FROM * unit_seconds:
            number = max(round(distance / unit_seconds), 1)
            text = f"{number} {unit}{'s' if number > 1 else ''}"
            return f"{text} ago" if seconds > 0 else f"in {text}"
    if distance < _NOW_SECONDS:
        return "just now" if seconds >= 0 else "in a moment"
    return "a minute ago" if seconds > 0 else "in a minute"


def _is_ended(token: Token) -> bool:
    """Return whether a token is revoked or has expired."""
    is_expired = token.expires_at is not None and token.expires_at <= datetime.now(UTC)
    return is_expired or token.revoked_at is not None


def clip(text: str, chars_max: int) -> str:
    """Return the beginning of a text, with an ellipsis if it is longer; "" if nothing is visible.

    A name may have 10,000 characters, which style sheets hide and screen readers read out. One of
    spaces and controls alone would be a link or a title that nobody sees.
    """
    if not any(each.isprintable() and not each.isspace() for each in text):
        return ""
    return text if len(text) <= chars_max else text[: chars_max - 1].rstrip() + "…"


def format_number(number: int) -> str:
    """Return an integer with commas between thousands."""
    return f"{number:,}"


def format_figure(value: float | None) -> str:
    """Return a number with four significant digits, or six of a large one; "" for none.

    As `showNumber` of the script for charts: 12345 is neither 12350 nor 1.234e+04.
    """
    if value is None:
        return ""
    is_large = _LARGE <= abs(value) < _SCIENTIFIC_FROM
    return f"{value:.6g}" if is_large else f"{value:.4g}"


def format_bytes(size: int) -> str:
    """Return a number of bytes in a binary unit, with two digits at least: `1.5 MiB`."""
    if size < _UNIT_FACTOR:
        return f"{size} B"
    amount = float(size)
    for unit in _UNITS:
        amount /= _UNIT_FACTOR
        if amount < _UNIT_FACTOR or unit == _UNITS[-1]:
            break
    return f"{amount:,.1f} {unit}" if amount < _ONE_DECIMAL_BELOW else f"{amount:,.0f} {unit}"


_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("CriOS/", "Chrome"),
    ("Safari/", "Safari"),
)


_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def format_browser(user_agent: str) -> str:
    """Return browser and system of a User-Agent header, such as `Firefox on Linux`.

    Names of other browsers contain those of the ones they imitate, so the order matters.
    """
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or clip(user_agent, _USER_AGENT_CHARS) or "Unknown browser"


TEMPLATES: Final = Templates(
    Path(__file__).parents[1] / "templates",
    values={"static": static_url, "version": version("tbhub")},
    filters={
        "ago": format_moment,
        "clip": clip,
        "number": format_number,
        "figure": format_figure,
        "bytes": format_bytes,
        "browser": format_browser,
    },
    tests={"ended": _is_ended},
)
