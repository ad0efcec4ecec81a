"""One module knows whether the server is a cluster (Citus): `db/cluster/citus.py`.

Others declare `Forms`, which choose by connection (docs/decisions/0043).
"""

from __future__ import annotations

import re

from support.source_code import modules

SERVICE = modules("service/tbservice")
KNOWS = "tbservice.db.cluster.citus"

ASKS = re.compile(r"\b_?is_cluster\b|tbhub_is_cluster|Forms(\[.*\])?\((plain=)?(False|True)")
"""How a module would ask, or have the answer handed to it."""

MAY_ASK_FOR_EXTENSION = {
    KNOWS,
    "tbservice.db.cluster.distribution",
    "tbservice.db.cluster.policies",
    "tbservice.db.blockers",
    "tbservice.backup.tables.backup_snapshot",
}
"""Modules that work before tables are distributed, or refuse a database with the extension."""


def test_one_module_knows_whether_server_is_cluster():
    asking = {module.name for module in SERVICE if ASKS.search(module.text)}
    assert asking == {KNOWS}


def test_extension_is_asked_for_by_migration_and_backup_only():
    asking = {
        module.name
        for module in SERVICE
        if re.search(r"has_extension|extname = 'citus'", module.text)
    }
    assert asking == MAY_ASK_FOR_EXTENSION
