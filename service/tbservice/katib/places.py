"""Experiment that a trial belongs to: Katib's requests name trials, and often no experiment.

A trial is looked up each time: a process keeps nothing of it, so that a failover changes nothing.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

from sqlalchemy import Connection

from tbservice.errors import Conflict, Invalid
from tbservice.experiments.lifecycle import create_experiment
from tbservice.experiments.metadata import Metadata
from tbservice.experiments.tables import experiments
from tbservice.ingest.decode_points import check_name
from tbservice.katib.tables import katib_trials
from tbservice.limits import EXPERIMENT_NAME_CHARS_MAX
from tbservice.series.tables import runs_tags
from tbservice.types.grants import AppendGrant, KatibGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId

KATIB_EXPERIMENT_TRIALS_ITEMS_MAX: Final = 200_000
"""Trials (items) of one of our experiments, suggested ones included; also experiments of Katib."""

_DEFAULT_EXPERIMENT: Final = "katib"
"""The experiment of trials whose name tells none."""

# Katib makes the names of trials of the experiment's name and a random suffix:
# pkg/controller.v1beta1/suggestion/suggestionclient/suggestionclient.go, and for population based
# training pkg/suggestion/v1beta1/pbt/service.py.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of `rand.String` in k8s.io/apimachinery: no vowels, so that they make no words."""

_SUFFIX_CHARS: Final = 8
_SUFFIX: Final = re.compile(f"[{_ALPHABET}]{{{_SUFFIX_CHARS}}}")
_UUID_CHARS: Final = 36
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def make_trial_name(experiment: str) -> str:
    """Return a random name for a trial of an experiment, as Katib's controller makes them."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX_CHARS))
    return f"{experiment}-{suffix}"


def guess_experiment(trial: str) -> str | None:
    """Return the name of the experiment that Katib made this trial's name of; None for another."""
    for pattern, chars in ((_SUFFIX, _SUFFIX_CHARS), (_UUID, _UUID_CHARS)):
        experiment, dash, suffix = trial[: -chars - 1], trial[-chars - 1 : -chars], trial[-chars:]
        if experiment and dash == "-" and pattern.fullmatch(suffix):
            return experiment
    return None


def check_trial_name(name: str) -> str:
    """Return the name. Raises Invalid or TooLarge if a run cannot have it."""
    if not name:
        raise Invalid("trial_name is empty: send the name of the trial")
    return check_name("a trial's name", name)


def check_room(db: Connection, place: AppendGrant) -> None:
    """Raise Conflict if the experiment has more trials, or experiments of Katib, than it may.

    After the transaction has created some. Several at once may create a few more.
    """
    limit = KATIB_EXPERIMENT_TRIALS_ITEMS_MAX
    if max(katib_trials.count(db, place.experiment_id, limit + 1)) > limit:
        raise Conflict(
            f"an experiment has at most {limit:,} trials, suggested ones included, and as many "
            "experiments of Katib: use another one",
            code="experiment_full",
        )


def place_experiment(db: Connection, grant: KatibGrant, name: str) -> AppendGrant:
    """Return the experiment of an experiment of Katib, and create it if there is none.

    That is the experiment of the grant if it has one. Otherwise, each name has its own in the
    workspace: it can be renamed, and after its deletion a new one is created.

    Raises:
        Invalid, TooLarge: An experiment cannot have the name.
    """
    if not name:
        raise Invalid("experiment.name is empty: send the name of the experiment")
    check_name("an experiment's name", name)
    known = find_experiment(db, grant, name)
    if known is None:
        known = create_experiment(
            db,
            WorkspaceGrant(grant.workspace_id),
            Metadata(name[:EXPERIMENT_NAME_CHARS_MAX], "Trials of Katib."),
            request_key=_request_key(name),
        ).experiment_id
    return _append_to(grant, known)


def find_experiment(db: Connection, grant: KatibGrant, name: str) -> ExperimentId | None:
    """Return the experiment of an experiment of Katib; None if there is none."""
    if grant.experiment_id is not None:
        return grant.experiment_id
    return experiments.find_by_request(db, grant.workspace_id, _request_key(name))


def place_trial(
    db: Connection, grant: KatibGrant, name: str, experiment_name: str | None
) -> AppendGrant:
    """Return the experiment of a trial, and create it if there is none.

    It is, in this order: that of the grant; that where the trial is known; that which the request
    names; that which the trial's name tells; a common one for all others.

    Raises Invalid or TooLarge if the names cannot be used.
    """
    known = find_place(db, grant, name, experiment_name)
    if known is not None:
        return known
    named = experiment_name or guess_experiment(name) or _DEFAULT_EXPERIMENT
    return place_experiment(db, grant, named)


def find_place(
    db: Connection, grant: KatibGrant, name: str, experiment_name: str | None
) -> AppendGrant | None:
    """Return the experiment where a trial is known; None for an unknown trial.

    If several experiments have a trial of this name: that which the request names, else the one
    with a run, else the newest.
    """
    key = _request_key(experiment_name) if experiment_name else None
    known = katib_trials.find_place(
        db, grant.workspace_id, grant.experiment_id, runs_tags.hash_name(name), key
    )
    return None if known is None else _append_to(grant, known)


def _append_to(grant: KatibGrant, experiment_id: ExperimentId) -> AppendGrant:
    return AppendGrant(
        grant.workspace_id, experiment_id, may_name_workspace_blobs=grant.experiment_id is None
    )


def _request_key(name: str) -> str:
    """Return the idempotency key of the creation: of all requests, the first one creates it."""
    return f"katib/{hashlib.sha256(name.encode()).hexdigest()}"
