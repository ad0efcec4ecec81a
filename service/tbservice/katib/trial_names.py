"""The names of trials: Katib makes them of the experiment's name and a random suffix.

Source: `pkg/controller.v1beta1/suggestion/suggestionclient/suggestionclient.go`, and for population
based training `pkg/suggestion/v1beta1/pbt/service.py`.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

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
