"""Imports go one way: api, pages, tensorboard -> hparams -> ingest, reading -> scalars, auth -> store
(see docs/architecture.md).
"""

from __future__ import annotations

import pytest

from support.source_code import modules

PLAIN = {
    "tbservice.types",
    "tbservice.experiment_values",
    "tbservice.samples",
    "tbservice.errors",
    "tbservice.limits",
    "tbservice.pagination",
    "tbservice.patterns",
    "tbservice.sample_order",
    "tbservice.throttle",
    "tbwire",
}
"""Values and rules without I/O, for every package."""

SESSIONS = {"tbservice.db.database", "tbservice.objects.object_store"}
"""What opens transactions and reads objects: transports hand it to use cases, and import nothing
else of the store.
"""

METRICS = {"tbservice.metrics", "tbservice.traces"}
STORE = {"tbservice.store"}
USE_CASES = {
    "tbservice.ingest",
    "tbservice.reading",
    "tbservice.hparams",
    "tbservice.experiments",
    "tbservice.auth",
    "tbservice.katib",
}
HTTP = {"tbservice.api.http", "tbservice.api.formats"}

MAY_IMPORT = {
    "tbservice.store": PLAIN | METRICS | {"tbservice.settings"},
    "tbservice.scalars": PLAIN | METRICS | STORE,
    "tbservice.auth": PLAIN | STORE | {"tbservice.settings"},
    "tbservice.auth.oidc": PLAIN | STORE | {"tbservice.auth", "tbservice.settings"},
    "tbservice.experiments": PLAIN | STORE | {"tbservice.auth", "tbservice.ingest"},
    "tbservice.ingest": PLAIN | METRICS | STORE | {"tbservice.scalars"},
    "tbservice.reading": PLAIN
    | STORE
    | {"tbservice.scalars", "tbservice.experiments", "tbservice.auth"},
    "tbservice.hparams": PLAIN | STORE | {"tbservice.reading", "tbservice.experiments"},
    "tbservice.katib": PLAIN
    | STORE
    | {
        "tbservice.auth",
        "tbservice.experiments",
        "tbservice.ingest",
        "tbservice.scalars",
    },
    "tbservice.integrity": PLAIN | STORE,
    "tbservice.backup": PLAIN | STORE | {"tbservice.settings"},
    "tbservice.admission": PLAIN | METRICS | SESSIONS | {"tbservice.auth"},
    "tbservice.handlers": PLAIN | METRICS | {"tbservice.admission", "tbservice.launch"},
    "tbservice.api.http": PLAIN
    | METRICS
    | SESSIONS
    | USE_CASES
    | {"tbservice.admission", "tbservice.settings"},
    "tbservice.api.formats": PLAIN | SESSIONS | {"tbservice.reading", "tbservice.api.http"},
    "tbservice.api.v1": PLAIN
    | METRICS
    | SESSIONS
    | USE_CASES
    | HTTP
    | {"tbservice.admission", "tbservice.settings"},
    "tbservice.api.v0_classic": PLAIN
    | SESSIONS
    | HTTP
    | {"tbservice.reading", "tbservice.handlers", "tbservice.api.v1.points.blobs"},
    "tbservice.api.grpc": PLAIN
    | METRICS
    | SESSIONS
    | {
        "tbservice.admission",
        "tbservice.api.operation.health",
        "tbservice.auth",
        "tbservice.handlers",
        "tbservice.ingest",
        "tbservice.katib",
        "tbservice.settings",
    },
    "tbservice.pages": PLAIN
    | SESSIONS
    | HTTP
    | {
        "tbservice.admission",
        "tbservice.auth",
        "tbservice.experiments",
        "tbservice.reading",
        "tbservice.hparams",
    },
    "tbservice.tensorboard": PLAIN
    | SESSIONS
    | HTTP
    | {
        "tbservice.admission",
        "tbservice.handlers",
        "tbservice.experiments",
        "tbservice.reading",
        "tbservice.hparams",
        "tbservice.pages",
    }
    | {"tbservice.api.v1.points.blobs"},
    "tbservice.katib.suggestions": PLAIN | {"tbservice.katib.katib_pb2"},
    "tbservice.katib.early_stopping": PLAIN
    | {"tbservice.katib.katib_pb2", "tbservice.katib.suggestions"},
    "tbservice.local": PLAIN
    | STORE
    | {"tbservice.auth", "tbservice.server", "tbservice.settings", "tbservice.launch"},
    "tbservice.local.embedded": {
        "tbservice.settings",
        "tbservice.errors",
        "tbservice.limits",
        "tbservice.launch",
    },
    "tbservice.local.demo": set(),
    "tbservice.launch": set(),
    "tbupload.remote_files": {"tbupload.errors"},
    "tbupload.events": {"tbwire", "tbupload.errors", "tbupload.limits", "tbupload.remote_files"},
    "tbupload.logdir": {
        "tbwire",
        "tbupload.errors",
        "tbupload.limits",
        "tbupload.remote_files",
        "tbupload.events",
    },
    "tbupload.http": {"tbwire", "tbupload.errors", "tbupload.limits", "tbupload.events"},
    "tbupload.forward": {"tbupload.errors", "tbupload.limits"},
    "tbupload.console": {"tbupload.errors", "tbupload.limits"},
    "tbupload": {"tbwire"},
    "tbwire": set(),
}

