"""The share links by which others open a view: one for each experiment that it shows.

A link shows the runs that the view selects now, and the metrics of its columns: each is an
ordinary share link of its experiment, listed and revoked with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlencode

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Invalid
from tbservice.experiments import lifecycle
from tbservice.experiments.tables.saved_views import ViewVersion
from tbservice.patterns import PATTERN_CHARS_MAX, match_any
from tbservice.reading.comparison_spec import ComparedExperiment, make_name, make_spec
from tbservice.runs.columns import KnownColumns, split_names
from tbservice.runs.comparison import ChosenRun, choose_filtered, choose_named
from tbservice.runs.selected_runs import RUNS_ITEMS_MAX
from tbservice.runs.use_cases import RunsQuery, list_runs
from tbservice.runs.views import COMPARE_PAGE
from tbservice.types.grants import ReadGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId

_HPARAMS: Final = "_hparams_/.*"
"""Pattern of the tags that have the hyperparameters of a run."""


@dataclass(frozen=True, slots=True)
class ShownExperiment:
    """An experiment that a view shows, and patterns of its runs (None: all) and of its tags.

    `name` is that of the experiment in the address of a comparison.
    """

    experiment_id: ExperimentId
    name: str
    runs: str | None
    tags: str | None


def list_shown(
    db: Connection, grant: WorkspaceGrant, view: ViewVersion, *, with_hparams: bool
) -> list[ShownExperiment]:
    """Return what the links of a view are to show: what it shows now.

    Runs are those that a filter selects, or all, also later ones, without a filter; tags are the
    metrics of the columns; `with_hparams` adds all hyperparameters of these runs.

    Raises:
        Invalid: The view shows no run or no metric, or more than links can show; or as `list_runs`.
        TooLarge: As `list_runs`.
    """
    fields = parse_qs(view.query)
    if view.page == COMPARE_PAGE:
        names, tags = _list_compared(db, grant, fields)
    else:
        names, tags = _list_selected(db, grant, fields)
    if not names:
        raise Invalid("the view shows no run")
    if len(names) > limits.COMPARISON_ITEMS_MAX:
        raise Invalid(
            f"the view has runs of {len(names)} experiments: a link shows at most "
            f"{limits.COMPARISON_ITEMS_MAX} (comparison_items_max); select them with a filter"
        )
    if tags is not None and with_hparams:
        tags = f"{tags}|{_HPARAMS}" if tags else _HPARAMS
    if tags == "":
        raise Invalid("the view shows no metric: add one to its columns")
    is_filtered = view.page == COMPARE_PAGE or "where" in fields
    shown: list[ShownExperiment] = []
    for experiment_id, runs in names.items():
        pattern = match_any(runs) if is_filtered else None
        if len(pattern or "") > PATTERN_CHARS_MAX or len(tags or "") > PATTERN_CHARS_MAX:
            raise Invalid(
                f"the view selects {len(runs)} runs of an experiment, whose names do not fit into "
                "a link: share the experiment with a pattern of its own"
            )
        read = ReadGrant(grant.workspace_id, experiment_id)
        experiment = lifecycle.get_experiment(db, read)
        name = make_name(experiment.name, experiment_id, {each.name for each in shown})
        shown.append(ShownExperiment(experiment_id, name, pattern, tags))
    return shown


def make_address(server: str, shown: Sequence[ShownExperiment], secrets: Sequence[str]) -> str:
    """Return the address that opens what the links show; `server` is our public URL."""
    token = urlencode([("token", secret) for secret in secrets])
    server = server.rstrip("/")
    if len(shown) == 1:
        return f"{server}/experiment/{shown[0].experiment_id}/?{token}"
    spec = make_spec(ComparedExperiment(each.name, each.experiment_id) for each in shown)
    return f"{server}/compare/{spec}/?{token}"


_Names = dict[ExperimentId, list[str]]


def _list_selected(
    db: Connection, grant: WorkspaceGrant, fields: dict[str, list[str]]
) -> tuple[_Names, str | None]:
    """Return the selected runs by experiment, and the pattern of the metrics of the columns."""
    columns = split_names(fields.get("columns", [""])[0])
    query = RunsQuery(
        fields.get("where", [""])[0],
        (),
        columns,
        limit=RUNS_ITEMS_MAX,
        always=("experiment", "run", *split_names(fields.get("pin", [""])[0])),
        skips_unknown=True,
    )
    found = list_runs(db, grant, query)
    names: _Names = {}
    for experiment_id, run, *_ in found.rows:
        names.setdefault(ExperimentId(str(experiment_id)), []).append(str(run))
    return names, match_any(_list_metrics(found.known, found.columns))


def _list_metrics(known: KnownColumns, columns: Sequence[str]) -> list[str]:
    resolved = [known.resolve(name, "columns") for name in columns]
    return list(dict.fromkeys(each.name for each in resolved if each.kind == "metric"))


def _list_compared(
    db: Connection, grant: WorkspaceGrant, fields: dict[str, list[str]]
) -> tuple[_Names, str | None]:
    """Return the compared runs by experiment, and the pattern of the tags; None for all tags."""
    if "id" in fields:
        pairs = [text.partition(":") for text in fields["id"]]
        chosen = choose_named(
            db, grant, [ChosenRun(ExperimentId(id_), digest) for id_, _, digest in pairs]
        )
    else:
        query = RunsQuery(fields.get("where", [""])[0], fields.get("sort", []), skips_unknown=True)
        chosen = choose_filtered(db, grant, query)
    names = chosen.list_names()
    text = fields.get("tag", [""])[0]
    return names, f"(?is).*{match_any([text])}.*" if text else None
