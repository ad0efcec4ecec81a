"""The HParams API does what the comments of its proto say: a test per sentence, which it quotes.

The proto is TensorBoard's `plugins/hparams/api.proto`; sentences about the browser are left out.
"""

from __future__ import annotations

import time

import pytest

from support.batches import ApiClient, scalars
from support.hparams import (
    HparamsClient,
    column,
    end,
    last,
    metric,
    start,
    summary,
    values,
)
from support.servers import new_owner

LOSS = {"tag": "loss"}
LR_DOMAIN = {"minValue": 0.0, "maxValue": 1.0}


@pytest.fixture(scope="module")
def sweep(shared_application, shared_settings):
    """Five groups: four sessions alone, and g with two; see `write_sweep`."""
    owner = new_owner(shared_settings.database_url.get_secret_value())
    client = HparamsClient(ApiClient(shared_application, owner))
    write_sweep(client)
    return client


def write_sweep(client):
    declared = summary(
        [
            column(
                "lr", (0.0, 1.0), display_name="Learning rate", description="of **Adam**", type=3
            ),
            column("optimizer", ["adam", "sgd"], type=1),
            column("dropout", type=3),
        ],
        [
            metric("loss", display_name="Loss", description="*less* is better", dataset_type=1),
            metric("loss", "validation", dataset_type=2),
        ],
        name="sweep",
        description="A **sweep**",
        user="team-a",
        time_created_secs=1.6e9,
    )
    client.write("schema", declared)
    fields = {"model_uri": "gs://m/1", "monitor_url": "https://m/1", "start_time_secs": 100.0}
    first = {"lr": 0.1, "optimizer": "adam", "layers": 2, "norm": True}
    losses = scalars("loss", [1, 5, 10], [3.0, 2.0, 0.5], [1.7e9, 1.7e9 + 1, 1.7e9 + 2])
    client.write("s1", start(first, **fields), end(end_time=200.0), losses)
    client.write("s1/validation", last("loss", 0.6, 9))
    second = {"lr": 0.2, "optimizer": "sgd", "layers": 3, "norm": False}
    client.write("s2", start(second), end("STATUS_FAILURE"), last("loss", 0.4))
    client.write("s3", start({"lr": 0.3, "optimizer": "adam"}), last("loss", 0.9))
    client.write(
        "s4", start({"lr": 0.4, "optimizer": "sgd"}), last("late", 7.0, wall_time=time.time())
    )
    shared = {"lr": 0.5, "optimizer": "adam"}
    for run, loss, step in (("s5", 0.1, 3), ("s6", 0.3, 4)):
        client.write(run, start(shared, group_name="g"), end(), last("loss", loss, step))


# ---- the file


def test_api_speaks_proto3_json(sweep):
    """ "These messages will be transmitted using proto3 native JSON encoding." """
    answer = sweep.post("session_groups", {"sliceSize": 1, "allowed_statuses": [1]})
    assert answer.headers["content-type"] == "application/json"
    (group,) = answer.json()["sessionGroups"]
    assert set(group) == {"name", "hparams", "metricValues", "sessions", "monitorUrl"}
    assert sweep.post("session_groups", {"noSuchField": 1}).status_code == 400


def test_api_prints_every_field_with_its_default(sweep):
    """ "These messages will be transmitted using proto3 native JSON encoding." """
    assert sweep.ask("session_groups") == {"sessionGroups": [], "totalSize": 0}
    (session,) = sweep.groups()["s3"]["sessions"]
    assert session == {
        "name": "s3",
        "startTimeSecs": 0.0,
        "endTimeSecs": 0.0,
        "status": "STATUS_UNKNOWN",
        "modelUri": "",
        "metricValues": session["metricValues"],
        "monitorUrl": "",
    }


def test_api_names_are_ids(sweep):
    """ "in what follows we use the field 'name' of a message to stores its id." """
    assert sweep.experiment()["name"] == sweep.experiment_id
    assert set(sweep.sessions()) == {"s1", "s2", "s3", "s4", "s5", "s6"}


# ---- Experiment


def test_experiment_has_multiple_sessions(sweep):
    """ "An experiment consists of multiple "sessions"." """
    assert len(sweep.sessions()) == 6


