"""Callbacks when a training raises, is interrupted, is repeated, has ranks, or has no server."""

from __future__ import annotations

import pytest

from support.frameworks import examples
from support.uploading import wait_until

ENDS = {
    "exception": "raise RuntimeError('out of memory')",
    "SIGINT": "import signal; signal.raise_signal(signal.SIGINT)",
}


def keras(before="", after=""):
    """Return the example that needs no TensorFlow, with one place replaced."""
    script = examples()["Keras"][1]
    assert before in script
    return script.replace(before, after) if before else script


@pytest.mark.parametrize("end", ENDS)
def test_training_that_raises_is_stored(training, end):
    loop = "            self.writer.add_scalar(name, value, epoch)\n"
    script = keras(loop, f"{loop}        if epoch == 1:\n            {ENDS[end]}\n")
    ended = training.run("torch", script)
    assert ended.code != 0
    assert ENDS[end].partition("'")[2].rstrip("')") in ended.text
    (url,) = ended.urls
    wait_until(lambda: training.is_stored("logs/torch", url))


@pytest.mark.parametrize(("directory", "experiments"), [("logs/torch", 1), ("logs/other", 2)])
def test_trainings_of_one_process(training, directory, experiments):
    script = keras()
    fit = script[script.rindex("model.fit(") :].replace("logs/torch", directory)
    ended = training.run(
        "torch",
        f"{script}\n{fit}\n".replace('SummaryWriter("logs/torch")', "W()").replace(
            "class Scalars",
            f"logdirs = ['logs/torch', '{directory}']\nW = lambda: SummaryWriter(logdirs.pop(0))\n\n\nclass Scalars",
        ),
    )
    assert ended.code == 0, ended.text
    assert len(ended.urls) == experiments
    assert ended.text.count("everything is uploaded") == 2
    assert training.is_stored(directory, ended.urls[-1])


def test_training_without_server_is_as_without_callback(training):
    ended = training.run("torch", keras(), TBHUB_SERVER="http://127.0.0.1:9")
    assert ended.code == 0, ended.text
    assert "nothing is uploaded yet" in ended.text


def test_first_of_two_ranks_uploads_for_both(training):
    script = examples()["Lightning"][0].replace(
        "Trainer(max", 'Trainer(accelerator="cpu", devices=2, strategy="ddp", max'
    )
    ended = training.run("torch", script)
    assert ended.code == 0, ended.text
    assert len(ended.urls) == 1
    assert ended.text.count("everything is uploaded") == 1
    assert training.is_stored("logs/lightning_logs/version_0", ended.urls[0])


def test_first_of_two_ranks_of_transformers_uploads(training):
    script = examples()["Transformers"][0].replace("num_train", "use_cpu=True, num_train")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2")
    ended = training.run("torch", script, *torchrun)
    assert ended.code == 0, ended.text
    assert len(ended.urls) == 1
    (logdir,) = training.directory.glob("output/runs/*")
    assert training.is_stored(logdir, ended.urls[0])


def test_later_processes_of_tensorflow_upload_nothing(training):
    config = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
    ended = training.run("tensorflow", examples()["Keras"][0], TF_CONFIG=config)
    assert ended.code == 0, ended.text
    assert ended.urls == []
