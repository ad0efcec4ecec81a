"""The projector's entry in the list of dashboards; what it shows is answered by `projector`."""

from __future__ import annotations

from typing import Any, Final

from tensorboard.plugins.base_plugin import FrontendMetadata, TBPlugin

PROJECTOR: Final = "projector"


class ProjectorPlugin(TBPlugin):  # type: ignore[misc] # tensorboard has no annotations
    """The entry alone; all of its addresses are answered by our own routes, by none of the stock code."""

    plugin_name = PROJECTOR

    def get_plugin_apps(self) -> dict[str, Any]:
        """Return none: see `projector.routes`."""
        return {}

    def is_active(self) -> bool:
        """Return false: whether there is something to show follows from the data alone."""
        return False

    def frontend_metadata(self) -> FrontendMetadata:
        """Return that it is a page in a frame, which is not reloaded with the others."""
        return FrontendMetadata(
            es_module_path="/index.js", disable_reload=True, tab_name="Projector"
        )
