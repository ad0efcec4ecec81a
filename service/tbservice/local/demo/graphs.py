"""The demo's graphs: an operation graph, a Keras model, and run metadata of a forward pass.

Formats: `tensorboard/compat/proto/graph.proto` and `step_stats.proto`, and for the Keras model
`tensorboard/plugins/graph/keras_util.py`.
"""

from __future__ import annotations

import json
from typing import Final

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.step_stats_pb2 import DeviceStepStats, NodeExecStats, StepStats
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_DOUBLE

_DEVICE: Final = "/device:CPU:0"


def layer_shapes(width: int) -> dict[str, tuple[int, int]]:
    """Return the shape of each layer's kernel, in the order of the layers."""
    return {"hidden_1": (2, width), "hidden_2": (width, width), "output": (width, 1)}


def graph_def(width: int, optimizer: str) -> bytes:
    """Return a serialized GraphDef of the network, its loss and its optimizer."""
    nodes = [
        _node("data/points", "Placeholder", [], (-1, 2)),
        _node("data/labels", "Placeholder", [], (-1, 1)),
    ]

    output, weights = "data/points", []
    for layer, (inputs, outputs) in layer_shapes(width).items():
        kernel, bias, shape = f"{layer}/kernel", f"{layer}/bias", (-1, outputs)
        activation = _activation(layer).capitalize()
        nodes += [
            _node(kernel, "VariableV2", [], (inputs, outputs)),
            _node(bias, "VariableV2", [], (outputs,)),
            _node(f"{layer}/MatMul", "MatMul", [output, kernel], shape),
            _node(f"{layer}/BiasAdd", "BiasAdd", [f"{layer}/MatMul", bias], shape),
            _node(f"{layer}/{activation}", activation, [f"{layer}/BiasAdd"], shape),
        ]
        output = f"{layer}/{activation}"
        weights += [kernel, bias]

    loss_inputs = [output, "data/labels"]
    nodes += [
        _node("loss/cross_entropy", "SigmoidCrossEntropyWithLogits", loss_inputs, (-1, 1)),
        _node("loss/mean", "Mean", ["loss/cross_entropy"], ()),
        _node("train/gradients", "SymbolicGradient", ["loss/mean"], ()),
        _node(f"train/{optimizer}", "ApplyGradients", ["train/gradients", *weights], ()),
    ]
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
    devices = [DeviceStepStats(device=_DEVICE, node_stats=stats)]
    return bytes(RunMetadata(step_stats=StepStats(dev_stats=devices)).SerializeToString())


def _activation(layer: str) -> str:
    return "sigmoid" if layer == "output" else "tanh"


def _node(name: str, operation: str, inputs: list[str], shape: tuple[int, ...]) -> NodeDef:
    """Return a node of float64 tensors; a size of -1 is unknown."""
    attributes = {
        "T": AttrValue(type=DT_DOUBLE),
        "_output_shapes": AttrValue(list=AttrValue.ListValue(shape=[_shape(shape)])),
    }
    return NodeDef(name=name, op=operation, input=inputs, device=_DEVICE, attr=attributes)


def _shape(sizes: tuple[int, ...]) -> TensorShapeProto:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])
