"""The demo's graphs: an operation graph, a Keras model, and run metadata of a forward pass.

Formats: `tensorboard/compat/proto/graph.proto` and `step_stats.proto`, and for the Keras model
`tensorboard/plugins/graph/keras_util.py`.
"""

from __future__ import annotations

import json

from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.step_stats_pb2 import DeviceStepStats, NodeExecStats, StepStats


def layer_shapes(width: int) -> dict[str, tuple[int, int]]:
    """Return the shape of each layer's kernel, in the order of the layers."""
    return {"hidden_1": (2, width), "hidden_2": (width, width), "output": (width, 1)}


def graph_def(width: int, optimizer: str) -> bytes:
    """Return a serialized GraphDef of the network, its loss and its optimizer."""
    operations: dict[str, tuple[str, list[str]]] = {
        "data/points": ("Placeholder", []),
        "data/labels": ("Placeholder", []),
    }
    output, kernels = "data/points", []
    for layer in layer_shapes(width):
        operations |= {
            f"{layer}/kernel": ("VariableV2", []),
            f"{layer}/MatMul": ("MatMul", [output, f"{layer}/kernel"]),
            f"{layer}/activation": (_activation(layer).capitalize(), [f"{layer}/MatMul"]),
        }
        output = f"{layer}/activation"
        kernels.append(f"{layer}/kernel")
    operations |= {
        "loss/cross_entropy": ("SigmoidCrossEntropyWithLogits", [output, "data/labels"]),
        f"train/{optimizer}": ("ApplyGradients", ["loss/cross_entropy", *kernels]),
    }
    nodes = [NodeDef(name=name, op=op, input=inputs) for name, (op, inputs) in operations.items()]
    return bytes(GraphDef(node=nodes).SerializeToString())


def keras_json(width: int) -> str:
    """Return the same network as a Keras model serializes itself."""
    points = {"name": "points", "dtype": "float64", "batch_input_shape": [None, 2]}
    layers: list[dict[str, object]] = [{"class_name": "InputLayer", "config": points}]
    for layer, (_, units) in layer_shapes(width).items():
        config = {"name": layer, "units": units, "activation": _activation(layer)}
        layers.append({"class_name": "Dense", "config": {"dtype": "float64"} | config})
    return json.dumps({"class_name": "Sequential", "config": {"name": "spirals", "layers": layers}})


def run_metadata(width: int) -> bytes:
    """Return a serialized RunMetadata: when each layer's product ran in one forward pass."""
    stats = []
    start = 1  # microseconds: the Graphs dashboard fades a node that starts at 0 as never run
    for layer, (inputs, outputs) in layer_shapes(width).items():
        duration = 20 + inputs * outputs // 4
        node = NodeExecStats(node_name=f"{layer}/MatMul", all_start_micros=start)
        node.op_end_rel_micros = node.all_end_rel_micros = duration
        stats.append(node)
        start += duration
    devices = [DeviceStepStats(device="/device:CPU:0", node_stats=stats)]
    return bytes(RunMetadata(step_stats=StepStats(dev_stats=devices)).SerializeToString())


def _activation(layer: str) -> str:
    return "sigmoid" if layer == "output" else "tanh"
