"""What a suggestion algorithm keeps between requests, for one specification of an experiment."""

from __future__ import annotations

import hashlib

from tbservice import limits
from tbservice.errors import TooLarge
from tbservice.ingest.service import Ingest
from tbservice.katib import places
from tbservice.katib.katib_pb2 import Experiment
from tbservice.store import katib_experiments, runs_tags
from tbservice.types import KatibGrant


def load(ingest: Ingest, grant: KatibGrant, experiment: Experiment) -> bytes | None:
    """Return the state that was saved last for this specification; None if there is none.

    Budgets, goals and early stopping may change: the state remains. With any other change of the
    specification there is none, so that an experiment that was created again starts from nothing.
    """
    with ingest.database.snapshot(grant.workspace_id) as db:
        experiment_id = places.find_experiment(db, grant, experiment.name)
        if experiment_id is None:
            return None
        name_digest = runs_tags.hash_name(experiment.name)
        return katib_experiments.load_state(db, experiment_id, name_digest, _hash_spec(experiment))


def save(ingest: Ingest, grant: KatibGrant, experiment: Experiment, state: bytes | None) -> None:
    """Replace the state of the experiment; None removes it. Of two at once, the later one remains.

    Raises:
        TooLarge: The state is over a limit.
        Invalid: An experiment cannot have the name.
        NotFound: The experiment was deleted.
    """
    if state is not None and len(state) > limits.KATIB_STATE_BYTES_MAX:
        limit = f"{limits.KATIB_STATE_BYTES_MAX} bytes (katib_state_bytes_max)"
        raise TooLarge(f"the state of an experiment has at most {limit}; this has {len(state)}")
    with ingest.database.transaction(grant.workspace_id) as db:
        place = places.place_experiment(db, grant, experiment.name)
        name_digest = runs_tags.hash_name(experiment.name)
        katib_experiments.save_state(db, place, name_digest, _hash_spec(experiment), state)


def _hash_spec(experiment: Experiment) -> bytes:
    spec = type(experiment.spec)()
    spec.CopyFrom(experiment.spec)
    for field in ("parallel_trial_count", "max_trial_count", "early_stopping"):
        spec.ClearField(field)
    spec.objective.ClearField("goal")
    return hashlib.sha256(spec.SerializeToString(deterministic=True)).digest()
