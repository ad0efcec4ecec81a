"""Kinds of things that can be suspended, and the errors of those who are kept out."""

from __future__ import annotations

import enum
from collections.abc import Container, Iterable
from typing import NamedTuple

from tbservice.errors import Forbidden, NotFound, ServiceError, Suspended


class Suspendable(enum.StrEnum):
    """The kinds of what an administrator can suspend, in the order of their names and breadth.

    Of an experiment, that is what shares it: its links, and its address if anyone may read it.
    """

    EXPERIMENT = "experiment"
    LINK = "link"
    PERSON = "person"
    WORKSPACE = "workspace"


_WHAT = {
    Suspendable.EXPERIMENT: "the sharing of this experiment is suspended",
    Suspendable.LINK: "this link is suspended",
    Suspendable.PERSON: "this account is suspended",
    Suspendable.WORKSPACE: "this workspace is suspended",
}


class Suspension(NamedTuple):
    """A kind of thing that is suspended, and the administrator's reason, which readers see."""

    kind: Suspendable
    reason: str

    @classmethod
    def parse(cls, found: str | None) -> Suspension | None:
        """Return what `select_suspension` has found."""
        if found is None:
            return None
        subject, _, reason = found.partition("\n")
        return cls(Suspendable(subject.partition("/")[0]), reason)

    @classmethod
    def find(
        cls, rows: Iterable[str], kinds: Container[str], workspace_id: int | None
    ) -> Suspension | None:
        """Return the broadest one of these kinds, or of this workspace, of several rows."""
        own = [
            row
            for row in rows
            if row.partition("/")[0] in kinds or row.startswith(f"workspace/{workspace_id}\n")
        ]
        return cls.parse(max(own, default=None))

    @property
    def is_deletion(self) -> bool:
        """Return whether a workspace or person is deleted and not suspended: without a reason."""
        return not self.reason

    def as_error(self) -> ServiceError:
        """Return the error of whom it keeps out: 403 for a person, else 451; 404 if deleted."""
        if self.is_deletion:
            if self.kind is Suspendable.PERSON:
                return Forbidden(
                    "this account is deleted: until it is erased, the administrator of this "
                    "service can restore it"
                )
            return NotFound("there is no such workspace, or it is not yours")
        detail = (
            f"{_WHAT[self.kind]}: {self.reason.rstrip('. ')}. Nothing was deleted; ask the "
            "administrator of this service"
        )
        if self.kind is Suspendable.PERSON:
            return Forbidden(detail, code=Suspended.code)
        return Suspended(detail)


def subject_of(kind: Suspendable, object_id: str) -> str:
    """Return the key of something in the table of suspensions."""
    return f"{kind}/{object_id}"
