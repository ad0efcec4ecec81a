"""Sweeps of a simulated Katib over gRPC: each algorithm, with stragglers, repeated reports, and a
service that restarts between the calls and while they are under way.

More of them, on functions that are hard to minimize: `make bench ARGS=sweeps`.
"""

import pytest

from support.grpc_calls import live_grpc_service
from support.katib_controller import Controller
from support.katib_restarts import PatientKatib, RestartingService, SweepsWithRestarts
from support.katib_seen import check_sweep
from support.sweeps import ALGORITHMS, darts_experiment, experiment, parameter, sphere
from support.uploading import Reader
from tbservice.katib import katib_pb2 as pb

SPACE = (
    parameter("x", "double", -5, 5, step="0.05"),
    parameter("y", "double", -5, 5, step="0.05"),
)
RESOURCE = parameter("epochs", "int", 1, 3)


@pytest.fixture(scope="module")
def service(servers, tmp_path_factory):
    """A running service with a gRPC port: the service, and the port."""
    directory = tmp_path_factory.mktemp("katib")
    with (
        servers.database() as url,
        servers.settings(url) as settings,
        live_grpc_service(settings, directory, TBHUB_WORKERS="2") as live,
    ):
        yield live


def sweep_of(algorithm, **options):
    """Return an experiment of 3 trials at a time, which is enough for Hyperband's resource of 3."""
    options |= {"name": f"sweep-{algorithm}", "parallel_trial_count": 3, "max_trial_count": 40}
    if algorithm == "darts":
        return darts_experiment(**options)
    if algorithm != "hyperband":
        return experiment(algorithm, *SPACE, **options)
    settings = {"r_l": 3, "resource_name": "epochs"}
    return experiment(algorithm, *SPACE, RESOURCE, settings=settings, **options)


def loss(assignments):
    """Return what a trial reports; those of DARTS have no numbers."""
    return sphere(assignments) if "x" in assignments else 1.0


LONG = "random"
"""The algorithm whose trials report much: what becomes of reports does not depend on it."""


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "darts"])
def test_sweep_runs_over_two_workers(service, algorithm):
    """Exactly as many suggestions as wanted, all different, within bounds and on steps; and every
    report is stored once, as it was sent.

    20 trials are 2 brackets of Hyperband, 3 generations of CMA-ES, and 10 of models after theirs
    that are random.
    """
    live, port = service
    token = live.new_owner()
    katib = PatientKatib(port, token)
    size = {"trials": 40} if algorithm == LONG else {"trials": 20, "steps": 2}
    controller = Controller(katib, sweep_of(algorithm), loss, parallel=3, **size)
    controller.run()
    with Reader(live.url, token).http as reader:
        check_sweep(controller, katib, reader)


def test_sweeps_survive_restarts_and_kills(settings, tmp_path):
    """As Katib sees it behind the forwarder: calls are repeated until they are answered."""
    stopping = pb.EarlyStoppingSpec(algorithm_name="medianstop")
    experiments = [
        sweep_of("cmaes", early_stopping=stopping),
        sweep_of("hyperband"),
        sweep_of("darts"),
    ]
    with RestartingService(settings, tmp_path) as service:
        token = service.live.new_owner()
        controllers = [
            Controller(
                PatientKatib(service.port, token),
                each,
                loss,
                trials=15,
                parallel=3,
                has_late_trial=True,
            )
            for each in experiments
        ]
        SweepsWithRestarts(service, at=(4, 8, 12)).run(controllers)
        assert service.starts == 4
        assert any(item.is_stopped for item in controllers[0].items)
        for controller in controllers:
            with Reader(service.live.url, token).http as reader:
                check_sweep(controller, controller.katib, reader)
        assert sum(controller.katib.repeated for controller in controllers) > 0