def test_session_has_given_hparams(sweep):
    """ "Typically, in each session a model is trained for a given set of hyperparameter values." """
    expected = {"lr": 0.1, "optimizer": "adam", "layers": 2.0, "norm": True}
    assert sweep.groups()["s1"]["hparams"] == expected


def test_metric_evals_are_series_at_steps(sweep):
    """ "In each session a training program may generate one or more series of real numbers--each
    containing the evaluation of some metric on the model at different training steps."
    """
    evals = sweep.ask("metric_evals", sessionName="s1", metricName=LOSS)
    assert evals == [[1.7e9, 1, 3.0], [1.7e9 + 1, 5, 2.0], [1.7e9 + 2, 10, 0.5]]


def test_session_consists_of_several_runs(sweep):
    """ "Note that Sessions can consist of multiple Tensorboard "runs", since in a distributed
    Tensorflow deployment, training can be accomplished using several cooporating processes, each
    one emitting Summary data to a different log directory or run."
    """
    assert values(sweep.sessions()["s1"]) == {("", "loss"): 0.5, ("validation", "loss"): 0.6}


def test_session_has_loss_of_both_sets(sweep):
    """ "For example, in a single session one process could periodically compute the loss on the
    validation set, and another could compute the loss on the training set."
    """
    validation = {"group": "validation", "tag": "loss"}
    evals = sweep.ask("metric_evals", sessionName="s1", metricName=validation)
    assert [(step, value) for _, step, value in evals] == [(9, 0.6)]


def test_experiment_name_scopes_request(sweep):
    """ "Experiments are scoped by a global name." """
    named = sweep.list(experimentName=sweep.experiment_id)
    assert named == sweep.list()
    other = HparamsClient(sweep.api).experiment_id
    for path, fields in (
        ("experiment", {}),
        ("session_groups", {}),
        ("metric_evals", {"sessionName": "s1", "metricName": LOSS}),
    ):
        assert sweep.refusal(path, experimentName=other, **fields)[0] == 404


def test_experiment_has_single_name(sweep):
    """ "Currently, Tensorboard supports displaying data for a single experiment." """
    assert sweep.experiment()["name"] == sweep.experiment_id


def test_experiment_description_is_markdown_as_logged(sweep):
    """ "A description. May contain markdown." """
    assert sweep.experiment()["description"] == "A **sweep**"


def test_experiment_user_is_as_logged(sweep):
    """ "An id for the owning user or group." """
    assert sweep.experiment()["user"] == "team-a"


def test_experiment_time_created_is_in_seconds(sweep):
    """ "The time the experiment was created. In seconds since the UNIX epoch." """
    assert sweep.experiment()["timeCreatedSecs"] == 1.6e9


def test_experiment_has_each_hparam_used(sweep):
    """ "Information about each hyperparameter used in the experiment." """
    assert set(sweep.columns()) == {"lr", "optimizer", "dropout", "layers", "norm"}


def test_experiment_has_each_metric_used(sweep):
    """ "Information about each metric used in the experiment." """
    assert sweep.metrics() == [("", "loss"), ("validation", "loss"), ("", "late")]


def test_experiment_without_metrics_if_not_included(sweep):
    """The field `include_metrics` of later versions: metrics are included unless it is false."""
    assert sweep.experiment(includeMetrics=False)["metricInfos"] == []
    assert all(
        not session["metricValues"] for session in sweep.sessions(includeMetrics=False).values()
    )


def test_experiment_hparams_limit_keeps_differing(sweep):
    """The field `hparams_limit` of later versions: those that differ first, then by name."""
    names = [info["name"] for info in sweep.experiment(hparamsLimit=2)["hparamInfos"]]
    assert names == ["layers", "lr"]
    assert len(sweep.columns(hparamsLimit=0)) == 5


# ---- HParamInfo


def test_hparam_name_is_its_id(sweep):
    """ "An id for the hyperparameter." """
    assert all(name in sweep.columns() for name in sweep.groups()["s1"]["hparams"])


def test_hparam_display_name_is_as_declared(sweep):
    """ "A string used to display the hyperparameter in the UI. If empty, the UI will display the
    'name' field."
    """
    columns = sweep.columns()
    assert (columns["lr"]["displayName"], columns["layers"]["displayName"]) == ("Learning rate", "")


