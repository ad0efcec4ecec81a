"""All routes of the API with what each needs, answers and is sent: `integration/test_access.py` checks
that none is missing.
"""

from __future__ import annotations

from support.batches import PROTOBUF, batch

# Route, what it needs, what it answers to one who has it, and what is sent along.
SHA256 = "0" * 64
NAMES = {
    **dict.fromkeys(("upload_id", "token_id", "link_id", "invitation_id", "view_id"), "0" * 16),
    "sha256": SHA256,
    "kind": "scalars",
    "run": "train",
}
"""Parts of paths that are the same for every world; most name nothing that there is."""

JSON = {"json": {}}
VIEWER = {"json": {"role": "viewer"}}
TABLE = [
    ("POST", "/experiments", "create", 201, JSON),
    ("GET", "/experiments", "list", 200, {}),
    ("GET", "/experiments/deleted", "list", 200, {}),
    ("POST", "/experiments/{experiment_id}/restore", "manage", 404, {}),
    ("GET", "/experiments/{experiment_id}", "read", 200, {}),
    ("PATCH", "/experiments/{experiment_id}", "admin", 200, JSON),
    ("DELETE", "/experiments/{experiment_id}", "admin", 204, {}),
    ("DELETE", "/experiments/{experiment_id}/runs", "admin", 204, {"params": {"run": "train"}}),
    ("PATCH", "/experiments/{experiment_id}/runs", "admin", 204, {"json": {"runs": ["train"]}}),
    ("GET", "/experiments/{experiment_id}/runs/deleted", "read", 200, {}),
    (
        "DELETE",
        "/experiments/{experiment_id}/runs/deleted",
        "append",
        204,
        {"params": {"run": "train"}},
    ),
    (
        "DELETE",
        "/experiments/{experiment_id}/series",
        "admin",
        204,
        {"params": {"run": "train", "tag": "loss"}},
    ),
    ("POST", "/experiments/{experiment_id}/tokens", "admin", 201, {"json": {"scopes": ["read"]}}),
    ("GET", "/experiments/{experiment_id}/tokens", "admin", 200, {}),
    ("DELETE", "/experiments/{experiment_id}/tokens/{token_id}", "admin", 404, {}),
    ("POST", "/experiments/{experiment_id}/links", "admin", 201, JSON),
    ("GET", "/experiments/{experiment_id}/links", "admin", 200, {}),
    (
        "PATCH",
        "/experiments/{experiment_id}/links/{link_id}",
        "admin",
        404,
        {"json": {"label": "x"}},
    ),
    ("DELETE", "/experiments/{experiment_id}/links/{link_id}", "admin", 404, {}),
    (
        "POST",
        "/experiments/{experiment_id}/batches",
        "append",
        200,
        {"content": batch(), "headers": PROTOBUF},
    ),
    ("PUT", "/experiments/{experiment_id}/blobs/{sha256}", "append", 422, {"content": b"x"}),
    ("GET", "/experiments/{experiment_id}/blobs/{sha256}", "append", 200, {"params": {"size": 1}}),
    ("GET", "/experiments/{experiment_id}/streams", "append", 200, {}),
    ("PUT", "/experiments/{experiment_id}/runs/{run}/hparams", "append", 200, JSON),
    (
        "PUT",
        "/experiments/{experiment_id}/runs/hparams",
        "append",
        200,
        {"params": {"run": "."}, **JSON},
    ),
    ("GET", "/experiments/{experiment_id}/uploads", "read", 200, {}),
    (
        "PUT",
        "/experiments/{experiment_id}/uploads/{upload_id}",
        "append",
        204,
        {"json": {"started_at": "2026-01-31T12:00:00Z"}},
    ),
    ("PATCH", "/experiments/{experiment_id}/uploads/{upload_id}", "append", 204, JSON),
    ("GET", "/experiments/{experiment_id}/uploads/{upload_id}/console", "read", 200, {}),
    ("GET", "/experiments/{experiment_id}/runs", "read", 200, {}),
    ("GET", "/experiments/{experiment_id}/names", "read", 200, {}),
    ("GET", "/experiments/{experiment_id}/attempts", "read", 200, {}),
    ("GET", "/experiments/{experiment_id}/plugins", "read", 200, {}),
    *[
        (method, f"/experiments/{{experiment_id}}/{kind}", "read", 200, options)
        for kind in ("scalars", "tensors", "blob_sequences")
        for method, options in (("GET", {}), ("POST", JSON))
    ],
    *[
        (method, f"/experiments/{{experiment_id}}/{kind}/data", "read", 200, options)
        for kind in ("scalars", "tensors", "blob_sequences")
        for method, options in (("GET", {}), ("POST", JSON))
    ],
    (
        "GET",
        "/experiments/{experiment_id}/scalars/distribution",
        "read",
        404,
        {"params": {"tag": "nothing"}},
    ),
    (
        "GET",
        "/experiments/{experiment_id}/scalars/nearest",
        "read",
        404,
        {"params": {"tag": "nothing", "step": 0, "value": 0}},
    ),
    *[
        (method, f"/experiments/{{experiment_id}}/digests{path}", "read", 200, {option: what})
        for path, what in (
            ("", {}),
            ("/records", {"run": "train", "tag": "loss"}),
            ("/objects", {}),
        )
        for method, option in (("GET", "params"), ("POST", "json"))
    ],
    *[
        (method, f"/experiments/{{experiment_id}}/{{kind}}/{path}", "read", status, {option: what})
        for path, status, what in (
            ("new", 200, {}),
            ("tail", 400, {"since": "rubbish"}),
        )  # a tail would never end
        for method, option in (("GET", "params"), ("POST", "json"))
    ],
    *[
        ("POST", f"/experiments/{{experiment_id}}/hparams/{path}", "read", status, {"json": body})
        for path, status, body in (
            ("experiment", 422, {}),
            ("session_groups", 200, {}),
            ("metric_evals", 200, {"sessionName": "train", "metricName": {"tag": "loss"}}),
        )
    ],
    *[
        (method, f"/experiments/{{experiment_id}}/tables/{table}", "read", 200, options)
        for table in (
            *("experiment", "properties", "uploads", "runs", "series", "sessions", "hparams"),
            "blobs",
        )
        for method, options in (("GET", {}), ("POST", JSON))
        if method == "GET" or table in ("runs", "series", "blobs")
    ],
    ("GET", "/blobs/{blob_key}", "read", 200, {}),
    ("GET", "/me", "any", 200, {}),
    ("GET", "/me/tokens", "person", 200, {}),
    ("POST", "/me/tokens", "person", 201, {"json": {"scopes": ["read"]}}),
    ("DELETE", "/me/tokens/{token_id}", "person", 404, {}),
    ("DELETE", "/me/token", "personal token", 204, {}),
    ("PUT", "/me/stars/{experiment_id}", "person's experiment", 204, {}),
    ("DELETE", "/me/stars/{experiment_id}", "person's experiment", 204, {}),
    ("POST", "/workspaces", "person", 201, {"json": {"name": "new"}}),
    ("GET", "/workspaces/{workspace_id}", "member", 200, {}),
    ("PATCH", "/workspaces/{workspace_id}", "owner", 200, {"json": {"name": "new"}}),
    ("DELETE", "/workspaces/{workspace_id}", "owning person", 422, {"params": {"name": "x"}}),
    ("GET", "/workspaces/{workspace_id}/members", "member", 200, {}),
    ("GET", "/workspaces/{workspace_id}/usage", "member", 200, {}),
    ("PATCH", "/workspaces/{workspace_id}/members/{user_id}", "owner", 200, VIEWER),
    ("DELETE", "/workspaces/{workspace_id}/members/{user_id}", "owner", 204, {}),
    ("GET", "/workspaces/{workspace_id}/invitations", "owner", 200, {}),
    ("POST", "/workspaces/{workspace_id}/invitations", "owning person", 201, VIEWER),
    ("DELETE", "/workspaces/{workspace_id}/invitations/{invitation_id}", "owner", 404, {}),
    ("GET", "/workspaces/{workspace_id}/tokens", "owner", 200, {}),
    (
        "POST",
        "/workspaces/{workspace_id}/tokens",
        "owning person",
        201,
        {"json": {"scopes": ["read"]}},
    ),
    ("DELETE", "/workspaces/{workspace_id}/tokens/{token_id}", "owner", 404, {}),
    ("GET", "/workspaces/{workspace_id}/links", "owner", 200, {}),
    ("GET", "/workspaces/{workspace_id}/audit", "owner", 200, {}),
    ("GET", "/workspaces/{workspace_id}/receipts", "owner", 200, {}),
    ("GET", "/workspaces/{workspace_id}/runs", "list in", 200, {}),
    ("GET", "/workspaces/{workspace_id}/views", "list in", 200, {}),
    ("GET", "/workspaces/{workspace_id}/views/{view_id}", "list in", 404, {}),
    ("POST", "/workspaces/{workspace_id}/views", "manage in", 422, JSON),
    ("PATCH", "/workspaces/{workspace_id}/views/{view_id}", "manage in", 404, JSON),
    ("DELETE", "/workspaces/{workspace_id}/views/{view_id}", "manage in", 404, {}),
    ("POST", "/workspaces/{workspace_id}/views/{view_id}/links", "manage in", 404, JSON),
    ("GET", "/workspaces/{workspace_id}/runs/table", "list in", 200, {}),
    (
        "GET",
        "/workspaces/{workspace_id}/runs/curves",
        "list in",
        200,
        {"params": {"metric": "loss"}},
    ),
    (
        "POST",
        "/workspaces/{workspace_id}/runs/curves",
        "list in",
        200,
        {"json": {"metric": "loss"}},
    ),
    (
        "GET",
        "/workspaces/{workspace_id}/runs/curves/table",
        "list in",
        200,
        {"params": {"metric": "loss"}},
    ),
    (
        "POST",
        "/workspaces/{workspace_id}/runs/curves/table",
        "list in",
        200,
        {"json": {"metric": "loss"}},
    ),
]

GONE_AFTERWARDS = {
    ("DELETE", "/experiments/{experiment_id}"),
    ("DELETE", "/experiments/{experiment_id}/series"),
    ("DELETE", "/workspaces/{workspace_id}/members/{user_id}"),
}
"""Routes that answer 404 to the second who may use them."""
DOOMED = (
    ("DELETE", "/experiments/{experiment_id}/series"),
    ("DELETE", "/experiments/{experiment_id}/runs"),
    ("DELETE", "/experiments/{experiment_id}"),
    ("DELETE", "/me/token"),
)
"""Routes that delete what others are asked about: last of all, and in this order."""
