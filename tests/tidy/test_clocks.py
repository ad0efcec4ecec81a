"""The clocks of two hosts differ: what is stored, or compared with stored times, is the database's."""

from __future__ import annotations

import ast

from support.source_code import modules

OWN_CLOCK = {"datetime.now", "datetime.utcnow", "datetime.datetime.now", "time.time", "date.today"}

MAY_USE_OWN_CLOCK = {
    "tbservice.pages.base.templates": "shows how long ago something was",
    "tbservice.pages.base.forms": "a number of days, typed by a person",
    "tbservice.local.demo.logdir": "wall times of made-up points",
    "tbservice.ingest.service": "wall time of hyperparameters that are set without one",
    "tbservice.experiments.metadata": "whether a day of expiry, typed by a person, is to come",
    "tbservice.pages.experiments.experiment_page": "the same",
    "tbservice.integrity.stored_objects": "age of objects in days, whose times are S3's",
    "tbservice.integrity.sweep": "the same",
    "tbservice.backup.create": "when a backup began, for people",
    "tbservice.tensorboard.native.page_state": "how often an open page asks for newer data",
    "tbservice.katib.observation_log": "wall time of metrics without one",
    "tbservice.katib.trials": "wall time of a trial without one",
}


def calls_of_own_clock(module):
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) in OWN_CLOCK for node in module.nodes
    )


def test_clock_of_host_is_used_where_minutes_do_not_matter():
    users = {module.name for module in modules("service/tbservice") if calls_of_own_clock(module)}
    assert users == set(MAY_USE_OWN_CLOCK)
