"""Dashboards in TensorBoard's list of plugins whose routes are ours.

`native.hparams` has those of HParams, `projector` those of the Embedding Projector.
"""

from __future__ import annotations

from typing import Any, Final

from tensorboard.plugins.base_plugin import FrontendMetadata, TBPlugin
from tensorboard.plugins.hparams import metadata

PROJECTOR: Final = "projector"


class _Dashboard(TBPlugin):  # type: ignore[misc] # tensorboard has no annotations
    """A plugin without handlers: our own routes replace the stock code."""

    def get_plugin_apps(self) -> dict[str, Any]:
        """Return no routes."""
        return {}

    def is_active(self) -> bool:
        """Return False: the plugins listing enables the dashboard when there are data for it."""
        return False


class HParamsDashboard(_Dashboard):
    """The HParams dashboard."""

    plugin_name = metadata.PLUGIN_NAME

    def frontend_metadata(self) -> FrontendMetadata:
        """Return the name of the dashboard's element, as the stock plugin."""
        return FrontendMetadata(element_name="tf-hparams-dashboard")


class ProjectorPlugin(_Dashboard):
    """The Embedding Projector."""

    plugin_name = PROJECTOR

    def frontend_metadata(self) -> FrontendMetadata:
        """Return the metadata of a dashboard in its own frame, without automatic reload."""
        return FrontendMetadata(
            es_module_path="/index.js", disable_reload=True, tab_name="Projector"
        )
