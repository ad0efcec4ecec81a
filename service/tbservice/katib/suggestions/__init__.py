"""Suggestions of Katib's algorithms: functions of the request alone, without state or I/O.

Importing this package loads no library of an algorithm; `handler_jobs` loads all.
"""

from tbservice.katib.suggestions.reply import suggest
from tbservice.katib.suggestions.validation import validate

__all__ = ["suggest", "validate"]
