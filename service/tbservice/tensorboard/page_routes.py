"""Routes below a page that replace TensorBoard's own, which are slower, unsafe or incomplete."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import tensorboard.version
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from tbservice.api.http.blob_response import blob_response
from tbservice.api.http.compression import choose_coding
from tbservice.errors import MalformedRequest, NotFound
from tbservice.pages.stock_page import page_auth
from tbservice.tensorboard import assets, page
from tbservice.tensorboard.page_policy import FILE_POLICY

_NO_SUCH_FILE: Final = "TensorBoard has no such file in this version: reload the page"


def show_environment(request: Request) -> Response:
    """Answer `data/environment`: name, description and age of what the page shows.

    The stock route (`tensorboard/plugins/core/core_plugin.py`) would also return the log directory
    and, in debug mode, flags and paths of the process. `creation_time` is in seconds since the
    epoch; that of a comparison is its oldest experiment's.
    """
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
    """Answer `data/runs`: names of runs in the order of their first upload.

    The page colours runs by position, so new runs must come last. The stock route sorts by start
    time: there, a run that is uploaded late can change the colours of all others.
    """
    # Replaces `CorePlugin._serve_runs`:
    # https://github.com/tensorflow/tensorboard/blob/2.21.0/tensorboard/plugins/core/core_plugin.py
    return JSONResponse([run.name for run in page_auth.open_source(request).list_runs()])


def read_blob(request: Request) -> Response:
    """Answer with the bytes of a blob (an image, an audio clip …), streamed, with Range support.

    The blob key is in the path (`data/blob/…`) or, as TensorBoard's page sends it, in the query
    parameter `blob_key` or `imageId`. The stock routes load the complete blob into memory.
    """
    source = page_auth.open_source(request)
    parameters = {**request.query_params, **request.path_params}
    key = parameters.get("blob_key") or parameters.get("imageId")
    if not key:
        raise MalformedRequest("the address contains no blob key: give 'blob_key'")
    return blob_response(source.objects, source.find_blob(key), request)


def redirect_to_asset(request: Request) -> Response:
    """Redirect from a front-end file below the page to its one address for all experiments.

    Requires access, as the page does. Browsers cache the redirect for a day, and the file
    indefinitely.
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
    """Answer with a file of TensorBoard's front end; it is public and needs no access check.

    Its address changes with its content, so that it is cached as immutable.
    """
    asset = assets.find_asset(request.path_params["path"])
    if asset is None or request.path_params["edition"] != assets.assets_digest():
        raise NotFound(_NO_SUCH_FILE)
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "Vary": "Accept-Encoding",
        "Content-Security-Policy": FILE_POLICY,
    }
    coding = choose_coding(request.headers.get("accept-encoding", ""))
    if coding is None:
        return Response(asset.decompressed(), headers=headers, media_type=asset.content_type)
    return Response(
        asset.encoded[coding],
        headers={**headers, "Content-Encoding": coding},
        media_type=asset.content_type,
    )
