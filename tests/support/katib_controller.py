"""Katib's controller, collectors and trials, simulated over gRPC: sweeps that only clients can see."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from support.katib_client import report
from support.sweeps import rows_of, trial
from tbservice.katib import katib_pb2 as pb

STEPS = 6
"""Reports of a trial that runs to its end."""

NOTES = ("0.10", "nan", "-1E-3", "unavailable", "1e999", "é -", "1_0", "7", "", " 3")
"""Values that must come back as they were sent, most of which are no numbers."""


@dataclass
class SimulatedTrial:
    """A trial: what it reports in each step, and how far it is."""

    name: str
    assignments: dict
    started: datetime
    rules: list
    steps: int = STEPS
    reported: list = field(default_factory=list)
    requests: list = field(default_factory=list)
    is_stopped: bool = False
    is_straggler: bool = False
    waits_for_trials: int = 0
    """How many trials there must be before it moves."""
    end: datetime | None = None

    @property
    def is_done(self):
        return self.is_stopped or len(self.reported) == self.steps

    @property
    def logs(self):
        """Return what was reported, as `Katib.logs` does: metric, value, time."""
        return [
            (log.metric.name, log.metric.value, log.time_stamp)
            for request in self.requests
            for log in request.observation_log.metric_logs
        ]


@dataclass
class Controller:
    """Runs one experiment: asks for suggestions, reports each step, repeats some reports, and
    applies the rules of early stopping, as Katib's components do.

    The second trial never ends, and with `has_late_trial` the fourth one only ends when two thirds
    of all trials have been made. Some reports are sent twice, at once or after later ones; some
    replies with suggestions are thrown away and asked for again.
    """

    katib: object
    experiment: pb.Experiment
    objective: object
    trials: int = 60
    parallel: int = 4
    steps: int = STEPS
    seed: int = 0
    has_late_trial: bool = False

    items: list = field(default_factory=list)
    ended: list = field(default_factory=list)
    """Trials in the order of their ends."""
    clock: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __post_init__(self):
        self._random = random.Random(self.seed)  # noqa: S311 - a simulation
        self._notes = itertools.cycle(NOTES)

    def run(self):
        """Run all trials but the one that never ends; return the final losses by end."""
        self.katib.validate(self.experiment)
        while True:
            running = [item for item in self.items if not item.is_done]
            wanted = min(self.parallel - len(running), self.trials - len(self.items))
            if wanted > 0:
                self._ask(wanted)
            moving = [item for item in self.items if not item.is_done and not item.is_straggler]
            if not moving:
                return [item.reported[-1] for item in self.ended]
            for item in moving:
                if item.waits_for_trials <= len(self.items):
                    self._step(item)

    def _ask(self, wanted):
        request = pb.GetSuggestionsRequest(
            experiment=self.experiment,
            trials=self.messages(),
            current_request_number=wanted,
            total_request_number=len(self.items) + wanted,
        )
        for _ in range(2 if self._random.random() < 0.2 else 1):
            reply = self.katib.suggest(request)
        names = [row.trial_name for row in reply.parameter_assignments]
        rows = rows_of(reply)
        assert len(rows) == wanted
        assert len({*names, *(item.name for item in self.items)}) == len(self.items) + wanted
        # Its settings are merged into those of every later request.
        settings = self.experiment.spec.algorithm.algorithm_settings
        known = {setting.name: setting for setting in settings}
        for setting in reply.algorithm.algorithm_settings:
            known.setdefault(setting.name, settings.add(name=setting.name)).value = setting.value
        rules = []
        if self.experiment.spec.HasField("early_stopping"):
            rules = self.katib.rules(self.experiment, self.messages())
        for name, row in zip(names, rows, strict=True):
            item = SimulatedTrial(name, row, self.clock, rules, self.steps)
            item.is_straggler = len(self.items) == 1
            if self.has_late_trial and len(self.items) == 3:
                item.waits_for_trials = self.trials * 2 // 3
            self.items.append(item)

    def _step(self, item):
        self.clock += timedelta(seconds=7)
        step, time = len(item.reported) + 1, _text(self.clock)
        item.reported.append(self.objective(item.assignments) * (2 - step / self.steps))
        loss = ("loss", repr(item.reported[-1]), time)
        request = report(item.name, loss, ("note", next(self._notes), time))
        item.requests.append(request)
        chance = self._random.random()
        self.katib.call("ReportObservationLog", request)
        if chance < 0.2:  # its answer was lost: a retry repeats the bytes
            self.katib.call("ReportObservationLog", request)
        elif chance < 0.3:  # a retry that was on its way while others arrived
            self.katib.call("ReportObservationLog", self._random.choice(item.requests))
        for rule in item.rules:
            if step == rule.start_step and min(item.reported) > float(rule.value):
                item.is_stopped = True
                self.katib.stop(item.name)
        if item.is_done:
            item.end = self.clock
            self.ended.append(item)

    def messages(self):
        """Return all trials as the controller sends them, in an order of its own."""
        return [self._message(item) for item in sorted(self.items, key=lambda item: item.name)]

    def _message(self, item):
        start = _text(item.started)
        if not item.is_done:
            return trial(item.name, item.assignments, condition=pb.TrialStatus.RUNNING, start=start)
        condition = pb.TrialStatus.EARLYSTOPPED if item.is_stopped else pb.TrialStatus.SUCCEEDED
        value = min(item.reported)
        return trial(item.name, item.assignments, repr(value), condition, start, _text(item.end))


def _text(time):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