def test_hparam_description_is_as_declared(sweep):
    """ "A description. May contain markdown." """
    assert sweep.columns()["lr"]["description"] == "of **Adam**"


def test_hparam_type_is_declared_or_computed(sweep):
    """ "The data type of this hyperparameter." """
    types = {name: info["type"] for name, info in sweep.columns().items()}
    assert types == {
        "lr": "DATA_TYPE_FLOAT64",
        "dropout": "DATA_TYPE_FLOAT64",
        "layers": "DATA_TYPE_FLOAT64",
        "optimizer": "DATA_TYPE_STRING",
        "norm": "DATA_TYPE_BOOL",
    }


def test_hparam_domain_is_declared_or_computed(sweep):
    """ "Specifies the set of values this hyperparameter can hold." """
    columns = sweep.columns()
    assert columns["lr"]["domainInterval"] == LR_DOMAIN
    assert columns["optimizer"]["domainDiscrete"] == ["adam", "sgd"]
    assert columns["layers"]["domainInterval"] == {"minValue": 2.0, "maxValue": 3.0}
    assert columns["norm"]["domainDiscrete"] == [False, True]


def test_hparam_instances_are_in_computed_domain(sweep):
    """ "The UI assumes every instance of this hyperparameter will hold a value from this set." """
    domain = sweep.columns()["layers"]["domainInterval"]
    layers = [group["hparams"].get("layers", 2) for group in sweep.groups().values()]
    assert all(domain["minValue"] <= value <= domain["maxValue"] for value in layers)


def test_hparam_domain_filters_groups(sweep):
    """ "It is used by the UI to allow filtering so that only session groups (see below) whose
    associated hyperparameter value "passes" the filter are displayed."
    """
    assert sweep.names({"hparam": "optimizer", "filterDiscrete": ["sgd"]}) == ["s2", "s4"]


def test_hparam_without_domain_has_none(sweep):
    """ "If this is not populated, the domain is assumed to be the entire domain of the type of the
    hyperparameter."
    """
    dropout = sweep.columns()["dropout"]
    assert not {"domainInterval", "domainDiscrete"} & set(dropout)


def test_hparam_discrete_domain_has_values(sweep):
    """ "A discrete set of the values this hyperparameter can hold." """
    assert sweep.columns()["optimizer"]["domainDiscrete"] == ["adam", "sgd"]


def test_hparam_interval_is_for_numbers(sweep):
    """ "Numeric data type only. The (real) interval from which values of this hyperparameter are
    taken."
    """
    for info in sweep.columns().values():
        assert "domainInterval" not in info or info["type"] == "DATA_TYPE_FLOAT64"


def test_interval_is_closed(sweep):
    """ "Represents the closed interval [min_value, max_value] of the real line." """
    interval = {"minValue": 0.1, "maxValue": 0.3}
    assert sweep.names({"hparam": "lr", "filterInterval": interval}) == ["s1", "s2", "s3"]


# ---- MetricName, MetricInfo


def test_metric_name_identifies_metric(sweep):
    """ "An identifier for a metric." """
    names = [info["name"] for info in sweep.experiment()["metricInfos"]]
    assert names[:2] == [{"group": "", "tag": "loss"}, {"group": "validation", "tag": "loss"}]


def test_metric_is_evaluated_at_steps(sweep):
    """ "A metric is a real-valued function of the model. The UI can plot metrics for a session
    evaluated on the model at different training steps."
    """
    evals = sweep.ask("metric_evals", sessionName="s1", metricName=LOSS)
    assert [step for _, step, _ in evals] == [1, 5, 10]


def test_metric_is_pair_of_opaque_strings(sweep):
    """ "We identify a metric by a (group, tag) pair of strings. The UI treats both of these as
    opaque strings."
    """
    client = HparamsClient(sweep.api)
    odd = 'a "b"/\n\u2028ü=[0]'
    client.write("s", start({"x": 1}))
    client.write(f"s/{odd}", last(odd, 2.0))
    assert client.metrics() == [(odd, odd)]
    odd_metric = {"group": odd, "tag": odd}
    assert client.ask("metric_evals", sessionName="s", metricName=odd_metric)[0][2] == 2.0


def test_metric_pair_is_unique(sweep):
    """ "The only requirement is that the pair uniquely identifies a metric in the experiment." """
    assert len(set(sweep.metrics())) == len(sweep.metrics())


