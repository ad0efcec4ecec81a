"""The demo's logdir, read back by TensorBoard's own readers."""

from __future__ import annotations

import io
import json
import wave

import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_file_loader import (
    EventFileLoader,
    LegacyEventFileLoader,
)
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.plugins.graph import keras_util
from tensorboard.util.tensor_util import make_ndarray

from tbservice.local.demo import write_demo_logdir
from tbservice.local.demo.sessions import SESSIONS

RUN = SESSIONS[0].run


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demo")
    write_demo_logdir(directory)
    return directory


@pytest.fixture(scope="module")
def multiplexer(logdir):
    everything = {"scalars": 0, "images": 0}
    return (
        EventMultiplexer(tensor_size_guidance=everything).AddRunsFromDirectory(str(logdir)).Reload()
    )


def arrays(multiplexer, run, tag):
    return [make_ndarray(event.tensor_proto) for event in multiplexer.Tensors(run, tag)]


def events(logdir, loader=LegacyEventFileLoader):
    return [
        (path.parent.relative_to(logdir).as_posix(), event)
        for path in sorted(logdir.rglob("*.tfevents.*"))
        for event in loader(str(path)).Load()
    ]


def test_demo_has_data_of_every_plugin(multiplexer):
    assert set(multiplexer.ActivePlugins()) >= {
        *("scalars", "histograms", "text", "images", "audio", "pr_curves", "mesh"),
        *("custom_scalars", "hparams", "graphs", "graph_keras_model", "graph_tagged_run_metadata"),
    }


def test_demo_sessions_have_runs_of_their_own(multiplexer):
    assert set(multiplexer.Runs()) == {
        c.run + part for c in SESSIONS for part in ("", "/train", "/validation")
    }


def test_tag_belongs_to_one_plugin_only(logdir):
    owners = {}
    for run, event in events(logdir, EventFileLoader):
        for value in event.summary.value:
            plugin = value.metadata.plugin_data.plugin_name
            if plugin:
                assert owners.setdefault((run, value.tag), plugin) == plugin


def test_every_network_learns(multiplexer):
    for choice in SESSIONS:
        accuracies = arrays(multiplexer, f"{choice.run}/validation", "accuracy")
        assert accuracies[0] < 0.7
        assert accuracies[-1] > 0.9


def test_pictures_and_sounds_can_be_decoded(multiplexer):
    width, height, picture = arrays(multiplexer, f"{RUN}/validation", "decision")[-1]
    assert Image.open(io.BytesIO(picture)).size == (int(width), int(height))
    (clip,) = arrays(multiplexer, f"{RUN}/train", "sound of the loss")[-1]
    with wave.open(io.BytesIO(clip)) as file:
        assert file.getnframes() == 1.5 * file.getframerate()


def test_demo_graphs_parse_and_match_run_metadata(multiplexer):
    graph = GraphDef.FromString(arrays(multiplexer, RUN, "__run_graph__")[0].item())
    names = {node.name for node in graph.node}
    assert {source for node in graph.node for source in node.input} <= names
    metadata = RunMetadata.FromString(arrays(multiplexer, RUN, "forward pass")[0].item())
    assert {stats.node_name for stats in metadata.step_stats.dev_stats[0].node_stats} <= names
    model = keras_util.keras_model_to_graph_def(
        json.loads(arrays(multiplexer, RUN, "keras")[0].item())
    )
    assert [node.name for node in model.node] == [
        f"spirals/{n}" for n in ("points", "hidden_1", "hidden_2", "output")
    ]


def test_written_again_demo_replaces_itself_and_has_same_values(logdir, tmp_path):
    def values(directory):
        return [
            (run, event.step, value.SerializeToString())
            for run, event in events(directory)
            for value in event.summary.value
            if not value.tag.startswith("_hparams_")  # these hold the time
        ]

    write_demo_logdir(tmp_path)
    names = sorted(tmp_path.rglob("*.tfevents.*"))
    write_demo_logdir(tmp_path)
    assert sorted(tmp_path.rglob("*.tfevents.*")) == names
    assert values(tmp_path) == values(logdir)


def test_demo_is_small(logdir):
    assert sum(path.stat().st_size for path in logdir.rglob("*.*")) < 4_000_000
