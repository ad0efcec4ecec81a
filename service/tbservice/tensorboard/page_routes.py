"""The routes below an experiment's page that are ours: the stock ones are slow, or unsafe, or say too little."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import tensorboard.version
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from tbservice.api.v1.blobs import blob_response
from tbservice.errors import MalformedRequest, NotFound
from tbservice.pages import page_auth
from tbservice.tensorboard import assets, page

_NO_SUCH_FILE: Final = "TensorBoard has no such file in this version"


def show_environment(request: Request) -> Response:
    """`data/environment`: what the page says of what it shows. Nothing of the process, its flags or its paths."""
    source = page_auth.open_source(request)
    experiments = source.list_experiments()
    name = page.display_name(source, experiments)
    return JSONResponse(
        {
            "version": tensorboard.version.VERSION,
            "data_location": name,
            "window_title": page.page_title(name),
            "experiment_name": name,
            "experiment_description": experiments[0].description if len(experiments) == 1 else "",
            "creation_time": min(experiment.created_at.timestamp() for experiment in experiments),
        }
    )


def list_runs(request: Request) -> Response:
    """`data/runs`: names in the order of first upload, to which later runs are only ever appended.

    The page colours runs by position; the stock route sorts by start time, so that a late run could change them all.
    """
    return JSONResponse([run.name for run in page_auth.open_source(request).list_runs()])


def read_blob(request: Request) -> Response:
    """An image, a clip or any blob that may be read, streamed, with ranges; the stock routes hold it whole in memory.

    The key is in the path (`data/blob/…`) or, as the stock page asks, in `blob_key` or `imageId`.
    """
    source = page_auth.open_source(request)
    parameters = {**request.query_params, **request.path_params}
    key = parameters.get("blob_key") or parameters.get("imageId")
    if not key:
        raise MalformedRequest("the address names no blob")
    return blob_response(source.objects, source.find_blob(key), request)


def redirect_to_asset(request: Request) -> Response:
    """A file the front end asks for below the experiment's page: where the one copy is that serves all experiments.

    Like the page, only for those who may read. The browser keeps the answer, and the file.
    """
    page_auth.open_source(request)
    path = request.path_params["path"]
    if assets.find_asset(path) is None:
        raise NotFound(_NO_SUCH_FILE)
    site = request.scope["root_path"].rpartition("/")[0]
    address = f"{site}{assets.PREFIX}/{assets.assets_digest()}/{quote(path)}"
    return RedirectResponse(
        address, status_code=308, headers={"Cache-Control": "private, max-age=86400"}
    )


def read_asset(request: Request) -> Response:
    """A file of the front end, for everybody: it is TensorBoard's own. Its address changes with its content."""
    asset = assets.find_asset(request.path_params["path"])
    if asset is None or request.path_params["edition"] != assets.assets_digest():
        raise NotFound(_NO_SUCH_FILE)
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "Vary": "Accept-Encoding",
        "Content-Security-Policy": page.PAGE_POLICY,
    }
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(asset.decompressed(), headers=headers, media_type=asset.content_type)
    return Response(
        asset.compressed,
        headers={**headers, "Content-Encoding": "gzip"},
        media_type=asset.content_type,
    )