def test_metrics_of_session_can_be_grouped(sweep):
    """ "We use a pair so the UI could allow the user to group metrics for a single session by
    either group or tag to be displayed in the same chart."
    """
    assert [tag for _, tag in values(sweep.sessions()["s1"])] == ["loss", "loss"]


def test_metric_group_can_be_dataset(sweep):
    """ "For instance, one can set the metric group to correspond to the dataset on which the model
    was evaluated, and the UI can then display different metrics describing the same underlying
    computation and using different datasets, on the same chart."
    """
    groups = {group for group, tag in values(sweep.sessions()["s1"]) if tag == "loss"}
    assert groups == {"", "validation"}


def test_metric_run_is_below_session(sweep):
    """ "When exporting summaries from Tensorflow, in a typical setup, a training session exports
    evaluations of metrics at different training steps as Scalar-plugin summaries--each having a run
    of the form "<session_base_log_dir>/<sub_dir>", and some associated tag."
    """
    client = HparamsClient(sweep.api)
    client.write("base/dir/session", start({"x": 1}))
    client.write("base/dir/session/sub/dir", last("loss", 1.0))
    assert values(client.sessions()["base/dir/session"]) == {("sub/dir", "loss"): 1.0}


def test_metric_of_sessions_has_same_group_and_tag(sweep):
    """ "The same metric for different sessions would use the same sub_dir and tag, but would have a
    different session_base_log_dir."
    """
    client = HparamsClient(sweep.api)
    for session in ("a", "b"):
        client.write(session, start({"x": 1}))
        client.write(f"{session}/eval", last("loss", 1.0))
    assert client.metrics() == [("eval", "loss")]


def test_metrics_of_two_subdirectories_are_two(sweep):
    """ "For example, a session computing two metrics: model loss on the validation set and model
    loss on the training set, can export these as scalar summaries with the tag "loss" and runs
    session_base_log_dir/validation and session_base_log_dir/training, respectively. In this setup,
    the 'group' field can be populated with the "sub_dir" associated with the metric, and the 'tag'
    field can be populated with the tag: "loss"."
    """
    client = HparamsClient(sweep.api)
    client.write("s", start({"x": 1}))
    client.write("s/validation", last("loss", 0.5))
    client.write("s/training", last("loss", 0.25))
    both = {("training", "loss"): 0.25, ("validation", "loss"): 0.5}
    assert values(client.sessions()["s"]) == both


def test_metric_info_is_as_declared(sweep):
    """ "A string used to display the metric in the UI. If empty, the UI will display the 'name'
    field." "A description. May contain markdown." "The dataset type (validation, training) on which
    the metric is computed."
    """
    loss, validation, late = sweep.experiment()["metricInfos"]
    assert (loss["displayName"], loss["description"]) == ("Loss", "*less* is better")
    assert late["displayName"] == late["description"] == ""
    types = [info["datasetType"] for info in (loss, validation, late)]
    assert types == ["DATASET_TRAINING", "DATASET_VALIDATION", "DATASET_UNKNOWN"]


# ---- SessionGroup, MetricValue, Session


def test_group_is_of_repeated_sessions(sweep):
    """ "To make the UI aware of this, sessions are partitioned into groups: each group consists of
    all training sessions which share the same values for the hyperparameters."
    """
    assert [session["name"] for session in sweep.groups()["g"]["sessions"]] == ["s5", "s6"]


def test_group_is_single_session_without_repetition(sweep):
    """ "In experiments with no repeated executions, each group consists of exactly one session." """
    groups = sweep.groups()
    assert [len(groups[name]["sessions"]) for name in ("s1", "s2", "s3", "s4")] == [1] * 4


def test_group_hparams_are_mapping(sweep):
    """ "Stores the hyperparameters for sessions within this group as a mapping from the
    hyperparameter name to its value."
    """
    assert sweep.groups()["g"]["hparams"] == {"lr": 0.5, "optimizer": "adam"}


def test_group_metric_values_are_pairs(sweep):
    """ "A list of pairs (metric, value)--one for each metric in the experiment." """
    assert values(sweep.groups()["s1"]) == {("", "loss"): 0.5, ("validation", "loss"): 0.6}


