"""Calls go one way: uploader -> wire -> routes -> domain -> store."""

from __future__ import annotations

import pytest

from support.source_code import modules

SHARED = {"tbservice.types", "tbservice.errors", "tbservice.limits", "tbwire"}
DOORS = {
    "tbservice.store.pg.database",
    "tbservice.store.objects",
}  # whoever opens a transaction needs these, and no more
METRICS = {
    "tbservice.metrics",
    "tbservice.api.http.metrics_exposition",
}  # not for the domain, whose work may yet be rolled back

MAY_IMPORT = {
    "tbservice.store": SHARED
    | {"tbservice.settings", "tbservice.errors", "tbservice.store.pg.migrate", "tbservice.metrics"},
    "tbservice.domain": SHARED | {"tbservice.store"},
    "tbservice.admission": SHARED | DOORS | {"tbservice.domain"} | METRICS,
    "tbservice.api.v1": SHARED
    | DOORS
    | {"tbservice.admission", "tbservice.domain", "tbservice.settings", "tbservice.scalars.compactor"}
    | METRICS,
    "tbservice.handlers": SHARED | {"tbservice.admission", "tbservice.local.embedded"},
    "tbservice.tensorboard": SHARED
    | DOORS
    | {"tbservice.admission", "tbservice.domain", "tbservice.api.v1", "tbservice.handlers"},
    "tbservice.api.v0_classic": SHARED | DOORS | {"tbservice.domain", "tbservice.api.v1", "tbservice.handlers"},
    "tbservice.local.embedded": {"tbservice.settings", "tbservice.errors", "tbservice.limits"},
    "tbservice.local.demo": set(),
    "tbupload": {"tbwire"},
    "tbwire": set(),
}

ONLY_IN = {
    "fastapi": {
        "tbservice.api.v1",
        "tbservice.api.v0_classic",
        "tbservice.tensorboard",
        "tbservice.server.app",
        "tbservice.server.workers",
    },
    "starlette": {"tbservice.admission", "tbservice.api.v1", "tbservice.tensorboard", "tbservice.server.app"},
    "tensorboard": {"tbservice.tensorboard", "tbservice.api.v0_classic", "tbservice.local.demo"},
    "boto3": {"tbservice.store", "tbservice.local.embedded"},
    "botocore": {"tbservice.store", "tbservice.local.embedded"},
    "psycopg": {"tbservice.store", "tbservice.local.embedded"},
    "alembic": {"tbservice.store.pg.migrate"},
    "cryptography": {"tbservice.local.embedded"},
    "prometheus_client": {"tbservice.metrics", "tbservice.api.http.metrics_exposition"},
}

SQL_IS_IN = {"tbservice.store", "tbservice.store.pg.migrate"}
SQL_WITHOUT_STATEMENTS = {"sqlalchemy.Connection", "sqlalchemy.exc"}  # an annotation, and an error's name

SERVICE = modules("service/tbservice")
EVERYTHING = [*SERVICE, *modules("uploader/tbupload", "uploader/tbwire")]


def is_in(name, packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_a_layer_imports_the_next_and_never_one_above(layer):
    allowed = MAY_IMPORT[layer] | {layer}
    inside = [module for module in EVERYTHING if is_in(module.name, {layer})]
    assert inside
    wrong = {
        (module.name, name)
        for module in inside
        for name in module.imports
        if is_in(name, {"tbservice", "tbupload", "tbwire"}) and not is_in(name, allowed)
    }
    # "from tbservice import limits" names a module, "from tbservice.limits import x" something in it: both are seen.
    assert not wrong


def test_service_and_uploader_never_import_each_other():
    assert not [module.name for module in SERVICE if "tbupload" in module.packages]
    assert not [module.name for module in EVERYTHING if module not in SERVICE and "tbservice" in module.packages]


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_driver_is_known_to_its_own_layer_only(package):
    users = [module.name for module in SERVICE if package in module.packages]
    assert users
    assert not [name for name in users if not is_in(name, ONLY_IN[package])]


def test_sql_is_written_in_the_store_alone():
    assert not {
        (module.name, name)
        for module in SERVICE
        for name in module.imports
        if name.startswith("sqlalchemy") and not is_in(module.name, SQL_IS_IN) and name not in SQL_WITHOUT_STATEMENTS
    }
