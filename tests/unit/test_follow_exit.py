"""Where a script that called `follow` waits at its exit by default."""

import pytest

from tbupload.background_upload.uploaders import EXIT_SECONDS, default_exit_seconds


@pytest.mark.parametrize(
    ("environment", "init", "seconds"),
    [
        ({}, "systemd", 0),
        ({}, "init(Ubuntu)", 0),  # WSL
        ({}, None, 0),  # no /proc
        ({"SLURM_JOB_ID": "1"}, "systemd", EXIT_SECONDS),
        ({"LSB_JOBID": "1"}, None, EXIT_SECONDS),
        ({}, "python", EXIT_SECONDS),
        ({}, "tini", EXIT_SECONDS),
        ({}, "docker-init", EXIT_SECONDS),
    ],
)
def test_exit_waits_where_uploader_is_killed_with_script(tmp_path, environment, init, seconds):
    path = tmp_path / "comm"
    if init is not None:
        path.write_text(f"{init}\n")
    assert default_exit_seconds(environment, path) == seconds
