"""Polls of a log directory that changes: new files, growing files, directories that vanish
and return.
"""

import errno
import os
import shutil

import pytest

from support.clock import Clock
from tbupload.commands.uploading.dry_run import DEFAULT_LIMITS
from tbupload.events.filters import SeriesFilter
from tbupload.logdir.entries import MTIME_UNKNOWN
from tbupload.logdir.tree import LogdirTree
from tbupload.logdir.watcher import FILE_POLL_SECONDS, FULL_LISTING_SECONDS, LogdirWatcher
from tbupload.upload.file_cache import FileCache
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.stream_cursors import StreamCursors

POLL_SECONDS = 5.0


def nothing_read():
    """The file cache of an upload that has read no file yet."""
    everything = SeriesFilter()
    options = ReadOptions(everything, DEFAULT_LIMITS, is_final=False, warn=print)
    return FileCache(options, StreamCursors(everything.digest(), []))


class Watched:
    """A log directory and its watcher: `turns` returns the runs and names of changed files, and of
    vanished ones.
    """

    def __init__(self, logdir):
        self.logdir = logdir
        self.clock = Clock()
        self.tree = LogdirTree(logdir, SeriesFilter(), 10_000)
        self.watch = LogdirWatcher(self.tree, POLL_SECONDS, nothing_read(), self.clock)

    def turns(self, seconds):
        names, lost = [], []
        for _ in range(round(seconds / FILE_POLL_SECONDS)):
            self.clock.now += FILE_POLL_SECONDS
            changed, gone = self.watch.poll()
            for entry in changed:
                entry.committed = entry.size  # as if it had been sent
                self.watch.park(entry)
            names += [f"{entry.folder.run}/{entry.name}" for entry in changed]
            lost += [f"{entry.folder.run}/{entry.name}" for entry in gone]
        return names, lost


def write(path, content=b"content", age_seconds=1e6):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    settle(path.parent, age_seconds)
    os.utime(path, (path.stat().st_mtime - age_seconds,) * 2)
    return path


def settle(directory, age_seconds=1e6):
    """Make a directory look as if it had changed long ago, as most have."""
    os.utime(directory, (directory.stat().st_mtime - age_seconds,) * 2)


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path)


def grow(path):
    with path.open("ab") as file:
        file.write(b"more")


def test_files_are_handed_out_when_found_or_grown(watched, tmp_path):
    path = write(tmp_path / "a" / "b" / "tfevents.1")
    write(tmp_path / "tfevents.2")
    assert watched.turns(1.0) == (["./tfevents.2", "a/b/tfevents.1"], [])
    assert watched.turns(60.0) == ([], [])
    grow(path)
    assert watched.turns(POLL_SECONDS + 1) == (["a/b/tfevents.1"], [])
    grow(path)
    assert watched.turns(2 * FILE_POLL_SECONDS) == (
        ["a/b/tfevents.1"],
        [],
    )  # what grew a moment ago is looked at often
    assert watched.watch.total_bytes == 7 + 7 + 8


def test_file_without_content_is_waited_for(watched, tmp_path):
    path = write(tmp_path / "run" / "tfevents.1", b"")
    assert watched.turns(10.0) == ([], [])
    grow(path)
    assert watched.turns(POLL_SECONDS + 1)[0] == ["run/tfevents.1"]


def test_new_runs_and_new_files_in_old_ones_are_found_soon(watched, tmp_path):
    write(tmp_path / "old" / "tfevents.1")
    watched.turns(60.0)
    write(tmp_path / "new" / "deep" / "tfevents.1", age_seconds=10.0)
    assert watched.turns(POLL_SECONDS + 1)[0] == ["new/deep/tfevents.1"]
    write(tmp_path / "old" / "tfevents.2", age_seconds=10.0)
    assert watched.turns(2 * POLL_SECONDS + 1)[0] == ["old/tfevents.2"]