def test_group_metric_value_is_aggregated(sweep):
    """ "The value denotes the evaluation of the corresponding metric on the model aggregated across
    the sessions in this group."
    """
    assert values(sweep.groups()["g"]) == {("", "loss"): 0.2}


def test_group_has_its_sessions(sweep):
    """ "The sessions belonging to this group." """
    assert [values(session) for session in sweep.groups()["g"]["sessions"]] == [
        {("", "loss"): 0.1},
        {("", "loss"): 0.3},
    ]


def test_group_monitor_url_is_that_of_session(sweep):
    """ "An optional link to a web page monitoring the session group." """
    groups = sweep.groups()
    assert (groups["s1"]["monitorUrl"], groups["s2"]["monitorUrl"]) == ("https://m/1", "")


def test_metric_value_has_step_and_wall_time(sweep):
    """ "The training step at which this value is computed." "The wall time in seconds since UNIX
    epoch at which this value is computed."
    """
    loss = sweep.sessions()["s1"]["metricValues"][0]
    assert loss == {
        "name": {"group": "", "tag": "loss"},
        "value": 0.5,
        "trainingStep": 10,
        "wallTimeSecs": 1.7e9 + 2,
    }


def test_session_name_is_unique_in_experiment(sweep):
    """ "An id for the session. Unique within an experiment (not just the group)." """
    groups = sweep.groups().values()
    names = [session["name"] for group in groups for session in group["sessions"]]
    assert len(names) == len(set(names)) == 6


def test_session_times_are_seconds(sweep):
    """ "In seconds since the UNIX epoch." """
    session = sweep.sessions()["s1"]
    assert (session["startTimeSecs"], session["endTimeSecs"]) == (100.0, 200.0)


def test_session_end_time_is_zero_without_end(sweep):
    """ "May be 0 if unavailable or the session has not finished yet." """
    sessions = sweep.sessions()
    assert [sessions[name]["endTimeSecs"] for name in ("s2", "s3", "s4")] == [0.0] * 3


def test_session_status_is_unknown_if_unavailable(sweep):
    """ "May be STATUS_UNKNOWN if unavailable." """
    assert sweep.statuses() == {
        "s1": "success",
        "s2": "failure",
        "s3": "unknown",
        "s4": "running",
        "s5": "success",
        "s6": "success",
    }


def test_session_model_uri_is_passed_on(sweep):
    """ "Currently, this is treated opaquely by the UI and only displayed to the user as it is passed
    here."
    """
    assert sweep.sessions()["s1"]["modelUri"] == "gs://m/1"


def test_session_metric_values_are_at_current_step(sweep):
    """ "Stores each metric evaluation on the model at the current training step." """
    steps = [value["trainingStep"] for value in sweep.sessions()["s1"]["metricValues"]]
    assert steps == [10, 9]


def test_session_monitor_url_is_passed_on(sweep):
    """ "An optional link to a web page monitoring the session." """
    assert sweep.sessions()["s1"]["monitorUrl"] == "https://m/1"


# ---- GetExperimentRequest, ListSessionGroupsRequest


def test_experiment_request_is_by_global_id(sweep):
    """ "Each experiment is scoped by a unique global id." """
    other = HparamsClient(sweep.api)
    other.write("only", start({"y": 1}))
    assert set(other.columns()) == {"y"}


def test_experiment_request_requires_name(sweep):
    """ "REQUIRED" """
    for fields in ({}, {"experimentName": ""}):
        status, detail = sweep.refusal("experiment", **fields)
        assert (status, detail) == (422, "experiment_name: is required")


def test_groups_are_filtered_and_sorted(sweep):
    """ "Computes a list of the current session groups allowing for filtering and sorting by metrics
    and hyperparameter values."
    """
    loss = {"metric": LOSS, "order": "ORDER_ASC", "filterInterval": {"maxValue": 0.5}}
    adam = {"hparam": "optimizer", "filterDiscrete": ["adam"]}
    assert sweep.names(loss, adam, {"metric": LOSS, "excludeMissingValues": True}) == ["g", "s1"]


def test_groups_are_slice_of_list(sweep):
    """ "Returns a "slice" of that list specified by start_index and slice_size." """
    assert sweep.names(startIndex=1, sliceSize=2) == ["s1", "s2"]


