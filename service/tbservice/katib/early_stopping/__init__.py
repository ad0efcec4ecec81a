"""Early stopping of Katib's trials: the rule by which a trial's own metrics stop it."""

from tbservice.katib.early_stopping.median_stop import (
    logs_per_trial,
    rules,
    trials_to_compare,
    validate,
)

__all__ = ["logs_per_trial", "rules", "trials_to_compare", "validate"]