def test_directories_that_did_not_change_are_not_listed_again(watched, tmp_path, monkeypatch):
    for run in range(10):
        write(tmp_path / f"run{run}" / "tfevents.1")
    settle(tmp_path)
    watched.turns(1.0)
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (listed.append(path), scandir(path))[1])
    watched.turns(60.0)
    assert listed == []
    watched.turns(FULL_LISTING_SECONDS + 4 * POLL_SECONDS)  # their times are not trusted for ever
    assert len(listed) == 11


def test_directory_just_changed_is_listed_again(watched, tmp_path):
    write(tmp_path / "tfevents.1", age_seconds=0.0)
    watched.turns(1.0)
    assert watched.tree.root.mtime_ns == MTIME_UNKNOWN
    before = tmp_path.stat()
    write(tmp_path / "tfevents.2", age_seconds=0.0)
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert watched.turns(POLL_SECONDS + 1)[0] == ["./tfevents.2"]


def test_directory_that_vanishes_may_return(watched, tmp_path):
    write(tmp_path / "group" / "run" / "tfevents.1")
    watched.turns(1.0)
    shutil.rmtree(tmp_path / "group")
    assert watched.turns(2 * POLL_SECONDS + 1) == ([], ["group/run/tfevents.1"])
    assert watched.watch.total_bytes == 0
    write(tmp_path / "group" / "run" / "tfevents.1")
    assert watched.turns(2 * POLL_SECONDS + 1) == (["group/run/tfevents.1"], [])


def test_logdir_itself_may_vanish_and_come_back(watched, tmp_path):
    logdir = tmp_path / "logdir"
    watched = Watched(logdir)
    write(logdir / "run" / "tfevents.1")
    watched.turns(1.0)
    shutil.rmtree(logdir)
    assert watched.turns(2 * POLL_SECONDS) == ([], ["run/tfevents.1"])
    (sentence,) = watched.tree.problems().values()
    assert sentence.startswith(f"{logdir}: this log directory was removed; what was sent is kept")
    assert watched.tree.is_missing
    write(logdir / "run" / "tfevents.1")
    assert watched.turns(2 * POLL_SECONDS) == (["run/tfevents.1"], [])
    assert (watched.tree.problems(), watched.tree.is_missing) == ({}, False)


def test_file_replaced_by_equal_size_is_handed_out(watched, tmp_path):
    path = write(tmp_path / "tfevents.1", b"first")
    watched.turns(1.0)
    before = path.stat()
    other = write(tmp_path / "other", b"later")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(path)
    assert watched.turns(POLL_SECONDS + 1) == (["./tfevents.1"], [])


def test_file_deleted_but_listed_is_not_read(watched, tmp_path):
    path = write(tmp_path / "run" / "tfevents.1")
    watched.turns(1.0)
    path.unlink()
    assert watched.turns(2 * POLL_SECONDS + 1) == ([], ["run/tfevents.1"])


def test_directory_unlistable_for_a_moment_keeps_files(watched, tmp_path, monkeypatch):
    # No file system here fails on request, so the failure comes from the call itself.
    path = write(tmp_path / "run" / "tfevents.1")
    watched.turns(1.0)
    scandir = os.scandir

    def failing(where):
        if os.fspath(where).endswith("run"):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), where)
        return scandir(where)

    settle(tmp_path / "run", 5.0)
    monkeypatch.setattr(os, "scandir", failing)
    assert watched.turns(4 * POLL_SECONDS) == ([], [])
    assert len(watched.tree.problems(seen_times_min=2)) == 1
    monkeypatch.undo()
    grow(path)
    assert watched.turns(4 * POLL_SECONDS) == (["run/tfevents.1"], [])
    assert watched.tree.problems() == {}


def test_last_look_finds_everything_whatever_is_due(watched, tmp_path):
    quiet, grown = write(tmp_path / "run" / "tfevents.1"), write(tmp_path / "run" / "tfevents.2")
    watched.turns(60.0)
    grow(grown)
    write(tmp_path / "new" / "tfevents.1")
    names = [
        f"{entry.folder.run}/{entry.name}"
        for changed, _ in watched.watch.rescan()
        for entry in changed
    ]
    assert names == ["new/tfevents.1", "run/tfevents.2"]
    assert quiet.exists()
