"""The projector's entry in TensorBoard's list of plugins; `projector` has its routes."""

from __future__ import annotations

from typing import Any, Final

from tensorboard.plugins.base_plugin import FrontendMetadata, TBPlugin

PROJECTOR: Final = "projector"


class ProjectorPlugin(TBPlugin):  # type: ignore[misc] # tensorboard has no annotations
    """A plugin without handlers: our own routes (`projector.routes`) replace the stock code."""

    plugin_name = PROJECTOR

    def get_plugin_apps(self) -> dict[str, Any]:
        """Return no routes: see `projector.routes`."""
        return {}

    def is_active(self) -> bool:
        """Return False: the plugins listing enables the dashboard when there are data for it."""
        return False

    def frontend_metadata(self) -> FrontendMetadata:
        """Return the metadata of a dashboard in its own frame, without automatic reload."""
        return FrontendMetadata(
            es_module_path="/index.js", disable_reload=True, tab_name="Projector"
        )
