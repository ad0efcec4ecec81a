"""Sweeps of a simulated Katib over gRPC: each algorithm, with stragglers, repeated reports, and a
service that restarts between the calls.
"""

import random
from contextlib import ExitStack

import grpc
import pytest

from support.grpc_calls import live_grpc_service
from support.katib_client import Katib, katib_client
from support.katib_controller import Controller
from support.sweeps import ALGORITHMS, experiment, parameter, sphere
from support.uploading import Reader
from tbservice.katib import katib_pb2 as pb
from tbservice.local.embedded.ports import LOOPBACK

X = parameter("x", "double", -5, 5, step="0.05")
Y = parameter("y", "double", -5, 5, step="0.05")
SETTINGS = {"hyperband": {"r_l": 9, "eta": 3, "resource_name": "x"}}


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


class ManyConnections:
    """A `Katib` that opens a connection for each call, so that any worker may answer it."""

    def __init__(self, port, token):
        self._port, self._token = port, token

    def __getattr__(self, name):
        def call(*arguments, **options):
            options_of_channel = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(f"{LOOPBACK}:{self._port}", options_of_channel) as channel:
                return getattr(Katib(channel, self._token), name)(*arguments, **options)

        return call


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sweep_runs_over_two_workers(service, algorithm):
    """Exactly as many suggestions as wanted, all different, within bounds and on steps."""
    live, port = service
    token = live.new_owner()
    katib = ManyConnections(port, token)
    sweep = experiment(
        algorithm,
        X,
        Y,
        name=f"sweep-{algorithm}",
        settings=SETTINGS.get(algorithm),
        parallel_trial_count=9,
        max_trial_count=40,
    )
    controller = Controller(
        katib, sweep, sphere, trials=40, parallel=9 if algorithm == "hyperband" else 4
    )
    controller.run()
    points = [tuple(sorted(item.assignments.items())) for item in controller.items]
    assert len(points) == 40
    for point in points:
        for _, text in point:
            value = float(text)
            assert -5 <= value <= 9
            if algorithm != "hyperband":
                assert abs(round(value / 0.05) * 0.05 - value) < 1e-9
    if algorithm != "hyperband":  # which runs the same point again with more of its resource
        assert len(set(points)) == 40
    for item in controller.items:
        assert len(katib.logs(item.name, "loss")) == len(item.reported)
    with Reader(live.url, token).http as reader:
        (listed,) = reader.get("/api/v1/experiments").json()["experiments"]
        assert listed["name"] == sweep.name


def test_sweep_survives_restarts_between_calls(settings, tmp_path):
    """As Katib sees it behind the forwarder: the service ends and starts, and nothing is lost."""
    with ExitStack() as stack:
        running = stack.enter_context(ExitStack())
        live, port = running.enter_context(live_grpc_service(settings, tmp_path))
        token = live.new_owner()
        katib = katib_client(stack, port, token)
        generator = random.Random(0)  # noqa: S311 - a simulation

        def restart():
            if generator.random() < 0.3:
                running.close()
                more = {"TBHUB_GRPC_PORT": str(port)}
                running.enter_context(live_grpc_service(settings, tmp_path, **more))
                wait_for(katib)

        stopping = pb.EarlyStoppingSpec(algorithm_name="medianstop")
        sweep = experiment("cmaes", X, Y, name="restarted", early_stopping=stopping)
        controller = Controller(katib, sweep, sphere, trials=24, parallel=4, between=restart)
        controller.run()
        assert len({tuple(item.assignments.items()) for item in controller.items}) == 24
        for item in controller.items:
            assert len(katib.logs(item.name, "loss")) == len(item.reported)


def wait_for(katib):
    """Wait for the channel to connect again, as a client does that waits until it is ready."""
    grpc.channel_ready_future(katib._channel).result(60)
