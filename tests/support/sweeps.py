"""Katib's controller, simulated: experiments, and sweeps that ask for suggestions and run trials."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tbservice.katib import katib_pb2 as pb

TYPES = {
    "int": pb.INT,
    "double": pb.DOUBLE,
    "discrete": pb.DISCRETE,
    "categorical": pb.CATEGORICAL,
}
ALGORITHMS = (
    "random",
    "grid",
    "sobol",
    "tpe",
    "multivariate-tpe",
    "cmaes",
    "bayesianoptimization",
    "hyperband",
)
"""Algorithms that search; DARTS formats its request."""


def parameter(name, kind, *values, step="", distribution=pb.DISTRIBUTION_UNSPECIFIED):
    """Returns a ParameterSpec: `values` are min and max, or the list."""
    texts = [str(value) for value in values]
    if kind in {"int", "double"}:
        space = pb.FeasibleSpace(
            min=texts[0], max=texts[1], step=str(step), distribution=distribution
        )
    else:
        space = pb.FeasibleSpace(list=texts)
    return pb.ParameterSpec(name=name, parameter_type=TYPES[kind], feasible_space=space)


def experiment(algorithm, *parameters, name="sweep", kind=pb.MINIMIZE, settings=None, **spec):
    """Returns an Experiment whose objective is the metric `loss`."""
    return pb.Experiment(
        name=name,
        spec=pb.ExperimentSpec(
            parameter_specs=pb.ExperimentSpec.ParameterSpecs(parameters=parameters),
            objective=pb.ObjectiveSpec(type=kind, objective_metric_name="loss"),
            algorithm=pb.AlgorithmSpec(
                algorithm_name=algorithm,
                algorithm_settings=[
                    pb.AlgorithmSetting(name=key, value=str(value))
                    for key, value in (settings or {}).items()
                ],
            ),
            **spec,
        ),
    )


def trial(name, assignments, value=None, condition=None, start="", end=""):
    """Returns a Trial; one with a value has succeeded."""
    if condition is None:
        condition = pb.TrialStatus.CREATED if value is None else pb.TrialStatus.SUCCEEDED
    metrics = [] if value is None else [pb.Metric(name="loss", value=str(value))]
    return pb.Trial(
        name=name,
        spec=pb.TrialSpec(
            objective=pb.ObjectiveSpec(objective_metric_name="loss"),
            parameter_assignments=pb.TrialSpec.ParameterAssignments(
                assignments=[
                    pb.ParameterAssignment(name=key, value=text)
                    for key, text in assignments.items()
                ]
            ),
        ),
        status=pb.TrialStatus(
            condition=condition,
            start_time=start,
            completion_time=end,
            observation=pb.Observation(metrics=metrics),
        ),
    )


def rows_of(reply):
    """Returns the assignments of a reply, a dictionary for each suggestion."""
    return [{a.name: a.value for a in row.assignments} for row in reply.parameter_assignments]


def check_value(spec, text):
    """Fails unless a value is one that Katib's trial could get: in bounds, on a step, as listed."""
    space = spec.feasible_space
    if spec.parameter_type in {pb.CATEGORICAL, pb.DISCRETE}:
        assert text in space.list
        return
    value = int(text) if spec.parameter_type == pb.INT else float(text)
    assert text == str(value)
    assert float(space.min) <= value <= float(space.max)
    step = float(space.step or (1 if spec.parameter_type == pb.INT else 0))
    if step:
        times = (value - float(space.min)) / step
        assert math.isclose(times, round(times), rel_tol=1e-6, abs_tol=1e-12)


@dataclass
class Running:
    """A trial of a sweep, and when it ends."""

    name: str
    assignments: dict
    start: float
    end: float
    is_done: bool = False


@dataclass
class Sweep:
    """A sweep of `trials` trials, `parallel` at a time, that ends when all but stragglers are done.

    As in Katib, every request has all trials in an order of its own, also those that are running.
    """

    experiment: pb.Experiment
    objective: object
    trials: int = 60
    parallel: int = 3
    seed: int = 0
    has_straggler: bool = True
    items: list = field(default_factory=list)
    requests: list = field(default_factory=list)

    def run(self, suggest):
        """Runs the sweep; `suggest` takes a request and returns a reply. Returns the losses."""
        rng = random.Random(self.seed)  # noqa: S311 - a simulation
        now = 0.0
        while True:
            running = [item for item in self.items if not item.is_done]
            wanted = min(self.parallel - len(running), self.trials - len(self.items))
            if wanted > 0:
                self._ask(suggest, wanted, now, rng)
                continue
            ending = min(
                (item for item in running if math.isfinite(item.end)), key=_end, default=None
            )
            if ending is None:
                return self.losses()
            ending.is_done, now = True, ending.end

    def losses(self):
        """Returns the objective of each finished trial, in the order of their ends."""
        done = sorted((item for item in self.items if item.is_done), key=_end)
        return [self.objective(item.assignments) for item in done]

    def _ask(self, suggest, wanted, now, rng):
        request = pb.GetSuggestionsRequest(
            experiment=self.experiment,
            trials=[self._message(item) for item in sorted(self.items, key=lambda t: t.name)],
            current_request_number=wanted,
            total_request_number=len(self.items) + wanted,
        )
        self.requests.append(request)
        rows = rows_of(suggest(request))
        assert len(rows) == wanted
        for row in rows:
            is_straggler = self.has_straggler and len(self.items) == 1
            end = math.inf if is_straggler else now + rng.uniform(30, 90)
            name = f"{self.experiment.name}-{rng.getrandbits(40):08x}"
            self.items.append(Running(name, row, now, end))

    def _message(self, item):
        if not item.is_done:
            return trial(
                item.name,
                item.assignments,
                condition=pb.TrialStatus.RUNNING,
                start=_text(item.start),
            )
        value = self.objective(item.assignments)
        return trial(
            item.name, item.assignments, value, start=_text(item.start), end=_text(item.end)
        )


def _end(item):
    return item.end


def _text(seconds):
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=int(seconds))).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )


def sphere(assignments):
    """Squared distance from (2, -1) of `x` and `y`; its least value is 0."""
    return (float(assignments["x"]) - 2) ** 2 + (float(assignments["y"]) + 1) ** 2
