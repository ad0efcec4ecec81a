"""Handler processes: what ends them, what they inherit from the service, and hostile data on a
page.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading

import psycopg
import pytest
from tensorboard.compat.proto.graph_pb2 import GraphDef

from support.admission import come_in
from support.batches import images, metadata, scalars, segment, stream, texts
from support.handler_processes import handler_processes
from support.servers import live_api
from support.uploading import wait_until
from tbservice import limits
from tbservice.errors import NotFound, TooLarge, Unavailable
from tbservice.handlers.fork_server import FORK, MESSAGE
from tbservice.handlers.pool import HANDLER_SHARE_ITEMS_MAX, HandlerPool
from tbservice.handlers.processes import HANDLER_MEMORY_BYTES_MAX, ForkServer
from tbservice.tensorboard.plugins.markdown import MARKDOWN_CHARS_MAX
from tbwire import wire_pb2
from tbwire.points import DataClass

HOSTILE = b"[" * 6_000
HIDES = (
    "import sys; from tbservice.handlers import fork_server as f; sys.exit(not f.hide_processes())"
)
SLOW = "Shown as plain text, because it takes too long to convert from Markdown:"


@pytest.fixture
def pool():
    pool = HandlerPool("support.handler_jobs")
    yield pool
    pool.close()


def run(pool, job, *arguments, **calls):
    come_in()
    return asyncio.run(pool.in_process(job, *arguments, calls=calls, cancel=lambda: None))


def test_handler_asks_worker_and_answers(pool):
    assert run(pool, "echo", {"a": [1, b"2"]}) == {"a": [1, b"2"]}
    assert run(pool, "ask", "double", double=lambda number: 2 * number) == 40


def test_fork_of_program_that_died_leaves_no_socket_open():
    server = ForkServer(("support.slow_handler_jobs",))
    server.start()
    server._process.kill()
    server._process.wait()
    with pytest.raises(BrokenPipeError):
        server._fork(server._control)
    gc.collect()  # a socket that nobody closed is a warning, and that a failure
    server._end()


def test_handler_server_that_still_imports_ends_at_once():
    server = ForkServer(("support.slow_handler_jobs",))
    server.start()
    server._end()
    assert server._process.returncode == -signal.SIGKILL  # it was not waited for


def test_handler_server_ends_quietly_with_its_worker():
    ours, theirs = socket.socketpair()
    job, other = socket.socketpair()
    with job, other, theirs, ours:
        command = [
            sys.executable,
            "-m",
            "tbservice.handlers.fork_server",
            str(theirs.fileno()),
            "1000000000",
        ]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, pass_fds=[theirs.fileno()])
        socket.send_fds(ours, [MESSAGE.pack(FORK, 0)], [other.fileno()])
        ours.close()  # before it can answer: it has not imported anything yet
    assert server.communicate(timeout=60) == (None, b"")
    assert server.returncode == 0


def test_handler_call_that_fails_ends_job_alone(pool):
    def refuse(_number):
        raise NotFound("not yours")

    with pytest.raises(NotFound, match="not yours"):
        run(pool, "ask", "refuse", refuse=refuse)
    assert run(pool, "echo", 1) == 1


def test_job_that_waits_for_a_process_lets_others_begin(pool):
    waits = come_in().turns.waits
    asks = threading.Semaphore(0)
    may_answer = threading.Event()

    def answer(number):
        asks.release()
        may_answer.wait()
        return number

    async def overload():
        jobs = [
            asyncio.create_task(
                pool.in_process("ask", "answer", calls={"answer": answer}, cancel=lambda: None)
            )
            for _ in range(HANDLER_SHARE_ITEMS_MAX + 1)
        ]
        for _ in range(HANDLER_SHARE_ITEMS_MAX):
            await asyncio.to_thread(asks.acquire)
        waiting = waits.count
        may_answer.set()
        await asyncio.gather(*jobs)
        return waiting

    assert asyncio.run(overload()) == 1
    assert waits.count == 0


def test_handler_over_its_time_is_killed_and_replaced(pool, monkeypatch):
    assert run(pool, "echo", 1) == 1
    monkeypatch.setattr("tbservice.handlers.pool.HANDLER_SECONDS_MAX", 0.5)
    with pytest.raises(TooLarge, match="handler_seconds_max"):
        run(pool, "loop")
    monkeypatch.undo()
    assert run(pool, "echo", 2) == 2


def test_handler_over_its_memory_is_refused(pool):
    with pytest.raises(TooLarge, match="handler_memory_bytes_max"):
        run(pool, "allocate", 2 * HANDLER_MEMORY_BYTES_MAX)
    assert run(pool, "allocate", HANDLER_MEMORY_BYTES_MAX // 4) == HANDLER_MEMORY_BYTES_MAX // 4
    assert run(pool, "echo", 1) == 1


def test_handler_that_dies_fails_its_request_alone(pool):
    with pytest.raises(Unavailable):
        run(pool, "die")
    assert run(pool, "echo", 1) == 1


def test_handler_has_no_secret_and_no_connection(monkeypatch, database):
    monkeypatch.setenv("TBHUB_DATABASE_URL", "postgresql://secret")
    database.check()
    pool = HandlerPool(
        "support.handler_jobs", "support.handler_jobs"
    )  # forked from a program that starts now
    names, files = run(pool, "describe")
    pool.close()
    assert not [name for name in names if "TBHUB" in name or "AWS" in name]
    assert len([name for name in files if name.startswith("socket:")]) == 1
    assert not [name for name in files if not name.startswith("socket:")]


def test_handler_sees_nothing_of_other_processes(pool):
    """The worker's memory and environment have every secret of the service."""
    has_landlock = subprocess.run([sys.executable, "-c", HIDES], check=False).returncode == 0
    assert run(pool, "spy", os.getpid()) == ["mem", "0"] or not has_landlock


