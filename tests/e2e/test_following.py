"""`tbupload` while the job still writes, and while network, server and uploader fail: no point lost
or doubled.
"""

import signal

import pytest

from support import event_files
from support import servers as support_servers
from support.flaky_proxy import flaky_proxy
from support.uploading import Reader, Uploader, tensorboard_scalars, wait_until
from tbservice.local.embedded.ports import choose_ports


def scalar_records(tag, steps, value=None):
    return [
        event_files.scalar_event(tag, step, float(step) if value is None else value)
        for step in steps
    ]


def append(path, events):
    event_files.write_records(path, events, append=True)


def has(reader, experiment_id, number, run="run"):
    return lambda: reader.count(experiment_id, run) == number


def test_follow_sends_later_points_and_ctrl_c_exits_0(uploader, reader, logdir):
    path = logdir / "run" / "tfevents.1"
    append(path, [event_files.version_event(), *scalar_records("loss", range(10))])
    with uploader.follow(logdir) as following:
        experiment_id = following.wait_for_experiment()
        wait_until(has(reader, experiment_id, 10))
        append(path, scalar_records("loss", range(10, 20)))
        wait_until(has(reader, experiment_id, 20))
        record = event_files.encode_records(scalar_records("loss", [20]))
        with path.open("ab") as file:
            file.write(record[:9])
        append(logdir / "new" / "run" / "tfevents.1", scalar_records("loss", range(5)))
        wait_until(has(reader, experiment_id, 5, "new/run"))
        assert reader.count(experiment_id) == 20
        with path.open("ab") as file:
            file.write(record[9:])
        wait_until(has(reader, experiment_id, 21))
        append(logdir / "run" / "tfevents.2", scalar_records("loss", range(100, 103)))
        ended = following.stop(signal.SIGINT)
    assert ended.code == 0, ended.err
    assert "sent 29 scalars" in ended.err
    assert reader.scalars(experiment_id) == tensorboard_scalars(logdir)


def test_experiment_deleted_meanwhile_is_named_with_what_to_do(uploader, reader, logdir):
    path = logdir / "run" / "tfevents.1"
    append(path, scalar_records("loss", range(10)))
    with uploader.follow(logdir) as following:
        experiment_id = following.wait_for_experiment()
        wait_until(has(reader, experiment_id, 10))
        reader.http.delete(f"/api/v1/experiments/{experiment_id}").raise_for_status()
        append(path, scalar_records("loss", range(10, 12)))
        ended = following.wait()
    assert ended.code == 1
    assert f"experiment {experiment_id} was deleted meanwhile" in ended.err
    assert f"`tbupload restore {experiment_id}`" in ended.err


@pytest.fixture
def many_runs(logdir):
    """Two hundred runs of 10,000 points: several batches' worth."""
    content = event_files.encode_records(
        [event_files.version_event(), *scalar_records("loss", range(10_000))]
    )
    for number in range(200):
        path = logdir / f"run{number}" / "tfevents.1"
        path.parent.mkdir()
        path.write_bytes(content)
    return logdir


def test_second_ctrl_c_ends_at_once_with_75(uploader, many_runs, live_service):
    with flaky_proxy(
        live_service.url, ["", *["503"] * 1000]
    ) as proxy:  # nothing after the experiment's creation gets through
        through_proxy = Uploader(proxy, uploader.token, uploader.directory)
        with uploader.follow(many_runs, "--server", through_proxy.server) as following:
            following.wait_for_experiment()
            wait_until(lambda: "trying again" in following.err())
            following.process.send_signal(signal.SIGINT)
            wait_until(lambda: "repeat to stop at once" in following.err())
            ended = following.stop(signal.SIGINT)
    assert ended.code == 75


def test_follow_survives_late_start_and_death_of_server(servers, database_url, logdir, tmp_path):
    path = logdir / "run" / "tfevents.1"
    append(path, scalar_records("loss", range(10)))
    port = choose_ports(["service"], {})["service"]
    token = support_servers.new_owner(database_url)
    uploader = Uploader(f"http://127.0.0.1:{port}", token, tmp_path)
    reader = Reader(uploader.server, token)
    with servers.settings(database_url) as settings, uploader.follow(logdir) as following:
        wait_until(lambda: "trying again" in following.err())
        with support_servers.live_service(settings, tmp_path / "first.log", port=port) as live:
            experiment_id = following.wait_for_experiment()
            wait_until(has(reader, experiment_id, 10))
            live.process.kill()
            append(path, scalar_records("loss", range(10, 5000)))
        with support_servers.live_service(settings, tmp_path / "second.log", port=port):
            wait_until(has(reader, experiment_id, 5000))
            ended = following.stop(signal.SIGTERM)
            assert reader.scalars(experiment_id) == tensorboard_scalars(logdir)
    reader.http.close()
    assert ended.code == 0, ended.err
    assert "answers again" in ended.err
