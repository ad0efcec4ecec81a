"""Each example of docs/integrations.md, with the real framework: everything is stored."""

from __future__ import annotations

import pytest

from support.frameworks import examples, hparams
from support.uploading import experiment_id_of

CASES = {
    "PyTorch": ("torch", 0, "runs", {"lr": 0.1, "batch_size": 32}),
    "Keras": (
        *("tensorflow", 0, "logs/adam"),
        {"optimizer": "Adam", "units": 1, "loss": "mse", "epochs": 3, "beta_1": 0.9},
    ),
    "Keras without TensorFlow": ("torch", 1, "logs/torch", {"optimizer": "SGD", "epochs": 3}),
    "Lightning": ("torch", 0, "logs/lightning_logs/version_0", {"lr": 0.1}),
    "Transformers": ("torch", 0, "output/runs/*", {"num_train_epochs": 2, "logging_steps": 1}),
}
"""The environment, the index of the example, its log directory, and some hyperparameters."""

RENAMED = {
    "pytorch_lightning": ("Lightning", "lightning.pytorch", "pytorch_lightning"),
    "tf_keras": ("Keras", "import keras", "import tf_keras as keras"),
}


def test_every_example_is_run():
    with_code = {heading for heading, blocks in examples().items() if blocks}
    assert with_code == {name.partition(" without")[0] for name in CASES} | {"Jupyter"}


@pytest.mark.parametrize("name", CASES)
def test_example_is_stored_completely(training, reader, name):
    environment, index, *expected = CASES[name]
    script = examples()[name.partition(" without")[0]][index]
    check(training, reader, training.run(environment, script), *expected)


def test_example_of_pytorch_run_twice_is_two_attempts(training, reader):
    """Each run writes two event files: `add_hparams` has a writer of its own."""
    for _ in range(2):
        ended = training.run("torch", examples()["PyTorch"][0])
        assert ended.code == 0, ended.text
    (run,) = reader.get(experiment_id_of(ended.urls[0]), "attempts")["runs"]
    assert [each["attempt"] for each in run["attempts"]] == [1, 2]


@pytest.mark.parametrize("package", RENAMED)
def test_example_runs_with_other_package(training, reader, package):
    name, before, after = RENAMED[package]
    environment, index, *expected = CASES[name]
    script = examples()[name][index]
    assert before in script
    variables = {"TF_USE_LEGACY_KERAS": "1"} if package == "tf_keras" else {}
    ended = training.run(environment, script.replace(before, after), **variables)
    check(training, reader, ended, *expected)


def check(training, reader, ended, logdir, expected):
    assert ended.code == 0, ended.text
    assert "everything is uploaded" in ended.text
    (url,) = ended.urls
    (directory,) = training.directory.glob(logdir)
    assert training.is_stored(directory, url), ended.text
    assert expected.items() <= hparams(reader, url).items()
