"""The demo network as graphs: a GraphDef, a Keras model, and the run metadata of one real pass through it."""

from __future__ import annotations

import json
from typing import Final

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.step_stats_pb2 import (
    DeviceStepStats,
    NodeExecStats,
    NodeOutput,
    StepStats,
)
from tensorboard.compat.proto.tensor_description_pb2 import TensorDescription
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_DOUBLE

from tbservice.local.demo.network import LAYERS, Array, Network

DEVICE: Final = "/device:CPU:0"


def graph_def(network: Network, optimizer: str) -> bytes:
    """A serialized GraphDef of the network, its loss and its optimizer."""
    nodes = [
        _node("data/points", "Placeholder", [], (-1, 2)),
        _node("data/labels", "Placeholder", [], (-1, 1)),
    ]
    output, kernels = "data/points", []
    for layer in LAYERS:
        inputs, outputs = network.weights[f"{layer}/kernel"].shape
        kernels += [f"{layer}/kernel", f"{layer}/bias"]
        activation = "Sigmoid" if layer == "output" else "Tanh"
        nodes += [
            _node(f"{layer}/kernel", "VariableV2", [], (inputs, outputs)),
            _node(f"{layer}/bias", "VariableV2", [], (outputs,)),
            _node(f"{layer}/MatMul", "MatMul", [output, f"{layer}/kernel"], (-1, outputs)),
            _node(
                f"{layer}/BiasAdd", "BiasAdd", [f"{layer}/MatMul", f"{layer}/bias"], (-1, outputs)
            ),
            _node(f"{layer}/{activation}", activation, [f"{layer}/BiasAdd"], (-1, outputs)),
        ]
        output = f"{layer}/{activation}"
    nodes += [
        _node(
            "loss/cross_entropy", "SigmoidCrossEntropyWithLogits", [output, "data/labels"], (-1, 1)
        ),
        _node("loss/mean", "Mean", ["loss/cross_entropy"], ()),
        _node("train/gradients", "SymbolicGradient", ["loss/mean"], ()),
        _node(f"train/{optimizer}", "ApplyGradients", ["train/gradients", *kernels], ()),
    ]
    return bytes(GraphDef(node=nodes).SerializeToString())


def keras_json(network: Network) -> str:
    """The same network as Keras would describe it."""
    shape = [None, 2]
    layers: list[dict[str, object]] = [
        {
            "class_name": "InputLayer",
            "config": {"name": "points", "dtype": "float64", "batch_input_shape": shape},
        }
    ]
    for layer in LAYERS:
        activation = "sigmoid" if layer == "output" else "tanh"
        units = network.weights[f"{layer}/bias"].size
        config = {"name": layer, "dtype": "float64", "units": units, "activation": activation}
        layers.append({"class_name": "Dense", "config": config})
    return json.dumps({"class_name": "Sequential", "config": {"name": "spirals", "layers": layers}})


def run_metadata(network: Network, points: Array) -> bytes:
    """A serialized RunMetadata: time and memory of each layer's product in a pass of `points`, measured now."""
    stats = []
    for layer, (start, end) in network.layer_times(points).items():
        size = points.shape[0] * network.weights[f"{layer}/bias"].size * 8
        shape = _shape((points.shape[0], network.weights[f"{layer}/bias"].size))
        description = TensorDescription(dtype=DT_DOUBLE, shape=shape)
        description.allocation_description.requested_bytes = size
        description.allocation_description.allocated_bytes = size
        microseconds = max(1, round((end - start) * 1e6))
        began = 1 + round(
            start * 1e6
        )  # the page takes a node that starts at 0 for one that never ran
        node = NodeExecStats(node_name=f"{layer}/MatMul", all_start_micros=began)
        node.op_end_rel_micros = node.all_end_rel_micros = microseconds
        node.output.append(NodeOutput(slot=0, tensor_description=description))
        stats.append(node)
    devices = [DeviceStepStats(device=DEVICE, node_stats=stats)]
    return bytes(RunMetadata(step_stats=StepStats(dev_stats=devices)).SerializeToString())


def _node(name: str, operation: str, inputs: list[str], shape: tuple[int, ...]) -> NodeDef:
    """A node of float64 tensors; a size of -1 is unknown."""
    attributes = {
        "T": AttrValue(type=DT_DOUBLE),
        "_output_shapes": AttrValue(list=AttrValue.ListValue(shape=[_shape(shape)])),
    }
    return NodeDef(name=name, op=operation, input=inputs, device=DEVICE, attr=attributes)


def _shape(sizes: tuple[int, ...]) -> TensorShapeProto:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])