def test_warm_pool_has_process_before_first_job():
    pool = HandlerPool("support.handler_jobs", "support.handler_jobs", "support.handler_jobs")
    assert not pool.is_warm
    pool.warm()
    wait_until(lambda: pool.is_warm)
    (process,) = pool._idle
    assert run(pool, "echo", 1) == 1
    assert pool._idle == [process]
    pool.close()


def test_handler_message_is_not_unpickled_as_code(pool, tmp_path):
    with pytest.raises(pickle.UnpicklingError):
        run(pool, "forge", str(tmp_path / "forged"))
    assert not (tmp_path / "forged").exists()
    for name in ("__init__", "__class__", "__reduce__"):
        with pytest.raises(pickle.UnpicklingError):
            run(pool, "reach", name)
    assert run(pool, "echo", 1) == 1


def test_member_is_sent_as_old_pythons_pickle_it(pool):
    """Python 3.11.2 is Debian 12's."""
    assert run(pool, "ask_for_member", ask=repr) == repr(DataClass.TENSOR)


def described(tag, description):
    return scalars(tag, [0], summary_metadata=metadata(description=description))


def test_markdown_that_takes_too_long_is_plain_text(api, client, experiment):
    api.write(
        experiment,
        segment(
            stream(),
            0,
            9,
            texts("note", [0, 1], [HOSTILE, b"**good**"]),
            described("loss", HOSTILE.decode()),
        ),
    )
    url = f"/experiment/{experiment}/data/plugin/"
    hostile, good = client.get(f"{url}text/text?run=train&tag=note", headers=api.headers).json()
    assert SLOW in hostile["text"]
    assert HOSTILE.decode() in hostile["text"]
    assert "<strong>good</strong>" in good["text"]
    about = client.get(f"{url}scalars/tags", headers=api.headers).json()["train"]["loss"][
        "description"
    ]
    assert SLOW in about
    about = client.get(f"{url}timeseries/tags", headers=api.headers).json()["scalars"][
        "tagDescriptions"
    ]["loss"]
    assert SLOW in about


def test_markdown_over_its_size_is_plain_escaped_text(api, client, experiment):
    long = b"<script>**long**" + b"x" * MARKDOWN_CHARS_MAX
    api.write(experiment, segment(stream(), 0, 9, texts("note", [0], [long])))
    (shown,) = client.get(
        f"/experiment/{experiment}/data/plugin/text/text?run=train&tag=note", headers=api.headers
    ).json()
    assert f"because it has more than {MARKDOWN_CHARS_MAX} characters" in shown["text"]
    assert "&lt;script&gt;**long**" in shown["text"]


def test_graph_over_its_size_is_refused(api, client, experiment, monkeypatch):
    graph = GraphDef()
    graph.node.add(name="a", op="Const")
    graph_metadata = metadata("graphs", 3)
    sent = wire_pb2.Series(tag="__run_graph__", summary_metadata=graph_metadata)
    sent.blob_sequences.CopyFrom(images("x", [0], [[graph.SerializeToString()]]).blob_sequences)
    api.write(experiment, segment(stream(), 0, 9, sent))
    url = f"/experiment/{experiment}/data/plugin/graphs/graph?run=train&conceptual=false"
    assert 'name: "a"' in client.get(url, headers=api.headers).text
    monkeypatch.setattr(limits, "GRAPH_TEXT_BYTES_MAX", 3)
    answer = client.get(url, headers=api.headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert "graph_text_bytes_max" in answer.json()["detail"]


def test_log_of_refused_request_is_short_and_on_one_line(api, client, experiment, caplog):
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", [0])))
    url = f"/experiment/{experiment}/data/plugin/hparams/session_groups"
    with caplog.at_level(logging.WARNING):
        client.post(url, content=b"A" * 1_000_000, headers=api.headers)
        client.get(f"{url}?request=x%0a2026 ERROR forged%1b[31m", headers=api.headers)
        client.get(f"/experiment/{experiment}/data/x%0aforged%1b[31m", headers=api.headers)
    assert max((len(record.getMessage()) for record in caplog.records), default=0) < 1_000
    assert not [record for record in caplog.records if not record.getMessage().isprintable()]


def test_stock_refusals_carry_our_headers_and_no_warning(api, client, experiment, caplog):
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", [0])))
    for path in ("graphs/graph", "hparams/session_groups?request=x", "nothing/nothing"):
        answer = client.get(f"/experiment/{experiment}/data/plugin/{path}", headers=api.headers)
        assert answer.status_code in {400, 404}
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
    assert "3.0" not in caplog.text


def test_handler_ends_when_its_client_leaves(live_service, servers):
    with (
        live_api(live_service.url, live_service.new_owner()) as api,
        psycopg.connect(servers.owner_url(live_service.database_url)) as db,
    ):
        experiment = api.new_experiment(texts("note", [0], [b"x"]), visibility="link")
        page = f"/experiment/{experiment}/data/plugin/text"
        db.execute("LOCK TABLE tensor_points IN ACCESS EXCLUSIVE MODE")  # the handler waits for it
        host, port = live_service.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as leaving:
            leaving.sendall(
                f"GET {page}/text?run=train&tag=note HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            )
            wait_until(lambda: servers.count_waiting(live_service.database_url))
            there = handler_processes(live_service)
        wait_until(lambda: not all(process.is_running() for process in there))
