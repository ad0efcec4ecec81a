"""Sweeps of a simulated Katib over gRPC, with stragglers, repeated reports, and a service that
restarts between the calls and is killed while they are under way.

Figures of more of them, on functions that are hard to minimize: `docs/benchmarks.md`.
"""

from support.katib_controller import Controller
from support.katib_restarts import PatientKatib, RestartingService, SweepsWithRestarts
from support.katib_seen import check_sweep
from support.sweeps import experiment, parameter, sphere
from support.uploading import Reader
from tbservice.katib import katib_pb2 as pb

SPACE = (
    parameter("x", "double", -5, 5, step="0.05"),
    parameter("y", "double", -5, 5, step="0.05"),
)
RESOURCE = parameter("epochs", "int", 1, 3)


def test_sweeps_survive_restarts_and_kills(settings, tmp_path):
    """Service as Katib sees it behind the forwarder: calls are repeated until they are answered.

    Exactly as many suggestions as wanted, all different, within bounds and on steps; and every
    report is stored once, as it was sent.
    """
    options = {"parallel_trial_count": 3, "max_trial_count": 40}
    stopping = pb.EarlyStoppingSpec(algorithm_name="medianstop")
    resource = {"r_l": 3, "resource_name": "epochs"}
    experiments = [
        experiment("cmaes", *SPACE, name="sweep-cmaes", early_stopping=stopping, **options),
        experiment(
            "hyperband", *SPACE, RESOURCE, name="sweep-hyperband", settings=resource, **options
        ),
    ]
    with RestartingService(settings, tmp_path) as service:
        token = service.live.new_owner()
        controllers = [
            Controller(
                PatientKatib(service.port, token),
                each,
                sphere,
                trials=15,
                parallel=3,
                has_late_trial=True,
            )
            for each in experiments
        ]
        SweepsWithRestarts(service, at=(4, 9)).run(controllers)
        assert service.starts == 3
        assert any(item.is_stopped for item in controllers[0].items)
        for controller in controllers:
            with Reader(service.live.url, token).http as reader:
                check_sweep(controller, controller.katib, reader)
        assert sum(controller.katib.repeated for controller in controllers) > 0
