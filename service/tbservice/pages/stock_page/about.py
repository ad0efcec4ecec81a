"""Description, notes, tags and properties of an experiment, for readers of its TensorBoard page."""

from __future__ import annotations

from markupsafe import Markup

from tbservice.experiment_values import ExperimentNotes
from tbservice.pages.base.markdown import render_markdown
from tbservice.types.experiments import Experiment


def render_about(experiment: Experiment, notes: ExperimentNotes) -> Markup:
    """Return description, notes (both in Markdown), tags and properties; "" if there are none.

    The origin is not shown: a share link may be anonymous.
    """
    sections = []
    if experiment.description.strip():
        sections.append(_render_text(experiment.description))
    if notes.notes.strip():
        sections.append(Markup("<h2>Notes</h2>") + _render_text(notes.notes))
    if experiment.tags:
        items = Markup().join(
            Markup("<li><bdi>{}</bdi></li>").format(tag) for tag in experiment.tags
        )
        sections.append(Markup("<h2>Tags</h2><ul>{}</ul>").format(items))
    if notes.properties:
        items = Markup().join(
            Markup('<dt><bdi>{}</bdi></dt><dd dir="auto">{}</dd>').format(key, value)
            for key, value in notes.properties.items()
        )
        sections.append(Markup("<h2>Properties</h2><dl>{}</dl>").format(items))
    return Markup("\n").join(sections)


def _render_text(source: str) -> Markup:
    return Markup('<div dir="auto">{}</div>').format(render_markdown(source))