def test_groups_allowed_statuses_filter_sessions(sweep):
    """ "Filters the set of sessions (from which the session groups are formed) to contain only these
    sessions whose status is contained in 'allowed_statuses'."
    """
    assert sweep.names(allowedStatuses=["STATUS_FAILURE", "STATUS_RUNNING"]) == ["s2", "s4"]
    assert sweep.names(allowedStatuses=["STATUS_UNKNOWN"]) == ["s3"]
    assert sweep.names(allowedStatuses=["STATUS_SUCCESS"]) == ["g", "s1"]
    assert sweep.names(allowedStatuses=[]) == []


def test_groups_are_formed_of_allowed_sessions(sweep):
    """ "Filters the set of sessions (from which the session groups are formed) …" """
    client = HparamsClient(sweep.api)
    for run, status, loss in (("a", "STATUS_SUCCESS", 1.0), ("b", "STATUS_FAILURE", 3.0)):
        client.write(run, start({"x": 1}, group_name="g"), end(status), last("loss", loss))
    (group,) = client.groups(allowedStatuses=["STATUS_FAILURE"]).values()
    assert [session["name"] for session in group["sessions"]] == ["b"]
    assert values(group) == {("", "loss"): 3.0}


def test_column_is_metric_or_hparam(sweep):
    """ "A list of ColParams messages--one for each "column" of a session group. A session group
    column contains either a metric evaluated at the current reported computation step or a
    hyperparameter value."
    """
    interval = {"minValue": 0.5, "maxValue": 0.5}
    by_metric = {"metric": LOSS, "filterInterval": interval, "excludeMissingValues": True}
    by_hparam = {"hparam": "lr", "filterInterval": interval}
    assert (sweep.names(by_metric), sweep.names(by_hparam)) == (["s1"], ["g"])


def test_column_may_be_missing(sweep):
    """ "In addition to 'regular' values, a column may take on a special 'missing-value' which denotes
    that the hyperparameter or metric is not available for the session group (for example, if the
    metric is not used in the group)."
    """
    assert sweep.names({"metric": LOSS, "excludeMissingValues": True}) == ["g", "s1", "s2", "s3"]
    assert sweep.names({"hparam": "layers", "excludeMissingValues": True}) == ["s1", "s2"]


def test_aggregation_avg_is_mean_over_sessions(sweep):
    """ "If aggregation_type is AGGREGATION_AVG, each metric value of the session group is the average
    of the values of the metric across the sessions."
    """
    for aggregation in ("AGGREGATION_AVG", "AGGREGATION_UNSET"):
        (loss,) = sweep.groups(aggregationType=aggregation)["g"]["metricValues"]
        assert (loss["value"], loss["trainingStep"]) == (0.2, 3)


@pytest.mark.parametrize(
    ("aggregation", "value", "step"), [("MIN", 0.1, 3), ("MAX", 0.3, 4), ("MEDIAN", 0.1, 3)]
)
def test_aggregation_takes_representative_session(sweep, aggregation, value, step):
    """ "Otherwise, the session group metric values are taken directly from a "representative"
    session in the group, selected as a session for which primary_metric takes on its minimum,
    maximum, or median value, as specified by the choice of aggregation_type (for median, if the
    number of sessions in the group is even, a session with a lower "middle" value is chosen as the
    representative session)."
    """
    fields = {"aggregationType": f"AGGREGATION_{aggregation}", "aggregationMetric": LOSS}
    (loss,) = sweep.groups(**fields)["g"]["metricValues"]
    assert (loss["value"], loss["trainingStep"]) == (value, step)


def test_aggregation_representative_decides_other_metrics(sweep):
    """ "… the session group metric values are taken directly from a "representative" session …" """
    client = HparamsClient(sweep.api)
    for run, loss, accuracy in (("a", 1.0, 10.0), ("b", 2.0, 20.0), ("c", 3.0, 30.0)):
        points = (last("loss", loss), last("accuracy", accuracy))
        client.write(run, start({"x": 1}, group_name="g"), *points)
    fields = {"aggregationType": "AGGREGATION_MEDIAN", "aggregationMetric": LOSS}
    shown = client.groups({"metric": {"tag": "accuracy"}, "order": "ORDER_ASC"}, **fields)["g"]
    assert values(shown) == {("", "accuracy"): 20.0, ("", "loss"): 2.0}
    only = {"metric": {"tag": "accuracy"}, "filterInterval": {"minValue": 20, "maxValue": 20}}
    assert client.names(only, **fields) == ["g"]


