"""Imports go down: transports and wings -> core -> connections and objects; the core imports no wing
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
    "tbservice.waits",
    "tbwire",
}
"""Values and rules without I/O, for every package."""

SESSIONS = {"tbservice.db.database", "tbservice.objects.object_store"}
"""Modules that open transactions and read objects.

Transports hand their objects to use cases, and import nothing else of `db` and `objects`.
"""

METRICS = {"tbservice.metrics", "tbservice.traces"}
DB = {"tbservice.db"}
STORES = {"tbservice.db", "tbservice.objects"}
CORE = [
    "tbservice.db",
    "tbservice.objects",
    "tbservice.quotas",
    "tbservice.auth",
    "tbservice.series",
    "tbservice.experiments.tables",
    "tbservice.ingest",
    "tbservice.experiments",
    "tbservice.reading",
]
"""From the lowest package to the highest. Ingest reads the tables of experiments, whose use cases
may write points through it.
"""

WINGS = {
    "tbservice.hparams",
    "tbservice.runs",
    "tbservice.katib",
    "tbservice.backup",
    "tbservice.integrity",
}
"""A capability each, with its tables, use cases and routes."""

USE_CASES = {
    "tbservice.ingest",
    "tbservice.reading",
    "tbservice.experiments",
    "tbservice.auth",
}
HTTP = {"tbservice.api.http", "tbservice.api.formats"}

MAY_IMPORT = {
    "tbservice.db": PLAIN | METRICS,
    "tbservice.objects": PLAIN | METRICS | DB | {"tbservice.settings"},
    "tbservice.quotas": PLAIN | DB,
    "tbservice.auth": PLAIN | DB | {"tbservice.quotas", "tbservice.settings"},
    "tbservice.series": PLAIN
    | METRICS
    | DB
    | {"tbservice.auth.tables.workspaces", "tbservice.quotas.tables"},
    "tbservice.experiments.tables": PLAIN
    | DB
    | {
        "tbservice.auth.tables",
        "tbservice.quotas.tables",
        "tbservice.series.tables",
        "tbservice.objects.tables",
    },
    "tbservice.experiments": PLAIN
    | STORES
    | {"tbservice.auth", "tbservice.quotas", "tbservice.series", "tbservice.ingest"},
    "tbservice.ingest": PLAIN
    | METRICS
    | STORES
    | {"tbservice.quotas", "tbservice.series", "tbservice.experiments.tables"},
    "tbservice.reading": PLAIN
    | STORES
    | {"tbservice.auth", "tbservice.series", "tbservice.experiments"},
    "tbservice.hparams": PLAIN
    | DB
    | {"tbservice.series.tables", "tbservice.reading", "tbservice.experiments"},
    "tbservice.hparams.routes": PLAIN
    | SESSIONS
    | HTTP
    | {"tbservice.hparams", "tbservice.reading"},
    "tbservice.runs": PLAIN
    | DB
    | {"tbservice.hparams", "tbservice.series", "tbservice.experiments"},
    "tbservice.katib": PLAIN
    | METRICS
    | DB
    | {
        "tbservice.auth",
        "tbservice.series",
        "tbservice.experiments",
        "tbservice.ingest",
    },
    "tbservice.katib.methods": PLAIN
    | {
        "tbservice.api.grpc",
        "tbservice.auth",
        "tbservice.handlers",
        "tbservice.ingest",
        "tbservice.katib",
    },
    "tbservice.integrity": PLAIN
    | METRICS
    | STORES
    | {
        "tbservice.auth.tables",
        "tbservice.ingest.blob_uploads",
        "tbservice.ingest.tables",
        "tbservice.experiments.tables",
        "tbservice.quotas.tables",
        "tbservice.series",
    },
    "tbservice.backup": PLAIN | STORES | {"tbservice.auth.tables", "tbservice.settings"},
    "tbservice.admission": PLAIN | METRICS | SESSIONS | {"tbservice.auth"},
    "tbservice.handlers": PLAIN | METRICS | {"tbservice.admission", "tbservice.launch"},
    "tbservice.api.http": PLAIN
    | METRICS
    | SESSIONS
    | USE_CASES
    | {"tbservice.admission", "tbservice.settings"},
    "tbservice.api.formats": PLAIN | SESSIONS | {"tbservice.reading", "tbservice.api.http"},
    "tbservice.api.operation": PLAIN | METRICS | SESSIONS | HTTP,
    "tbservice.api.v1": PLAIN
    | METRICS
    | SESSIONS
    | USE_CASES
    | HTTP
    | {"tbservice.admission", "tbservice.hparams", "tbservice.runs", "tbservice.settings"},
    "tbservice.api.v0_classic": PLAIN
    | SESSIONS
    | HTTP
    | {"tbservice.reading", "tbservice.handlers"},
    "tbservice.api.grpc": PLAIN
    | METRICS
    | SESSIONS
    | {
        "tbservice.admission",
        "tbservice.api.http.readiness",
        "tbservice.auth",
        "tbservice.ingest",
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
        "tbservice.runs",
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
    },
    "tbservice.katib.suggestions": PLAIN | {"tbservice.katib.katib_pb2"},
    "tbservice.katib.early_stopping": PLAIN
    | {"tbservice.katib.katib_pb2", "tbservice.katib.suggestions"},
    "tbservice.local": PLAIN
    | STORES
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
        "tbservice.hparams.routes",
        "tbservice.pages",
        "tbservice.tensorboard",
        "tbservice.server.app",
        "tbservice.server.workers",
    },
    "starlette": {
        "tbservice.admission",
        "tbservice.api",
        "tbservice.hparams.routes",
        "tbservice.pages",
        "tbservice.tensorboard",
        "tbservice.server.app",
        "tbservice.server.grpc_service",
    },
    "grpc": {"tbservice.api.grpc", "tbservice.katib.methods"},
    "grpc_health": {"tbservice.api.grpc"},
    "grpc_reflection": {"tbservice.api.grpc"},
    "tensorboard": {
        "tbservice.tensorboard",
        "tbservice.api.v0_classic",
        "tbservice.local.demo",
        "tbservice.hparams.requests",
    },
    "boto3": {"tbservice.objects", "tbservice.local.embedded"},
    "botocore": {"tbservice.objects", "tbservice.local.embedded"},
    "psycopg": {
        "tbservice.db",
        "tbservice.auth.tables.secret_use",
        "tbservice.backup.client_programs",
        "tbservice.local.embedded",
    },
    "alembic": {"tbservice.db.migrate"},
    "cryptography": {"tbservice.local.embedded"},
    "optuna": {"tbservice.katib.suggestions.tpe"},
    "cmaes": {"tbservice.katib.suggestions.cma_es"},
    "scipy": {"tbservice.katib.suggestions"},
    "sklearn": {"tbservice.katib.suggestions.surrogates"},
    "threadpoolctl": {"tbservice.katib.suggestions.reply"},
    "jinja2": {"tbservice.api.http.html_templates"},
    "opentelemetry": {"tbservice.server.open_telemetry"},
    "prometheus_client": {"tbservice.metrics", "tbservice.api.http.metrics_exposition"},
}

TRANSPORTS = {
    "tbservice.api",
    "tbservice.pages",
    "tbservice.tensorboard",
    "tbservice.hparams.routes",
    "tbservice.katib.methods",
}

SQL_WITHOUT_STATEMENTS = {
    "sqlalchemy.Connection",
    "sqlalchemy.exc",
}  # an annotation, and an error's name

SERVICE = modules("service/tbservice")
EVERYTHING = [*SERVICE, *modules("uploader/tbupload", "uploader/tbwire")]


def is_in(name, packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def has_tables(name):
    """Return whether this is a module of tables: of `db`, or below a package `tables`."""
    return is_in(name, {"tbservice.db"}) or name.split(".")[2:3] == ["tables"]


def layer_of(name, layers=MAY_IMPORT):
    """Return the most specific layer that a module is in; None for the server's."""
    return max((layer for layer in layers if is_in(name, {layer})), key=len, default=None)


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_layers_import_next_and_never_one_above(layer):
    allowed = MAY_IMPORT[layer] | {layer}
    inside = [module for module in EVERYTHING if layer_of(module.name) == layer]
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
    listed = {*MAY_IMPORT, "tbservice.types", "tbservice.server"}  # the server imports everything
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


