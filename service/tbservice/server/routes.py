"""The modules of all routes, in the order of the OpenAPI document."""

from __future__ import annotations

from tbservice.api.operation import health, metrics
from tbservice.api.v0_classic import files, series
from tbservice.api.v1.experiments import experiments, run_deletion, tables
from tbservice.api.v1.people import (
    audit,
    device_logins,
    invitations,
    me,
    members,
    receipts,
    workspace_tokens,
    workspace_usage,
    workspaces,
)
from tbservice.api.v1.points import (
    blobs,
    catalog,
    changes,
    digests,
    object_checks,
    points,
    tail,
)
from tbservice.api.v1.runs import curves, distribution, run_tables, run_tags, runs, views
from tbservice.api.v1.sharing import share_links, tokens, workspace_links
from tbservice.api.v1.uploads import batches, blob_uploads, run_hparams, uploads
from tbservice.hparams import routes as hparams
from tbservice.pages import theme
from tbservice.pages.base import static_files
from tbservice.pages.documentation import routes as documentation_routes
from tbservice.pages.experiments import (
    card,
    embed,
    experiment_about,
    experiment_list,
    experiment_move,
    experiment_page,
    experiment_runs,
    experiment_selection,
    list_forms,
)
from tbservice.pages.operator import abuse as operator_abuse
from tbservice.pages.operator import health as operator_health
from tbservice.pages.operator import people as operator_people
from tbservice.pages.operator import workspaces as operator_workspaces
from tbservice.pages.people import (
    account,
    invitation,
    jump,
    run_selection,
    runs_comparison,
    saved_views,
    workspace_audit,
    workspace_members,
    workspace_receipts,
    workspace_runs,
    workspace_settings,
    workspace_token_list,
)
from tbservice.pages.sharing import (
    experiment_tokens,
    page_report,
    share_page,
    workspace_link_list,
)
from tbservice.pages.sign_in import device, oidc, sign_in

ROUTER_MODULES = (
    # First, as each route is compared with a path, one after the other.
    batches,
    points,
    changes,
    me,
    workspaces,
    members,
    receipts,
    workspace_usage,
    invitations,
    workspace_tokens,
    workspace_links,
    audit,
    runs,
    run_tables,
    curves,
    distribution,
    views,
    experiments,
    run_deletion,
    run_tags,
    tokens,
    device_logins,
    share_links,
    blob_uploads,
    run_hparams,
    uploads,
    catalog,
    hparams,
    digests,
    blobs,
    object_checks,
    tables,
    tail,
    health,
    metrics,
    series,
    files,
)
"""The modules of the routes, each with a `router`."""

PAGE_MODULES = (
    static_files,
    theme,
    card,
    embed,
    experiment_list,
    experiment_selection,
    experiment_move,
    list_forms,
    experiment_about,
    experiment_page,
    experiment_runs,
    experiment_tokens,
    sign_in,
    oidc,
    device,
    account,
    jump,
    invitation,
    workspace_settings,
    workspace_runs,
    run_selection,
    runs_comparison,
    saved_views,
    workspace_members,
    workspace_token_list,
    workspace_link_list,
    workspace_audit,
    workspace_receipts,
    share_page,
    page_report,
    operator_workspaces,
    operator_people,
    operator_abuse,
    operator_health,
    documentation_routes,
)
"""Modules of our own pages; their routers have `include_in_schema=False`."""