def test_start_index_is_first_of_sorted_and_filtered(sweep):
    """ "The next two parameters determine the "slice" of the full list of session groups--sorted and
    filtered by the parameters above--to return. The 0-based index of the first session group to
    return."
    """
    by_lr = {"hparam": "lr", "order": "ORDER_DESC", "filterInterval": {"maxValue": 0.4}}
    assert sweep.names(by_lr, startIndex=0) == ["s4", "s3", "s2", "s1"]
    assert sweep.names(by_lr, startIndex=3) == ["s1"]


def test_slice_size_is_number_to_return(sweep):
    """ "The number of session groups to return starting at the session group indexed by
    'start_index'."
    """
    assert sweep.names(sliceSize=3) == ["g", "s1", "s2"]
    assert sweep.names(sliceSize=0) == []


def test_slice_ends_with_list(sweep):
    """ "The actual number of session groups returned is min{slice_size, total_size - start_index},
    where total_size is the number of session groups in the full list sorted and filtered by the
    parameters above (if start_index > total_size no session groups are returned)."
    """
    assert sweep.names(startIndex=3, sliceSize=100) == ["s3", "s4"]
    for index in (5, 6, 2**31 - 1):
        beyond = sweep.list(startIndex=index)
        assert beyond == {"sessionGroups": [], "totalSize": 5}


def test_total_size_counts_filtered_list(sweep):
    """ "Denotes the total number of session groups in the full filtered list. (Recall that this
    response may only be a slice)."
    """
    assert sweep.list(sliceSize=1)["totalSize"] == 5
    assert sweep.list({"hparam": "lr", "filterInterval": {"maxValue": 0.25}})["totalSize"] == 2


# ---- ColParams


def test_sort_is_by_columns_with_order(sweep):
    """ "The final order of session groups in the response is defined by the sub collection of
    ColParams messages (out of the ListSessionGroupsRequest.col_params repeated field) whose 'order'
    field (below) is not ORDER_UNSPECIFIED."
    """
    assert sweep.names({"hparam": "lr"}) == ["g", "s1", "s2", "s3", "s4"]
    by_lr = {"hparam": "lr", "order": "ORDER_ASC"}
    assert sweep.names({"hparam": "optimizer"}, by_lr) == ["s1", "s2", "s3", "s4", "g"]


def test_sort_keys_are_by_significance(sweep):
    """ "The order of the ColParams messages themselves within the sub-collection determines the
    "significance" of the associated column as a sorting key: with the first being the primary
    sorting key, the second being the secondary sorting key, etc."
    """
    optimizer = {"hparam": "optimizer", "order": "ORDER_DESC"}
    lr = {"hparam": "lr", "order": "ORDER_DESC"}
    assert sweep.names(optimizer, lr) == ["s4", "s2", "g", "s3", "s1"]
    assert sweep.names(lr, optimizer) == ["g", "s4", "s3", "s2", "s1"]


def test_sort_of_equal_values_is_by_group_name(sweep):
    """ "Note: The 'session group name' is added as a least significant sorting key to the keys
    defined by the user, so the order in the response is always deterministic."
    """
    for order in ("ORDER_ASC", "ORDER_DESC"):
        only_adam = {"hparam": "optimizer", "order": order, "filterDiscrete": ["adam"]}
        assert sweep.names(only_adam) == ["g", "s1", "s3"]


def test_sort_missing_is_ignored_without_order(sweep):
    """ "This field is ignored if order is ORDER_UNSPECIFIED." """
    assert sweep.names({"hparam": "layers", "missingValuesFirst": True})[0] == "g"


@pytest.mark.parametrize("order", ["ORDER_ASC", "ORDER_DESC"])
def test_sort_missing_is_before_or_after_all(sweep, order):
    """ "Otherwise, if true, missing values are ordered before every other value in the column; if
    false they are ordered after every other value in the column."
    """
    present = ["s1", "s2"] if order == "ORDER_ASC" else ["s2", "s1"]
    column = {"hparam": "layers", "order": order}
    assert sweep.names(column | {"missingValuesFirst": True}) == ["g", "s3", "s4", *present]
    assert sweep.names(column) == [*present, "g", "s3", "s4"]