def test_core_imports_no_wing():
    wrong = {
        (module.name, name)
        for module in SERVICE
        for name in module.imports
        if is_in(module.name, CORE) and is_in(name, WINGS)
    }
    assert not wrong


def test_core_imports_downwards():
    wrong = {
        (module.name, name)
        for module in SERVICE
        for name in module.imports
        if is_in(module.name, CORE)
        and is_in(name, CORE)
        and CORE.index(layer_of(name, CORE)) > CORE.index(layer_of(module.name, CORE))
    }
    assert not wrong


def test_tables_import_no_use_case():
    """Modules of tables know plain values, connections and other tables."""
    allowed = PLAIN | METRICS | DB | {"tbservice.settings"}
    wrong = {
        (module.name, name)
        for module in SERVICE
        if has_tables(module.name)
        for name in module.imports
        if is_in(name, {"tbservice"}) and not is_in(name, allowed) and not has_tables(name)
    }
    assert not wrong


def test_transports_import_no_tables():
    wrong = {
        (module.name, name)
        for module in SERVICE
        if is_in(module.name, TRANSPORTS)
        for name in module.imports
        if has_tables(name) and not is_in(name, SESSIONS)
    }
    assert not wrong


def test_sql_is_written_in_modules_of_tables():
    assert not {
        (module.name, name)
        for module in SERVICE
        for name in module.imports
        if name.startswith("sqlalchemy")
        and not has_tables(module.name)
        and name not in SQL_WITHOUT_STATEMENTS
    }


def test_core_names_no_table_of_wings():
    """Statements, too: a wing registers its tables (`series/tables/wing_tables.py`)."""
    tables = {
        module.name.rpartition(".")[2]
        for module in SERVICE
        if is_in(module.name, WINGS) and ".tables." in module.name
    }
    assert "katib_observations" in tables
    assert not {
        (module.name, table)
        for module in SERVICE
        if is_in(module.name, CORE)
        for table in tables
        if table in module.text
    }
