"""Views of Katib's sweeps: their experiments over HTTP, and whether all of a sweep is there."""

from __future__ import annotations

from support.sweeps import check_value
from tbservice.katib import katib_pb2 as pb


def experiments(reader):
    """Return {name: id} of the workspace's experiments."""
    listed = reader.get("/api/v1/experiments").raise_for_status().json()["experiments"]
    return {each["name"]: each["experiment_id"] for each in listed}


def scalars(reader, experiment_id):
    """Return {run: {tag: values}} of an experiment."""
    path = f"/api/v1/experiments/{experiment_id}/scalars/data"
    answer = reader.get(path, params={"downsample": 1000}).raise_for_status().json()
    return {
        run: {tag: series["values"] for tag, series in tags.items()} for run, tags in answer.items()
    }


def sessions(reader, experiment_id):
    """Return the session groups of an experiment, as the HParams dashboard gets them."""
    body = {
        "allowedStatuses": [
            f"STATUS_{name}" for name in ("UNKNOWN", "SUCCESS", "FAILURE", "RUNNING")
        ],
        "sliceSize": 1000,
        "colParams": [{"metric": {"tag": "loss"}}],
    }
    path = f"/api/v1/experiments/{experiment_id}/hparams/session_groups"
    return reader.post(path, json=body).raise_for_status().json()["sessionGroups"]


def check_sweep(controller, katib, reader):
    """Check a sweep that has ended: what was suggested, stored, and is seen in its experiment."""
    specs = controller.experiment.spec.parameter_specs.parameters
    assert len(controller.items) == controller.trials
    for item in controller.items:
        if specs:
            assert [*item.assignments] == [spec.name for spec in specs]
        for spec in specs:
            check_value(spec, item.assignments[spec.name])
        assert katib.logs(item.name) == item.logs
    if specs:  # there is a space, and it has points enough
        points = {tuple(item.assignments.items()) for item in controller.items}
        assert len(points) == controller.trials
    _check_page(controller, reader)


def _check_page(controller, reader):
    experiment_id = experiments(reader)[controller.experiment.name]
    points = scalars(reader, experiment_id)
    groups = {group["name"]: group for group in sessions(reader, experiment_id)}
    assert set(groups) == {item.name for item in controller.items}
    assert set(points) == {item.name for item in controller.items if item.reported}
    for item in controller.items:
        assert groups[item.name]["hparams"] == {
            name: _typed(controller.experiment, name, text)
            for name, text in item.assignments.items()
        }
        if item.reported:
            assert points[item.name]["loss"] == item.reported


def _typed(experiment, name, text):
    """Return a hyperparameter as the dashboard has it."""
    kinds = {spec.name: spec.parameter_type for spec in experiment.spec.parameter_specs.parameters}
    return text if kinds.get(name, pb.CATEGORICAL) == pb.CATEGORICAL else float(text)
