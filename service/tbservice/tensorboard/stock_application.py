"""The stock TensorBoard WSGI application over our data provider, one per process."""

from __future__ import annotations

import argparse
import functools
import sys
import types
from typing import Any, Final
from wsgiref.types import WSGIApplication

from tensorboard.backend import application
from tensorboard.backend.experiment_id import WSGI_ENVIRON_KEY as EXPERIMENT_KEY
from tensorboard.plugins.audio.audio_plugin import AudioPlugin
from tensorboard.plugins.core.core_plugin import CorePluginLoader
from tensorboard.plugins.distribution.distributions_plugin import DistributionsPlugin
from tensorboard.plugins.graph.graphs_plugin import GraphsPlugin
from tensorboard.plugins.histogram.histograms_plugin import HistogramsPlugin
from tensorboard.plugins.image.images_plugin import ImagesPlugin
from tensorboard.plugins.mesh.mesh_plugin import MeshPlugin
from tensorboard.plugins.metrics.metrics_plugin import MetricsPlugin
from tensorboard.plugins.pr_curve.pr_curves_plugin import PrCurvesPlugin
from tensorboard.plugins.scalar.scalars_plugin import ScalarsPlugin
from tensorboard.plugins.text.text_plugin import TextPlugin

from tbservice.reading.comparison import Source
from tbservice.tensorboard.plugins.dashboards import HParamsDashboard, ProjectorPlugin
from tbservice.tensorboard.plugins.regular_expressions import SafeCustomScalarsPlugin
from tbservice.tensorboard.provider import READER_KEY, ReaderAuth, StoreProvider

# In the order of the tabs, as in `tensorboard/default.py`. Left out: the stock back end of the
# projector (it reads local files, and caches across tenants), Debugger V2 and Profile (they need a
# log directory), the What-If notice, and dynamic plugins that happen to be installed.
_PLUGINS: Final = (
    CorePluginLoader(include_debug_info=False),  # or /data/environment would contain all flags
    MetricsPlugin,
    ScalarsPlugin,
    SafeCustomScalarsPlugin,
    ImagesPlugin,
    AudioPlugin,
    GraphsPlugin,
    DistributionsPlugin,
    HistogramsPlugin,
    TextPlugin,
    PrCurvesPlugin,
    HParamsDashboard,
    MeshPlugin,
    ProjectorPlugin,
)

# The attributes that the application reads; they are empty, since there is no log directory.
_FLAGS: Final = argparse.Namespace(
    logdir="", logdir_spec="", samples_per_plugin={}, window_title="", path_prefix=""
)


@functools.cache
def get_stock_application() -> WSGIApplication:
    """Return TensorBoard's WSGI application, which serves all experiments.

    It is built on the first call. Each request's environment must be bound with `bind_source`.
    """
    _never_import_tensorflow()
    app: WSGIApplication = application.TensorBoardWSGIApp(
        _FLAGS,
        list(_PLUGINS),
        data_provider=StoreProvider(),
        auth_providers={READER_KEY: ReaderAuth()},
    )
    return app


def bind_source(environ: dict[str, Any], source: Source) -> None:
    """Bind a request to the source that it was granted, overriding its address and headers."""
    environ[READER_KEY] = source
    environ[EXPERIMENT_KEY] = source.experiment_id


def _never_import_tensorflow() -> None:
    """Keep TensorBoard from importing TensorFlow where it is installed: 11 s and 475 MB.

    `tensorboard/compat/__init__.py` uses its stub instead if this module exists.
    """
    # https://github.com/tensorflow/tensorboard/blob/2.21.0/tensorboard/compat/__init__.py
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf"))
