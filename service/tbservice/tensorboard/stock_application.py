"""The stock TensorBoard application, one for the process, over our data provider."""

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

from tbservice.reading.source import Source
from tbservice.tensorboard.plugins.hparams import LeanHParamsPlugin
from tbservice.tensorboard.plugins.projector_dashboard import ProjectorPlugin
from tbservice.tensorboard.plugins.regular_expressions import (
    SafeCustomScalarsPlugin,
    install_in_hparams,
)
from tbservice.tensorboard.provider import READER_KEY, ReaderAuth, StoreProvider

# In the order of the tabs. Not here: the stock back end of the projector (reads files named by the working directory's,
# and caches across tenants), Debugger V2 and Profile (need a logdir), the What-If notice, and whatever plugin happens
# to be installed.
_PLUGINS: Final = (
    CorePluginLoader(include_debug_info=False),  # with it, /data/environment would tell every flag
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
    LeanHParamsPlugin,
    MeshPlugin,
    ProjectorPlugin,
)

# All the attributes the application reads: there is no logdir.
_FLAGS: Final = argparse.Namespace(
    logdir="", logdir_spec="", samples_per_plugin={}, window_title="", path_prefix=""
)


@functools.cache
def get_stock_application() -> WSGIApplication:
    """TensorBoard's WSGI application; requests bring their environment from `bind_source`, so it serves every experiment."""
    _never_import_tensorflow()
    install_in_hparams()
    app: WSGIApplication = application.TensorBoardWSGIApp(
        _FLAGS,
        list(_PLUGINS),
        data_provider=StoreProvider(),
        auth_providers={READER_KEY: ReaderAuth()},
    )
    return app


def bind_source(environ: dict[str, Any], source: Source) -> None:
    """Binds a request to what it may read, whatever its address and headers say."""
    environ[READER_KEY] = source
    environ[EXPERIMENT_KEY] = source.experiment_id


def _never_import_tensorflow() -> None:
    """Where TensorFlow is installed, TensorBoard would import it when first asked for a layout: 11 s and 475 MB."""
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf"))
