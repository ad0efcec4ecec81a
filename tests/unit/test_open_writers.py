"""Open writers of the frameworks that the tests install are found and flushed; none is imported."""

import sys
import threading

import pytest
from tensorboard.summary.writer.event_file_writer import _AsyncWriter
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboardX import SummaryWriter

from support.event_files import record_offsets
from support.subprocesses import run_to_end
from tbupload.background_upload import open_writers
from tbupload.background_upload.open_writers import flush_open_writers


def record_count(path):
    return len(record_offsets(path)) - 1  # the last offset is the end


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tfevents.1"


@pytest.fixture
def tensorboard_writer(path):
    """TensorBoard's writer on a buffered file, as it has beside TensorFlow."""
    writer = _AsyncWriter(RecordWriter(path.open("wb")), max_queue_size=1000, flush_secs=120)
    writer.write(b"the first record")
    writer.flush()
    yield writer
    writer._writer._writer.flush = lambda: None
    writer.close()


def test_flush_finds_writer_of_tensorboard_and_all_that_it_holds(tensorboard_writer, path):
    for number in range(500):
        tensorboard_writer.write(b"%d" % number)
    assert flush_open_writers() == []
    assert record_count(path) == 501


def test_flush_finds_writer_that_was_dropped_without_close(path):
    writer = _AsyncWriter(RecordWriter(path.open("wb")), max_queue_size=1000, flush_secs=120)
    for number in range(500):
        writer.write(b"%d" % number)
    worker = writer._worker
    del writer
    assert flush_open_writers() == []
    assert record_count(path) == 500
    worker.stop()
    worker._record_writer.close()


def test_flush_finds_writer_of_tensorboardx_and_its_queue(tmp_path):
    with SummaryWriter(str(tmp_path), max_queue=1000) as writer:
        for step in range(500):
            writer.add_scalar("loss", step, step)
        assert flush_open_writers() == []
        (path,) = tmp_path.iterdir()
        assert record_count(path) == 501
    assert flush_open_writers() == []


def test_writer_that_fails_is_told_and_others_are_flushed(tensorboard_writer, path, tmp_path):
    def fail():
        raise OSError("disk full")

    tensorboard_writer._writer._writer.flush = fail
    with SummaryWriter(str(tmp_path / "x")) as writer:
        writer.add_scalar("loss", 1, 1)
        (problem,) = flush_open_writers()
        (path,) = (tmp_path / "x").iterdir()
        assert record_count(path) == 2
    assert "TensorBoard" in problem
    assert "disk full" in problem


def test_flush_takes_no_longer_than_it_may(tensorboard_writer):
    is_over = threading.Event()
    tensorboard_writer._writer._writer.flush = is_over.wait
    (problem,) = flush_open_writers(0.1)
    is_over.set()
    assert "within 0.1 s" in problem


def test_objects_are_found_by_class_and_subclass():
    class Writer: ...

    class Derived(Writer): ...

    sys.modules[__name__].Writer = Writer
    made = [Writer(), Derived()]
    assert {id(writer) for writer in open_writers._objects(__name__, "Writer")} == set(
        map(id, made)
    )
    assert open_writers._objects(__name__, "NoWriter") == []
    assert open_writers._objects("no_module", "Writer") == []


def test_flush_imports_nothing_and_works_while_python_exits():
    source = """
import atexit, sys
from tbupload.background_upload.open_writers import flush_open_writers
before = set(sys.modules)
atexit.register(lambda: print(flush_open_writers(), set(sys.modules) - before))
"""
    ended = run_to_end([sys.executable, "-c", source], check=True)
    assert (ended.stdout, ended.stderr) == ("[] set()\n", "")
