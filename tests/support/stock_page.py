"""TensorBoard's application with its own plugins throughout, over our data provider: what the page's
routes are compared with.
"""

from __future__ import annotations

import functools

from tensorboard.backend import application
from tensorboard.plugins.hparams.hparams_plugin import HParamsPlugin
from werkzeug.test import EnvironBuilder

from tbservice.errors import ServiceError
from tbservice.reading.comparison import Source
from tbservice.tensorboard import stock_application, wsgi_bridge
from tbservice.tensorboard.plugins.dashboards import HParamsDashboard
from tbservice.tensorboard.provider import READER_KEY, ReaderAuth, StoreProvider


@functools.cache
def unmodified():
    """The application, made once for the process."""
    stock_application.get_stock_application()  # what it prepares once for the process
    plugins = [
        HParamsPlugin if plugin is HParamsDashboard else plugin
        for plugin in stock_application._PLUGINS
    ]
    auth = {READER_KEY: ReaderAuth()}
    return application.TensorBoardWSGIApp(
        stock_application._FLAGS, plugins, data_provider=StoreProvider(), auth_providers=auth
    )


def ask_stock(source: Source, builder: EnvironBuilder) -> tuple[int, bytes]:
    """Status and body of the stock handler's answer; 400 also for its failures."""
    environ = builder.get_environ()
    environ["wsgi.input_terminated"] = True
    environ["SCRIPT_NAME"] = f"/experiment/{source.experiment_id}"
    stock_application.bind_source(environ, source)
    try:
        answer = wsgi_bridge.call_wsgi(unmodified(), environ)
    except ServiceError as error:
        return error.status, b""
    except UnicodeEncodeError:
        return 422, b""
    return answer.status_code, answer.body
