"""The command that a script tells for what its uploader has not sent."""

from tbupload.background_upload.rest_command import command_for_rest

OPTIONS = [
    "--logdir=my runs",
    "--name=a try",
    "--server=https://tbhub.example.org",
    "--plugins=scalars",
    "--poll-seconds=0.5",
    "--new",
]


def test_command_without_experiment_repeats_all_options():
    assert command_for_rest(OPTIONS, None) == (
        "tbupload '--logdir=my runs' '--name=a try' --server=https://tbhub.example.org "
        "--plugins=scalars --new --one-shot"
    )


def test_command_of_experiment_resumes_it():
    assert command_for_rest(OPTIONS, "A" * 22) == (
        "tbupload '--logdir=my runs' --server=https://tbhub.example.org --plugins=scalars "
        f"--one-shot --experiment={'A' * 22}"
    )