ONLY_IN = {
    "fastapi": {
        "tbservice.api",
        "tbservice.pages",
        "tbservice.tensorboard",
        "tbservice.server.app",
        "tbservice.server.workers",
    },
    "starlette": {
        "tbservice.admission",
        "tbservice.api",
        "tbservice.pages",
        "tbservice.tensorboard",
        "tbservice.server.app",
        "tbservice.server.grpc_service",
    },
    "grpc": {"tbservice.api.grpc"},
    "grpc_health": {"tbservice.api.grpc"},
    "grpc_reflection": {"tbservice.api.grpc"},
    "tensorboard": {
        "tbservice.tensorboard",
        "tbservice.api.v0_classic",
        "tbservice.local.demo",
        "tbservice.hparams.requests",
    },
    "boto3": {"tbservice.store", "tbservice.local.embedded"},
    "botocore": {"tbservice.store", "tbservice.local.embedded"},
    "psycopg": {"tbservice.store", "tbservice.local.embedded"},
    "alembic": {"tbservice.db.migrate"},
    "cryptography": {"tbservice.local.embedded"},
    "optuna": {"tbservice.katib.suggestions.tpe"},
    "cmaes": {"tbservice.katib.suggestions.cma_es"},
    "scipy": {"tbservice.katib.suggestions"},
    "sklearn": {"tbservice.katib.suggestions.surrogates"},
    "threadpoolctl": {"tbservice.katib.suggestions.reply"},
    "jinja2": {"tbservice.pages.base.frame"},
    "opentelemetry": {"tbservice.server.open_telemetry"},
    "prometheus_client": {"tbservice.metrics", "tbservice.api.http.metrics_exposition"},
}

SQL_IS_IN = {"tbservice.store"}
SQL_WITHOUT_STATEMENTS = {
    "sqlalchemy.Connection",
    "sqlalchemy.exc",
}  # an annotation, and an error's name

SERVICE = modules("service/tbservice")
EVERYTHING = [*SERVICE, *modules("uploader/tbupload", "uploader/tbwire")]


def is_in(name, packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_layers_import_next_and_never_one_above(layer):
    allowed = MAY_IMPORT[layer] | {layer}
    inside = [module for module in EVERYTHING if is_in(module.name, {layer})]
    assert inside
    wrong = {
        (module.name, name)
        for module in inside
        for name in module.imports
        if is_in(name, {"tbservice", "tbupload", "tbwire"}) and not is_in(name, allowed)
    }
    # "from tbservice import limits" names a module, "from tbservice.limits import x" something in
    # it: both are seen.
    assert not wrong


def test_layers_of_service_are_all_listed():
    listed = {*MAY_IMPORT, "tbservice.server"}  # the server imports everything
    packages = {module.name.rpartition(".")[0] for module in SERVICE if module.name.count(".") > 1}
    assert not [name for name in packages - {"tbservice.api"} if not is_in(name, listed)]


def test_service_and_uploader_never_import_each_other():
    assert not [module.name for module in SERVICE if "tbupload" in module.packages]
    assert not [
        module.name
        for module in EVERYTHING
        if module not in SERVICE and "tbservice" in module.packages
    ]


@pytest.mark.parametrize("package", ONLY_IN)
def test_drivers_are_imported_by_their_own_layer_only(package):
    users = [module.name for module in SERVICE if package in module.packages]
    assert users
    assert not [name for name in users if not is_in(name, ONLY_IN[package])]


def test_sql_is_written_in_store_alone():
    assert not {
        (module.name, name)
        for module in SERVICE
        for name in module.imports
        if name.startswith("sqlalchemy")
        and not is_in(module.name, SQL_IS_IN)
        and name not in SQL_WITHOUT_STATEMENTS
    }
