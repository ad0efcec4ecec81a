"""The HParams dashboard in TensorBoard's list of plugins; `native.hparams` has its routes."""

from __future__ import annotations

from typing import Any

from tensorboard.plugins.base_plugin import FrontendMetadata, TBPlugin
from tensorboard.plugins.hparams import metadata


class HParamsDashboard(TBPlugin):  # type: ignore[misc] # tensorboard has no annotations
    """A plugin without handlers: the native routes replace the stock code."""

    plugin_name = metadata.PLUGIN_NAME

    def get_plugin_apps(self) -> dict[str, Any]:
        """Return no routes: see `native.hparams`."""
        return {}

    def is_active(self) -> bool:
        """Return False: the plugins listing enables the dashboard when there are data for it."""
        return False

    def frontend_metadata(self) -> FrontendMetadata:
        """Return the name of the dashboard's element, as the stock plugin."""
        return FrontendMetadata(element_name="tf-hparams-dashboard")
