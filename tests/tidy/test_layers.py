"""Imports go down: transports and wings -> core -> connections and objects; the core imports no wing
(see docs/architecture.md).
"""

from __future__ import annotations

import re

import pytest

from support.source_code import modules

PLAIN = {
    "tbservice.types",
    "tbservice.experiment_values",
    "tbservice.samples",
    "tbservice.errors",
    "tbservice.grouping",
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
    "tbservice.audit",
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
    "tbservice.audit",
    "tbservice.ingest",
    "tbservice.reading",
    "tbservice.experiments",
    "tbservice.auth",
}
HTTP = {"tbservice.api.http", "tbservice.api.formats"}

GROUPS = {
    "PLAIN": PLAIN,
    "SESSIONS": SESSIONS,
    "METRICS": METRICS,
    "DB": DB,
    "STORES": STORES,
    "USE_CASES": USE_CASES,
    "HTTP": HTTP,
}


def read_table(text):
    """Return each row's name with the names behind it; an indented line continues a row."""
    rows = {}
    for line in re.sub(r"\n +", " ", text).split("\n"):
        if line:
            name, _, allowed = line.replace(" .", " tbservice.").partition(":")
            sets = (GROUPS.get(word, {word}) for word in allowed.split())
            rows[re.sub(r"^\.", "tbservice.", name)] = set().union(*sets)
    return rows


MAY_IMPORT = read_table("""
.db: PLAIN METRICS
.objects: PLAIN METRICS DB .settings
.quotas: PLAIN DB
.audit: PLAIN METRICS DB
.auth: PLAIN DB .audit .quotas .settings
.series: PLAIN METRICS DB .auth.tables.workspaces .quotas.tables
.experiments.tables: PLAIN DB .auth.tables .quotas.tables .series.tables .objects.tables
.experiments: PLAIN STORES .audit .auth .quotas .series .ingest
.ingest: PLAIN METRICS STORES .quotas .series .experiments.tables
.reading: PLAIN STORES .auth .series .experiments
.hparams: PLAIN DB .series.tables .reading .experiments
.hparams.routes: PLAIN SESSIONS HTTP .hparams .reading
.runs: PLAIN DB .hparams .reading .series .experiments
.katib: PLAIN METRICS DB .auth .series .experiments .ingest
.katib.methods: PLAIN .api.grpc .auth .handlers .ingest .katib
.integrity: PLAIN METRICS STORES .audit .auth.tables .ingest.blob_uploads .ingest.tables
    .experiments.tables .quotas.tables .series
.backup: PLAIN STORES .auth.tables .settings
.admission: PLAIN METRICS SESSIONS .auth
.handlers: PLAIN METRICS .admission .launch
.api.http: PLAIN METRICS SESSIONS USE_CASES .admission .settings .quotas.traffic
.api.formats: PLAIN SESSIONS .reading .api.http
.api.operation: PLAIN METRICS SESSIONS HTTP
.api.v1: PLAIN METRICS SESSIONS USE_CASES HTTP .admission .hparams .runs .settings
.api.v0_classic: PLAIN SESSIONS HTTP .reading .handlers
.api.grpc: PLAIN METRICS SESSIONS .admission .api.http.readiness .audit .auth .ingest .settings
    .quotas.traffic
.pages: PLAIN SESSIONS METRICS HTTP .admission .audit .auth .experiments .reading .hparams .runs
    .handlers
.tensorboard: PLAIN SESSIONS HTTP .admission .handlers .experiments .reading .hparams .pages
    .runs
.katib.suggestions: PLAIN .katib.katib_pb2
.katib.early_stopping: PLAIN .katib.katib_pb2 .katib.suggestions
.local: PLAIN STORES .auth .server .settings .launch
.local.embedded: .settings .errors .limits .launch
.local.demo:
.launch:
tbupload.remote_files: tbupload.errors
tbupload.events: tbwire tbupload.errors tbupload.limits tbupload.remote_files
tbupload.logdir: tbwire tbupload.errors tbupload.limits tbupload.remote_files tbupload.events
tbupload.http: tbwire tbupload.errors tbupload.limits tbupload.events
tbupload.forward: tbupload.errors tbupload.limits
tbupload.console: tbupload.errors tbupload.limits
tbupload: tbwire
tbwire:
""")
"""Imports allowed of each package besides its own; names that begin with a dot are of `tbservice`."""

ONLY_IN = read_table("""
fastapi: .api .hparams.routes .pages .tensorboard .server.app .server.workers
starlette: .admission .api .hparams.routes .pages .tensorboard .server.app .server.grpc_service
grpc: .api.grpc .katib.methods
grpc_health: .api.grpc
grpc_reflection: .api.grpc
tensorboard: .tensorboard .api.v0_classic .local.demo .hparams.requests
boto3: .objects .local.embedded
botocore: .objects .local.embedded
psycopg: .db .auth.tables.secret_use .backup.client_programs .local.embedded
alembic: .db.migrate
cryptography: .audit.signatures .local.embedded
optuna: .katib.suggestions.tpe
cmaes: .katib.suggestions.cma_es
scipy: .katib.suggestions
sklearn: .katib.suggestions.surrogates
threadpoolctl: .katib.suggestions.reply
jinja2: .api.http.html_templates
opentelemetry: .server.open_telemetry
prometheus_client: .metrics .api.http.metrics_exposition
""")
"""Packages that may import each driver."""

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
