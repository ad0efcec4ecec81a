"""Which files of a log directory are event files, of which run, and what is reported of the others."""

import os
import re

import pytest

from tbupload.errors import LogdirError
from tbupload.events.filters import SeriesFilter
from tbupload.logdir.scan import check_logdir, has_uploadable_files, scan_logdir

EVERYTHING = SeriesFilter()
NAME_CHARS_MAX = 10_000


def touch(path, content=b""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def scan_files(logdir, series_filter=EVERYTHING, name_chars_max=NAME_CHARS_MAX):
    scan = scan_logdir(logdir, series_filter, name_chars_max)
    return [(file.run, file.path.name) for file in scan.files], list(scan.problems.values())


def test_run_is_directory_with_event_file_directly_in_it(tmp_path):
    touch(tmp_path / "a" / "b" / "events.out.tfevents.1.host")
    touch(tmp_path / "a" / "checkpoint.pt")
    assert scan_files(tmp_path) == ([("a/b", "events.out.tfevents.1.host")], [])


def test_logdir_itself_is_run_named_dot(tmp_path):
    touch(tmp_path / "events.out.tfevents.1.host")
    assert scan_files(tmp_path) == ([(".", "events.out.tfevents.1.host")], [])


def test_files_come_by_run_and_name_and_their_sizes_add_up(tmp_path):
    for name in ("b/tfevents.2", "b/tfevents.1", "a/tfevents.3"):
        touch(tmp_path / name, b"12345")
    scan = scan_logdir(tmp_path, EVERYTHING, NAME_CHARS_MAX)
    assert [file.path.name for file in scan.files] == ["tfevents.3", "tfevents.1", "tfevents.2"]
    assert scan.bytes == 15


def test_profile_markers_and_hidden_files_hold_no_events(tmp_path):
    touch(tmp_path / "events.out.tfevents.1.host.profile-empty")
    touch(tmp_path / ".events.out.tfevents.1.host.Xy12ab")
    assert scan_files(tmp_path) == ([], [])


def test_directory_whose_name_looks_like_event_file_is_walked(tmp_path):
    touch(tmp_path / "tfevents" / "tfevents.1")
    assert scan_files(tmp_path) == ([("tfevents", "tfevents.1")], [])


def test_links_are_followed_and_loops_of_links_end(tmp_path):
    touch(tmp_path / "elsewhere" / "run" / "tfevents.1")
    logdir = tmp_path / "logdir"
    logdir.mkdir()
    (logdir / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "run" / "up").symlink_to(logdir)
    (logdir / "self").symlink_to(".")
    assert scan_files(logdir) == ([("link/run", "tfevents.1")], [])


def test_two_links_to_one_directory_are_two_runs(tmp_path):
    touch(tmp_path / "run" / "tfevents.1")
    (tmp_path / "latest").symlink_to("run")
    assert scan_files(tmp_path)[0] == [("latest", "tfevents.1"), ("run", "tfevents.1")]


def test_link_that_leads_nowhere_is_problem_and_no_end(tmp_path):
    (tmp_path / "tfevents.gone").symlink_to("nothing")
    touch(tmp_path / "tfevents.1")
    files, problems = scan_files(tmp_path)
    assert files == [(".", "tfevents.1")]
    assert len(problems) == 1
    assert "tfevents.gone" in problems[0]


def test_link_that_goes_in_circles_is_problem_and_no_end(tmp_path):
    (tmp_path / "round").symlink_to("about")
    (tmp_path / "about").symlink_to("round")
    touch(tmp_path / "run" / "tfevents.1")
    files, problems = scan_files(tmp_path)
    assert files == [("run", "tfevents.1")]
    assert [problem.split(": ")[0] for problem in sorted(problems)] == [
        str(tmp_path / "about"),
        str(tmp_path / "round"),
    ]


def test_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "tfevents.pipe")
    files, problems = scan_files(tmp_path)
    assert files == []
    assert "not a regular file" in problems[0]


def test_directory_that_cannot_be_listed_is_problem_and_no_end(tmp_path, monkeypatch):
    # Root may list everything, so the refusal comes from the call itself.
    touch(tmp_path / "good" / "tfevents.1")
    touch(tmp_path / "locked" / "tfevents.1")
    scandir = os.scandir

    def refusing(path):
        if os.fspath(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    files, problems = scan_files(tmp_path)
    assert files == [("good", "tfevents.1")]
    assert problems == [f"{tmp_path / 'locked'}: Permission denied"]


def test_names_that_are_no_text_are_problems(tmp_path):
    touch(tmp_path / os.fsdecode(b"run\xff") / "tfevents.1")
    files, problems = scan_files(tmp_path)
    assert files == []
    assert "not valid UTF-8" in problems[0]
    problems[0].encode()  # it can be printed


def test_run_name_over_servers_limit_is_problem(tmp_path):
    touch(tmp_path / "abcdef" / "tfevents.1")
    files, problems = scan_files(tmp_path, name_chars_max=5)
    assert files == []
    assert "6 characters" in problems[0]


def test_names_with_spaces_quotes_and_emoji_are_kept(tmp_path):
    name = "lr=0.1 'quoted' \"too\" 🚀 ünï"
    touch(tmp_path / name / "tfevents.1")
    assert scan_files(tmp_path)[0] == [(name, "tfevents.1")]


def test_runs_that_are_filtered_out_are_not_listed(tmp_path):
    touch(tmp_path / "train" / "tfevents.1")
    touch(tmp_path / "eval" / "tfevents.1")
    only_train = SeriesFilter(include_runs=re.compile("tr.*"))
    assert scan_files(tmp_path, only_train)[0] == [("train", "tfevents.1")]


def test_projector_config_belongs_to_enclosing_run(tmp_path):
    assets = "plugins/org_tensorflow_tensorboard_projector"
    for folder in ("train", "eval", f"train/{assets}", assets, "train/plugins"):
        touch(tmp_path / folder / "projector_config.pbtxt")
    scan = scan_logdir(tmp_path, EVERYTHING, NAME_CHARS_MAX)
    runs = {folder.path: folder.projector_run.run for folder in scan.projector_folders}
    assert runs == {
        f"{tmp_path}/{folder}": run
        for folder, run in {
            "train": "train",
            "eval": "eval",
            f"train/{assets}": "train",
            assets: ".",
            "train/plugins": "train/plugins",
        }.items()
    }
    assert (scan.is_empty, has_uploadable_files(tmp_path, EVERYTHING)) == (False, True)
    only_train = SeriesFilter(include_runs=re.compile("train"))
    scan = scan_logdir(tmp_path, only_train, NAME_CHARS_MAX)
    assert [folder.run for folder in scan.projector_folders] == ["train", f"train/{assets}"]
    nothing = SeriesFilter(include_runs=re.compile("none"))
    assert (
        scan_logdir(tmp_path, nothing, NAME_CHARS_MAX).is_empty,
        has_uploadable_files(tmp_path, nothing),
    ) == (True, False)


def test_logdir_that_is_none_is_refused_with_sentence(tmp_path):
    with pytest.raises(LogdirError, match="no such directory"):
        check_logdir(tmp_path / "missing")
    with pytest.raises(LogdirError, match="is a file"):
        check_logdir(touch(tmp_path / "file"))
    check_logdir(tmp_path)
