"""The generated protobuf code says what the .proto files say."""

from __future__ import annotations

import ast

import pytest
from google.protobuf.descriptor import FieldDescriptor

from support.proto_source import declared
from support.source_code import ROOT
from tbservice.katib import katib_pb2
from tbwire import (
    hparams_pb2,
    hparams_union_pb2,
    projector_pb2,
    read_pb2,
    tensorboard_pb2,
    wire_pb2,
)

WIRE = "uploader/tbwire"
FILES = {
    f"{WIRE}/wire": wire_pb2,
    f"{WIRE}/read": read_pb2,
    f"{WIRE}/tensorboard": tensorboard_pb2,
    f"{WIRE}/projector": projector_pb2,
    f"{WIRE}/hparams": hparams_pb2,
    f"{WIRE}/hparams_union": hparams_union_pb2,
    "service/tbservice/katib/katib": katib_pb2,
}


def test_every_proto_file_is_checked():
    paths = [*ROOT.glob("uploader/**/*.proto"), *ROOT.glob("service/**/*.proto")]
    assert {str(path.relative_to(ROOT).with_suffix("")) for path in paths} == set(FILES)


def generated(module):
    """Return the same as `declared`, from the descriptors that the generated code builds."""
    declarations = {}
    for message in module.DESCRIPTOR.message_types_by_name.values():
        add_message(message, declarations)
    for enum in module.DESCRIPTOR.enum_types_by_name.values():
        declarations[enum.name] = {value.name: (value.number,) for value in enum.values}
    return declarations


def add_message(message, declarations):
    name = message.full_name.removeprefix(f"{message.file.package}.")
    declarations[name] = {
        field.name: (
            field.number,
            type_name(field),
            field.is_repeated,
            field.containing_oneof and field.containing_oneof.name,
        )
        for field in message.fields
    }
    for nested in message.nested_types:
        add_message(nested, declarations)
    for enum in message.enum_types:
        declarations[f"{name}.{enum.name}"] = {value.name: (value.number,) for value in enum.values}


def type_name(field):
    if field.message_type is not None:
        return field.message_type.name
    if field.enum_type is not None:
        return field.enum_type.name
    kinds = {
        value: name for name, value in vars(FieldDescriptor).items() if name.startswith("TYPE_")
    }
    return kinds[field.type].removeprefix("TYPE_").lower()


@pytest.mark.parametrize("name", FILES)
def test_generated_code_is_current(name):
    source = declared(ROOT / f"{name}.proto")
    assert source
    assert generated(FILES[name]) == source


@pytest.mark.parametrize("name", FILES)
def test_stubs_for_type_checkers_know_every_field(name):
    tree = ast.parse((ROOT / f"{name}_pb2.pyi").read_text())
    stubs = {}
    gather_fields(tree.body, "", stubs)
    for message, fields in declared(ROOT / f"{name}.proto").items():
        assert fields.keys() <= stubs[message]


def gather_fields(body, outer, stubs):
    for node in body:
        if isinstance(node, ast.ClassDef):
            stubs[outer + node.name] = {
                item.target.id for item in (*node.body, *body) if isinstance(item, ast.AnnAssign)
            }
            gather_fields(node.body, f"{outer}{node.name}.", stubs)


def test_our_messages_never_take_names_of_tensorboards():
    ours = {
        f"tbhub.{name.rpartition('/')[2]}": module
        for name, module in FILES.items()
        if name.startswith(WIRE)
    }
    assert {module.DESCRIPTOR.package for module in ours.values()} == set(ours)
    assert katib_pb2.DESCRIPTOR.package == "api.v1.beta1"
