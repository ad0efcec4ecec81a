"""Record the trials of Katib's requests as runs with hyperparameters, metrics and status.

Requests repeat all trials each time: only what has changed since is written.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Forbidden, TooLarge
from tbservice.ingest import run_names, sessions
from tbservice.ingest.door import PointWriter
from tbservice.ingest.service import Ingest
from tbservice.ingest.session_records import SessionFields, make_series
from tbservice.katib import places, trial_moves
from tbservice.katib.conditions import Condition, is_final
from tbservice.katib.katib_pb2 import (
    Experiment,
    GetSuggestionsReply,
    SetTrialStatusRequest,
    Trial,
)
from tbservice.katib.places import make_trial_name
from tbservice.katib.tables import katib_experiments, katib_observations, katib_trials
from tbservice.katib.timestamps import parse_timestamp
from tbservice.katib.trial_sessions import (
    encode_assignments,
    make_fields,
    make_readers,
    make_summary,
    note_request,
)
from tbservice.series.tables import runs_tags
from tbservice.types.grants import AppendGrant, KatibGrant
from tbservice.types.identifiers import Float64s
from tbwire.hparams import EXPERIMENT_TAG
from tbwire.hparams_pb2 import HParamsPluginData

KATIB_TRIALS_ITEMS_MAX: Final = 10_000
"""Trials (items) in one request, and suggestions in one response."""

KATIB_TRANSACTION_TRIALS_MAX: Final = 1_000
"""Trials (items) recorded in one transaction."""

KATIB_SUGGESTION_DAYS_MAX: Final = 30
"""Days of 86,400 seconds after which a suggestion that no trial used is deleted."""

_SUMMARY_RUN: Final = "."
"""The root of the log directory, where writers of TensorBoard log the experiment summary."""


def record_request(
    ingest: Ingest, grant: KatibGrant, experiment: Experiment, trials: Sequence[Trial]
) -> None:
    """Record an experiment and its trials, as a request for suggestions or rules describes them.

    The experiment is created if it is new, each trial becomes a run, and what has changed since the
    last request is written: columns, hyperparameters, times and status. Repeating it changes
    nothing. A trial that has ended stays so, as lists of trials may be older than other messages.
    One whose run was deleted is left out: controllers name it in every request.

    Raises:
        TooLarge: A limit is exceeded.
        Invalid: A name is empty, or contains a NUL.
        NotFound: The experiment was deleted.
        Unavailable: Some trials may not be recorded; send the request again.
    """
    check_request(experiment, trials)
    by_name = {places.check_trial_name(trial.name): trial for trial in trials}
    summary = HParamsPluginData(experiment=make_summary(experiment).SerializeToString())
    for group in _split(by_name):
        with ingest.door.transaction(grant) as writer:
            place = places.place_experiment(writer.db, grant, experiment.name)
            # First, in a transaction of its own, so that the next one finds every trial in its
            # place.
            _move_here(writer, grant, place, group)
        with ingest.door.transaction(grant) as writer:
            _record_trials(writer, place, experiment, group, summary)


def _move_here(
    writer: PointWriter, grant: KatibGrant, place: AppendGrant, trials: Iterable[str]
) -> None:
    """Move trials that reports have put elsewhere; with a token of one experiment, there is none.

    A transaction of its own: it locks rows of several experiments.
    """
    names = {runs_tags.hash_name(name): name for name in trials}
    if grant.experiment_id is not None or not names:
        return
    for deleted in run_names.list_deleted(writer.db, place, list(names.values())):
        del names[runs_tags.hash_name(deleted)]
    trial_moves.move_trials(writer, place, names)


def check_request(experiment: Experiment, trials: Sequence[Trial]) -> None:
    """Raise TooLarge if a request has too many trials, or parameters of one."""
    if len(trials) > KATIB_TRIALS_ITEMS_MAX:
        limit = f"{KATIB_TRIALS_ITEMS_MAX} trials (katib_trials_items_max)"
        raise TooLarge(f"a request has at most {limit}; this has {len(trials)}")
    parameters = len(experiment.spec.parameter_specs.parameters)
    longest = max(
        (len(trial.spec.parameter_assignments.assignments) for trial in trials), default=0
    )
    if max(parameters, longest) > limits.SESSION_HPARAMS_ITEMS_MAX:
        limit = f"{limits.SESSION_HPARAMS_ITEMS_MAX} parameters (session_hparams_items_max)"
        raise TooLarge(f"a trial has at most {limit}; this has {max(parameters, longest)}")


def _split(trials: Mapping[str, Trial]) -> Iterator[dict[str, Trial]]:
    """Yield the trials in groups for one transaction each; one empty group if there are none."""
    names = list(trials)
    for start in range(0, max(len(names), 1), KATIB_TRANSACTION_TRIALS_MAX):
        group = names[start : start + KATIB_TRANSACTION_TRIALS_MAX]
        yield {name: trials[name] for name in group}


def _record_trials(
    writer: PointWriter,
    place: AppendGrant,
    experiment: Experiment,
    trials: Mapping[str, Trial],
    summary: HParamsPluginData,
) -> None:
    """Record what has changed, with as many statements as for one trial."""
    db, now = writer.db, time.time()
    # Deterministic: maps are otherwise written in any order, and each request would look changed
    # (https://protobuf.dev/programming-guides/serialization-not-canonical/).
    content = summary.SerializeToString(deterministic=True)
    summary_digest = hashlib.sha256(content).digest()
    is_new_summary = katib_experiments.lock_summary_digest(
        db, place, runs_tags.hash_name(experiment.name), summary_digest
    )
    changed = _find_changed(db, place, trials, summary_digest)
    names = [_SUMMARY_RUN] if is_new_summary else []
    names += [trial.name for trial, _ in changed.values()]
    deleted = set(run_names.list_deleted(db, place, names))
    is_new_summary = is_new_summary and _SUMMARY_RUN not in deleted
    changed = {key: told for key, told in changed.items() if told[0].name not in deleted}
    if deleted.issuperset(names):
        return

    run_ids = run_names.resolve_runs(db, place, [name for name in names if name not in deleted])
    fields = _update_rows(db, place, experiment, changed, run_ids) if changed else {}
    if is_new_summary or changed:
        places.check_room(db, place)
    others = {}
    if is_new_summary:
        key = run_ids[_SUMMARY_RUN], runs_tags.hash_name(EXPERIMENT_TAG)
        others[key] = [make_series(EXPERIMENT_TAG, summary, now)]
    updates = sessions.plan_sessions(writer, place, fields, now, others, skip_misfits=True)
    writer.write(place, updates)


def _find_changed(
    db: Connection, place: AppendGrant, trials: Mapping[str, Trial], summary_digest: bytes
) -> dict[bytes, tuple[Trial, bytes]]:
    """Return the trials that were told otherwise, or not at all, by the SHA-256 of their names.

    Each with the digest of what is told now; the types of its hyperparameters are in the summary.
    """
    by_digest = {runs_tags.hash_name(name): trial for name, trial in trials.items()}
    if not by_digest:
        return {}
    known = katib_trials.list_trials(db, place.experiment_id, by_digest)
    changed = {}
    for digest, trial in by_digest.items():
        content = summary_digest + trial.SerializeToString(deterministic=True)
        told = hashlib.sha256(content).digest()
        # A controller names all trials of an experiment in every request: most have not changed.
        if digest not in known or known[digest].request_digest != told:
            changed[digest] = trial, told
    return changed


def _update_rows(
    db: Connection,
    place: AppendGrant,
    experiment: Experiment,
    changed: Mapping[bytes, tuple[Trial, bytes]],
    run_ids: Mapping[str, int],
) -> dict[int, SessionFields]:
    """Write the rows of trials; return what to set of their sessions, by run id."""
    rows = katib_trials.lock_or_create(
        db, place, {digest: run_ids[trial.name] for digest, (trial, _) in changed.items()}
    )
    readers = make_readers(experiment)
    fields = {}
    for digest, (trial, told) in changed.items():
        row, status = rows[digest], trial.status
        was_inferred = row.is_inferred
        note_request(row, experiment, trial)
        row.request_digest = told
        assignments = trial.spec.parameter_assignments.assignments
        if assignments:
            row.assignments = encode_assignments(assignments, readers)
        times = _read_time(status.start_time), _read_time(status.completion_time)
        fields[run_ids[trial.name]] = make_fields(
            row, trial.name, *times, was_inferred=was_inferred
        )
    katib_trials.update(db, place, list(rows.values()))
    return fields


def _read_time(text: str) -> float | None:
    """Return seconds since the epoch; None for a time that is not set, or cannot be read."""
    try:
        return parse_timestamp(text) / 1e6
    except ValueError:
        return None


def record_suggestions(
    ingest: Ingest, grant: KatibGrant, experiment: Experiment, reply: GetSuggestionsReply
) -> None:
    """Record what a response suggests, and name the trials in it that have no name.

    Controllers of Katib 0.14 and newer use these names, older ones ignore them. So a trial's first
    report already shows its hyperparameters, though no request has named the trial yet. Suggestions
    that are not used make no runs, and are forgotten after a time.

    Raises:
        TooLarge: A limit is exceeded.
        Invalid: A name is empty, or contains a NUL.
        NotFound: The experiment was deleted.
    """
    suggestions = reply.parameter_assignments
    if len(suggestions) > KATIB_TRIALS_ITEMS_MAX:
        limit = f"{KATIB_TRIALS_ITEMS_MAX} suggestions (katib_trials_items_max)"
        raise TooLarge(f"a response has at most {limit}; this has {len(suggestions)}")
    if not suggestions:
        return
    readers = make_readers(experiment)
    assignments = {}
    for suggestion in suggestions:
        suggestion.trial_name = suggestion.trial_name or make_trial_name(experiment.name)
        name = places.check_trial_name(suggestion.trial_name)
        encoded = encode_assignments(suggestion.assignments, readers)
        assignments[runs_tags.hash_name(name)] = encoded
    with ingest.database.transaction(grant) as db:
        place = places.place_experiment(db, grant, experiment.name)
        katib_trials.insert_suggested(db, place, assignments, KATIB_SUGGESTION_DAYS_MAX)
        places.check_room(db, place)


def set_trial_status(
    ingest: Ingest,
    grant: KatibGrant,
    request: SetTrialStatusRequest,
    experiment_name: str | None = None,
) -> None:
    """Record that a trial was stopped early, which is all that Katib sends; create it if unknown.

    Nothing changes for a trial that was told to have ended, or whose run was deleted: repeating it
    changes nothing.

    Raises:
        Invalid, TooLarge: A run cannot have the trial's name.
        NotFound: The experiment was deleted.
        Unavailable: Nothing was stored; send the request again.
    """
    now = time.time()
    name = places.check_trial_name(request.trial_name)
    digest = runs_tags.hash_name(name)
    with ingest.door.transaction(grant) as writer:
        db = writer.db
        place = places.place_trial(db, grant, name, experiment_name)
        if run_names.list_deleted(db, place, [name]):
            return
        run_id = run_names.resolve_runs(db, place, [name])[name]
        row = katib_trials.lock_or_create(db, place, {digest: run_id})[digest]
        places.check_room(db, place)
        known = None if row.condition is None else Condition(row.condition)
        # A message that is late must not reopen a trial; a status that we only concluded may be
        # corrected.
        if is_final(known) and not row.is_inferred:
            return
        row.condition, row.is_inferred = Condition.EARLY_STOPPED, False
        katib_trials.update(db, place, [row])
        fields = {run_id: make_fields(row, name, None, now)}
        updates = sessions.plan_sessions(writer, place, fields, now, skip_misfits=True)
        writer.write(place, updates)


def objective_logs(
    ingest: Ingest, grant: KatibGrant, experiment: Experiment, trials: Sequence[str], n: int
) -> list[Float64s]:
    """Return the first `n` logs of the objective metric of each trial, in the order of `trials`.

    By time, then by arrival; NaN for a text, and none for a trial without any. For rules of early
    stopping.

    Raises:
        Forbidden: The token cannot read.
        TooLarge: There are more than `KATIB_READ_LOGS_MAX`.
    """
    if not grant.may_read:
        raise Forbidden("this token lacks the scope read; it can only report")
    digests = [runs_tags.hash_name(name) for name in trials]
    logs: dict[bytes, Float64s] = {}
    with ingest.database.snapshot(grant) as db:
        experiment_id = places.find_experiment(db, grant, experiment.name)
        if experiment_id is not None and digests:
            metric = runs_tags.hash_name(experiment.spec.objective.objective_metric_name)
            logs = katib_observations.read_first(
                db, experiment_id, digests, metric, n, limits.KATIB_READ_LOGS_MAX + 1
            )
    if sum(map(len, logs.values())) > limits.KATIB_READ_LOGS_MAX:
        limit = f"{limits.KATIB_READ_LOGS_MAX} logs (katib_read_logs_max)"
        raise TooLarge(f"a rule counts at most {limit} of all trials: set a smaller start_step")
    # A trial without logs has its place in the list: rules compare trials by position.
    none: Float64s = np.empty(0, np.float64)
    return [logs.get(digest, none) for digest in digests]
