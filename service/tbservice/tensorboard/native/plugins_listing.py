"""Native `plugins_listing`: the dashboards, and which of them have data.

The stock one is `_serve_plugins_listing` in `tensorboard/backend/application.py`.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response
from tensorboard.plugins.base_plugin import FrontendMetadata, TBPlugin
from tensorboard.plugins.core.core_plugin import CorePlugin
from werkzeug.wrappers import Request

from tbservice.reading.comparison import Source
from tbservice.tensorboard import stock_application
from tbservice.tensorboard.native import json_answers
from tbservice.types.identifiers import Json

_MODULES: Final = "/data/plugin"


def list_plugins(source: Source, request: Request) -> Response:
    """Answer with {plugin: how the page loads and names it}, in the order of the tabs."""
    present = frozenset(plugin for plugin, _ in source.list_kinds())
    application: Any = stock_application.get_stock_application()
    plugins = [
        plugin
        for plugin in application._plugins  # noqa: SLF001 - as the stock listing
        if not isinstance(plugin, CorePlugin)
    ]
    return json_answers.json_response(
        request,
        {
            plugin.plugin_name: _describe_plugin(plugin, present, request.script_root)
            for plugin in plugins
        },
    )


def _describe_plugin(plugin: TBPlugin, present: frozenset[str], script_root: str) -> Json:
    about = plugin.frontend_metadata()
    return {
        "disable_reload": about.disable_reload,
        "enabled": bool(frozenset(plugin.data_plugin_names()) & present)
        or bool(plugin.is_active()),
        "remove_dom": about.remove_dom,
        "tab_name": plugin.plugin_name if about.tab_name is None else about.tab_name,
        "loading_mechanism": _loading_mechanism(plugin.plugin_name, about, script_root),
    }


def _loading_mechanism(name: str, about: FrontendMetadata, script_root: str) -> Json:
    if about.is_ng_component:
        return {"type": "NG_COMPONENT"}
    if about.element_name is not None:
        return {"type": "CUSTOM_ELEMENT", "element_name": about.element_name}
    if about.es_module_path is not None:
        return {
            "type": "IFRAME",
            "module_path": f"{script_root}{_MODULES}/{name}{about.es_module_path}",
        }
    return {"type": "NONE"}
