"""Calls go one way: uploader -> wire -> routes -> domain -> store."""

from __future__ import annotations

import pytest

from support.source_code import modules

SHARED = {"tbservice.types", "tbservice.errors", "tbservice.limits", "tbwire"}
DOORS = {"tbservice.store.database", "tbservice.store.objects"}  # whoever opens a transaction needs these, and no more
METRICS = {"tbservice.metrics", "tbservice.exposition"}  # not for the domain, whose work may yet be rolled back

MAY_IMPORT = {
    "tbservice.store": SHARED
    | {"tbservice.settings", "tbservice.startup_errors", "tbservice.migrate", "tbservice.metrics"},
    "tbservice.domain": SHARED | {"tbservice.store"},
    "tbservice.admission": SHARED | DOORS | {"tbservice.domain"} | METRICS,
    "tbservice.routes": SHARED
    | DOORS
    | {"tbservice.admission", "tbservice.domain", "tbservice.settings", "tbservice.merger"}
    | METRICS,
    "tbservice.handlers": SHARED | {"tbservice.admission", "tbservice.embedded"},
    "tbservice.tensorboard": SHARED
    | DOORS
    | {"tbservice.admission", "tbservice.domain", "tbservice.routes", "tbservice.handlers"},
    "tbservice.classic": SHARED | DOORS | {"tbservice.domain", "tbservice.routes", "tbservice.handlers"},
    "tbservice.embedded": {"tbservice.settings", "tbservice.startup_errors", "tbservice.limits"},
    "tbservice.demo": set(),
    "tbupload": {"tbwire"},
    "tbwire": set(),
}

ONLY_IN = {
    "fastapi": {"tbservice.routes", "tbservice.classic", "tbservice.tensorboard", "tbservice.app", "tbservice.serving"},
    "starlette": {"tbservice.admission", "tbservice.routes", "tbservice.tensorboard", "tbservice.app"},
    "tensorboard": {"tbservice.tensorboard", "tbservice.classic", "tbservice.demo"},
    "boto3": {"tbservice.store", "tbservice.embedded"},
    "botocore": {"tbservice.store", "tbservice.embedded"},
    "psycopg": {"tbservice.store", "tbservice.embedded"},
    "alembic": {"tbservice.migrate"},
    "cryptography": {"tbservice.embedded"},
    "prometheus_client": {"tbservice.metrics", "tbservice.exposition"},
}

SQL_IS_IN = {"tbservice.store", "tbservice.migrate"}
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
