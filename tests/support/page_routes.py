"""All routes of our own pages, what each is sent, and what it answers to whom:
`integration/test_people_pages.py` checks that none is missing.
"""

from __future__ import annotations

SIGN_IN = 303

# Path, form (None: GET), and what each gets: nobody, a stranger, a viewer, an editor, an owner.
TABLE = [
    ("/", None, (200, 200, 200, 200, 200)),
    ("/docs", None, (200, 200, 200, 200, 200)),
    ("/docs/uploading", None, (200, 200, 200, 200, 200)),
    ("/docs/images/experiments.png", None, (200, 200, 200, 200, 200)),
    ("/sign-in", None, (200, 303, 303, 303, 303)),
    ("/sign-in/link", None, (404, 404, 404, 404, 404)),
    ("/sign-in/link", {"token": "x"}, (404, 404, 404, 404, 404)),
    ("/invitation", None, (404, 404, 404, 404, 404)),
    ("/invitation", {"token": "x"}, (SIGN_IN, 404, 404, 404, 404)),
    ("/invitation/join", {"token": "x"}, (404, 303, 303, 303, 303)),
    ("/me", None, (SIGN_IN, 200, 200, 200, 200)),
    ("/me/name", {"name": "x"}, (SIGN_IN, 303, 303, 303, 303)),
    ("/me/session/end", {"session_id": "x"}, (SIGN_IN, 404, 404, 404, 404)),
    ("/me/session/end-others", {}, (SIGN_IN, 303, 303, 303, 303)),
    ("/me/sign-in-link", {}, (SIGN_IN, 200, 200, 200, 200)),
    ("/me/leave", {"workspace_id": "ID"}, (SIGN_IN, 404, 303, 303, 409)),
    ("/me/token/new", None, (SIGN_IN, 200, 200, 200, 200)),
    (
        "/me/token/new",
        {"workspace_id": "ID", "label": "x", "scope": "append"},
        (SIGN_IN, 404, 403, 200, 200),
    ),
    ("/me/token/revoke", {"token_id": "x"}, (SIGN_IN, 404, 404, 404, 404)),
    ("/workspace/new", None, (SIGN_IN, 200, 200, 200, 200)),
    ("/workspace/new", {"name": "x"}, (SIGN_IN, 303, 303, 303, 303)),
    ("/workspace/ID", None, (SIGN_IN, 404, 200, 200, 200)),
    ("/workspace/ID/runs", None, (SIGN_IN, 404, 200, 200, 200)),
    ("/workspace/ID/usage", None, (SIGN_IN, 404, 200, 200, 200)),
    ("/workspace/ID/settings", None, (SIGN_IN, 404, 200, 200, 200)),
    ("/workspace/ID/tokens", None, (SIGN_IN, 404, 403, 403, 200)),
    ("/workspace/ID/token/new", None, (SIGN_IN, 404, 403, 403, 200)),
    ("/workspace/ID/name", {"name": "x"}, (SIGN_IN, 404, 403, 403, 303)),
    (
        "/workspace/ID/token/new",
        {"label": "x", "scope": "read"},
        (SIGN_IN, 404, 403, 403, 200),
    ),
    ("/workspace/ID/token/revoke", {"token_id": "x"}, (SIGN_IN, 404, 403, 403, 404)),
    ("/workspace/ID/links", None, (SIGN_IN, 404, 403, 403, 200)),
    (
        "/workspace/ID/link/revoke",
        {"experiment_id": "EXPERIMENT", "link_id": "x"},
        (SIGN_IN, 404, 403, 403, 404),
    ),
    (
        "/workspace/ID/member/role",
        {"user_id": "x", "role": "viewer"},
        (SIGN_IN, 404, 403, 403, 404),
    ),
    ("/workspace/ID/member/remove", {"user_id": "x"}, (SIGN_IN, 404, 403, 403, 404)),
    ("/workspace/ID/invitation", {"role": "viewer"}, (SIGN_IN, 404, 403, 403, 200)),
    (
        "/workspace/ID/invitation/revoke",
        {"invitation_id": "x"},
        (SIGN_IN, 404, 403, 403, 404),
    ),
    ("/experiment/EXPERIMENT/links", None, (SIGN_IN, 404, 403, 200, 200)),
    ("/experiment/EXPERIMENT/links", {}, (SIGN_IN, 404, 403, 200, 200)),
    ("/experiment/EXPERIMENT/links/rename", {"link_id": "x"}, (SIGN_IN, 404, 403, 404, 404)),
    ("/experiment/EXPERIMENT/links/revoke", {"link_id": "x"}, (SIGN_IN, 404, 403, 404, 404)),
    ("/experiment/EXPERIMENT/about", None, (SIGN_IN, 404, 200, 200, 200)),
    ("/experiment/EXPERIMENT/edit", None, (SIGN_IN, 404, 403, 200, 200)),
    (
        "/experiment/EXPERIMENT/edit",
        {"name": "x", "visibility": "private"},
        (SIGN_IN, 404, 403, 303, 303),
    ),
    ("/experiment/EXPERIMENT/token/new", None, (SIGN_IN, 404, 403, 200, 200)),
    (
        "/experiment/EXPERIMENT/token/new",
        {"label": "x", "scope": "read"},
        (SIGN_IN, 404, 403, 200, 200),
    ),
    ("/experiment/EXPERIMENT/token/revoke", {"token_id": "x"}, (SIGN_IN, 404, 403, 404, 404)),
    ("/experiment/EXPERIMENT/runs", None, (SIGN_IN, 404, 403, 200, 200)),
    ("/experiment/EXPERIMENT/runs/delete", {"run": "1"}, (SIGN_IN, 404, 403, 303, 303)),
    ("/experiment/EXPERIMENT/delete", {}, (SIGN_IN, 404, 403, 303, 404)),
    ("/experiments/deleted?workspace=ID", None, (SIGN_IN, 404, 200, 200, 200)),
    ("/experiments/compare", {"experiment": "EXPERIMENT"}, (SIGN_IN, 422, 422, 422, 422)),
    # Of several, those that are not there are left out; a stranger's look the same.
    ("/experiments/delete", {"experiment": "EXPERIMENT"}, (SIGN_IN, 303, 403, 303, 303)),
    (
        "/experiments/restore",
        {"experiment": "EXPERIMENT", "workspace": "ID"},
        (SIGN_IN, 404, 403, 303, 303),
    ),
    ("/device", None, (SIGN_IN, 200, 200, 200, 200)),
    ("/device", {"code": "x"}, (SIGN_IN, 404, 404, 404, 404)),
    (
        "/device/approve",
        {"code": "x", "workspace_id": "ID", "scope": "read", "expires_days": "7"},
        (SIGN_IN, 404, 404, 404, 404),
    ),
    ("/device/deny", {"code": "x"}, (SIGN_IN, 404, 404, 404, 404)),
    ("/sign-in/oidc/nothing", {}, (404, 404, 404, 404, 404)),
    ("/sign-in/oidc/nothing/callback", None, (403, 403, 403, 403, 403)),
    ("/sign-out", {}, (SIGN_IN, 303, 303, 303, 303)),
]