def test_filter_is_subset_of_column(sweep):
    """ "The 'filter' oneof specifies a subset of the domain of the values a column may take. Only
    session groups with each of their column values belonging to this subset are included in the
    response."
    """
    lr = {"hparam": "lr", "filterInterval": {"minValue": 0.15, "maxValue": 0.45}}
    optimizer = {"hparam": "optimizer", "filterDiscrete": ["sgd"]}
    assert sweep.names(lr, optimizer) == ["s2", "s4"]


def test_filter_unspecified_is_whole_domain(sweep):
    """ "If this field is not specified, the subset is taken to be the entire column domain." """
    assert len(sweep.names({"hparam": "lr"}, {"hparam": "layers"}, {"metric": LOSS})) == 5


def test_filter_regexp_is_for_strings(sweep):
    """ "Only valid for string-valued hyperparameter columns." """
    for wrong in ({"hparam": "lr"}, {"hparam": "norm"}, {"metric": LOSS}):
        status, detail = sweep.refusal("session_groups", colParams=[wrong | {"filterRegexp": "a"}])
        assert status == 422
        assert detail.startswith("col_params[0].filter_regexp: ")


def test_filter_regexp_is_partial_match(sweep):
    """ "The subset is the set of all strings matching the regular expression stored in 'regexp' as a
    partial match (use '^<regexp>$' to have a full match against regexp)."
    """
    assert sweep.names({"hparam": "optimizer", "filterRegexp": "g"}) == ["s2", "s4"]
    assert sweep.names({"hparam": "optimizer", "filterRegexp": "^g$"}) == []
    assert sweep.names({"hparam": "optimizer", "filterRegexp": "^s.d$"}) == ["s2", "s4"]


def test_filter_interval_is_for_numbers(sweep):
    """ "Only valid for numeric-valued columns. The subset is the given interval." """
    for name in ("optimizer", "norm"):
        columns = [{"hparam": "lr"}, {"hparam": name, "filterInterval": {"maxValue": 1}}]
        status, detail = sweep.refusal("session_groups", allowedStatuses=[1], colParams=columns)
        assert status == 422
        assert detail.startswith("col_params[1].filter_interval: ")


@pytest.mark.parametrize(
    ("name", "values", "names"),
    [
        ("lr", [0.1, 0.5], ["g", "s1"]),
        ("optimizer", ["sgd", "rmsprop"], ["s2", "s4"]),
        ("norm", [True], ["g", "s1", "s3", "s4"]),
    ],
)
def test_filter_discrete_is_for_all_types(sweep, name, values, names):
    """ "Valid for all data types. The subset is defined explicitly." """
    assert sweep.names({"hparam": name, "filterDiscrete": values}) == names


def test_filter_excludes_missing_values(sweep):
    """ "Specifies whether to exclude session groups whose column value is missing from the
    response."
    """
    interval = {"hparam": "layers", "filterInterval": {"minValue": 3, "maxValue": 9}}
    assert sweep.names(interval) == ["g", "s2", "s3", "s4"]
    assert sweep.names(interval | {"excludeMissingValues": True}) == ["s2"]


def test_included_hparams_are_projected(sweep):
    """The field `include_in_result` of later versions: if any column has it, others are left out
    unless they are named without it.
    """
    columns = [{"hparam": "lr", "includeInResult": True}, {"hparam": "norm"}]
    assert sweep.groups(*columns)["s1"]["hparams"] == {"lr": 0.1, "norm": True}
    excluded = {"hparam": "lr", "includeInResult": False, "order": "ORDER_DESC"}
    groups = sweep.groups(excluded)
    assert list(groups) == ["g", "s4", "s3", "s2", "s1"]
    assert all(group["hparams"] == {} for group in groups.values())


# ---- ListMetricEvalsRequest


def test_metric_evals_name_session_and_metric(sweep):
    """ "string session_name = 1;" "MetricName metric_name = 2;" """
    for session, name in (("s9", LOSS), ("s1", {"tag": "nothing"}), ("s1/validation", {})):
        assert sweep.refusal("metric_evals", sessionName=session, metricName=name)[0] == 404
    assert sweep.refusal("metric_evals", sessionName="s1") == (422, "metric_name: is required")
