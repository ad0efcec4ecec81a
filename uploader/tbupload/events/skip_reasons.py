"""Reasons why a value of an event file is not sent; `Chunk.skipped` counts by them.

The texts are sent to the service, which stores them with the upload cursor and adds up the counts:
a changed text is a new reason.
"""

from __future__ import annotations

from typing import Final

RECORD_DAMAGED: Final = "record whose checksum does not match its bytes"
NOT_AN_EVENT: Final = "record that is not a TensorBoard event"
VALUE_MISMATCH: Final = "summary value whose content does not fit its series"
EMPTY_VALUE: Final = "empty value"
"""A tag without content, as written by PyTorch's `add_video` without moviepy: nothing is lost."""

OTHER_PLUGIN: Final = "value whose tag belongs to another plugin in the same file"
WALL_TIME_NOT_FINITE: Final = "value whose wall time is not a finite number"
TAG_NUL: Final = "tag or plugin name with a NUL character"
CONTENT_TYPE_NUL: Final = "audio whose content type has a NUL character"
NOT_ONE_NUMBER: Final = "scalar that is not exactly one real number"
NOT_A_VECTOR: Final = "blob sequence that is not a vector of strings"
TENSOR_MALFORMED: Final = "tensor whose content does not fit its shape and type"
TENSOR_TYPE_UNSUPPORTED: Final = "tensor of a data type that cannot be kept"
RECORD_TOO_LARGE: Final = "too much in one record for one request"
HISTOGRAM_MALFORMED: Final = "histogram whose limits and counts do not fit together"


# Not an UploadError: the reader catches it, counts the reason, and continues with the next value.
class ValueRefused(Exception):
    """A value cannot be sent; `reason` is one of this module, or names a limit."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def over_limit_error(what: str, limit: int, unit: str) -> ValueRefused:
    """Return the error for something larger than a limit; its reason names the limit."""
    return ValueRefused(f"{what} over the limit of {limit:,} {unit}")
