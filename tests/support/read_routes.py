"""An experiment with everything in it, and the requests of all routes that read it: of the API, of
the page, of a comparison and of an earlier attempt.

Everything of a hidden run (names, metadata, texts, blobs) has the word RUNSECRET or a number with
6661361 in it, everything of a hidden tag TAGSECRET or 7771371.
"""

from __future__ import annotations

import json

from support.batches import images, metadata, scalars, segment, stream, texts
from support.hparams import end, metric, start, summary
from tbservice.pages.stock_page.download import FILES

SHOWN, RUN, TAG = "shown", "RUNSECRET", "TAGSECRET"
UPLOAD = "0" * 16
NUMBERS = {SHOWN: 1.5, RUN: 6661361.5, TAG: 7771371.5, RUN + TAG: 66613617771371.5}
KINDS = ("scalars", "tensors", "blob_sequences")
SUPERSEDED, NEWEST = 1.6e9, 1.7e9
"""Wall times of what an earlier attempt of each run logged, and of what is shown."""


def series(mark, tag, time=NEWEST):
    """One series of each kind, of which nothing but the kind is known without the mark."""
    number = NUMBERS[mark]
    loss = scalars(f"{tag}/loss", range(20), [number] * 20, [time] * 20)
    loss.summary_metadata = metadata(description=f"the loss of {mark}")
    two = [time, time]
    note = texts(f"{tag}/note", [0, 1], [f"{mark} text".encode(), mark.encode()], two)
    cat = images(f"{tag}/cat", [0, 1], [[f"{mark} png {tag}".encode()], [mark.encode()]], two)
    sound = images(f"{tag}/sound", [0], [[f"{mark} wav {tag}".encode()]], [time])
    sound.summary_metadata = metadata("audio", 3, content=b"\x10\x0b")
    unknown = images(f"{tag}/other", [0], [[f"{mark} other".encode()]], [time])
    unknown.summary_metadata = metadata(f"{mark}_plugin", 3)
    return [loss, note, cat, sound, unknown]


def graph(mark):
    """A graph with one node."""
    node = b"\x0a" + bytes([len(mark)]) + mark.encode()
    content = images("__run_graph__", [0], [[b"\x0a" + bytes([len(node)]) + node]])
    content.summary_metadata = metadata("graphs", 3)
    return content


def session(mark):
    """A session with a hyperparameter and a summary."""
    return [
        start({f"{mark}_rate": f"{mark} value"}, group_name=mark),
        end(),
        summary(metrics=[metric(f"{mark}/loss", display_name=mark)], user=mark),
    ]


def write(api, experiment, run, *content, time=NEWEST):
    """Write an event file of a run, whose name says how long it was before."""
    write.files += 1
    of = stream(run, f"events.out.tfevents.{write.files}")
    api.write(experiment, segment(of, 0, 9, *content, start_time=time - 1000))


write.files = 0


def fill(api, experiment):
    """Write runs and tags inside and outside of the slices, in all combinations."""
    for run, mark in (("shown/a", SHOWN), (f"{RUN}/b", RUN)):
        earlier = series(mark, "shown", SUPERSEDED)
        earlier += series(TAG if mark == SHOWN else RUN + TAG, TAG, SUPERSEDED)
        write(api, experiment, run, *earlier, time=SUPERSEDED)
    write(api, experiment, "shown/a", *series(SHOWN, "shown"), graph(SHOWN), *session(SHOWN))
    write(api, experiment, "shown/a", *series(TAG, TAG))
    write(api, experiment, f"{RUN}/b", *series(RUN, "shown"), graph(RUN), *session(RUN))
    write(api, experiment, f"{RUN}/b", *series(RUN + TAG, TAG))
    upload = f"/experiments/{experiment}/uploads/{UPLOAD}"
    api.request("PUT", upload, json={"started_at": "2026-01-31T12:00:00Z"}).raise_for_status()
    console = {"console": "a line", "console_times": [2.1e9]}  # after all points
    api.request("PATCH", upload, json=console).raise_for_status()


def api_reads(experiment, run, tag):
    """Yield (method, path, options) of the reading routes of the API, asked for a run and a tag."""
    base = f"/api/v1/experiments/{experiment}"
    lists = ("", "/runs", "/runs/deleted", "/names", "/plugins", "/uploads", "/attempts")
    yield from (("GET", f"{base}{path}", {}) for path in lists)
    yield "GET", f"{base}/uploads/{UPLOAD}/console", {}
    selected = {"run": [run], "tag": [tag]}
    for kind in KINDS:
        for fields in ({}, selected):
            yield "POST", f"{base}/{kind}", {"json": fields}
            yield "POST", f"{base}/{kind}", {"json": {**fields, "limit": 1}}
            for sampling in ("uniform", "linear", "bernoulli", "all"):
                form = "parquet" if sampling == "all" else "json"
                sampled = {**fields, "sampling": sampling, "downsample": 50, "format": form}
                yield "POST", f"{base}/{kind}/data", {"json": sampled}
            for form in ("csv", "ndjson", "arrow", "points"):
                yield "POST", f"{base}/{kind}/data", {"json": {**fields, "format": form}}
            yield "POST", f"{base}/{kind}/new", {"json": fields}
        yield "GET", f"{base}/{kind}", {}
        yield "GET", f"{base}/{kind}/data", {"params": {"run": run}}
        for sampling in ("uniform", "all"):
            earlier = {"attempt": 1, "sampling": sampling}
            yield "POST", f"{base}/{kind}/data", {"json": earlier}
            yield "POST", f"{base}/{kind}/data", {"json": {**selected, **earlier}}
        yield "GET", f"{base}/{kind}/new", {"params": {"start": "now"}}
    yield "POST", f"{base}/scalars/data", {"json": {"sampling": "extremes", "downsample": 50}}
    place = {"tag": f"{tag}/loss", "step": 3, "value": 0}
    yield "GET", f"{base}/scalars/distribution", {"params": {"tag": f"{tag}/loss"}}
    yield "GET", f"{base}/scalars/nearest", {"params": place}
    for fields in ({}, {"run": [run]}):
        yield "POST", f"{base}/digests", {"json": fields}
        yield "POST", f"{base}/digests/objects", {"json": {**fields, "deep": True}}
    yield "GET", f"{base}/digests", {}
    yield "POST", f"{base}/digests/records", {"json": {"run": run, "tag": tag}}
    yield "GET", f"{base}/digests/records", {"params": {"run": run, "tag": tag}}
    yield "POST", f"{base}/hparams/experiment", {"json": {"experimentName": experiment}}
    statuses = [f"STATUS_{status}" for status in ("UNKNOWN", "SUCCESS", "FAILURE", "RUNNING")]
    columns = [{"metric": {"tag": f"{mark}/loss"}} for mark in (SHOWN, RUN, TAG)]
    groups = {"allowedStatuses": statuses, "colParams": columns, "startIndex": 0, "sliceSize": 9}
    yield "POST", f"{base}/hparams/session_groups", {"json": groups}
    evals = {"sessionName": run, "metricName": {"tag": tag, "group": ""}}
    yield "POST", f"{base}/hparams/metric_evals", {"json": evals}
    yield from table_reads(base, run)
    classic = f"/api/v0/experiments/{experiment}"
    series = {"run": run, "tag": tag}
    for path in ("data/runs", "data/scalars", "data/images", "data/histograms", "data/graph"):
        yield "GET", f"{classic}/{path}", {}
        yield "GET", f"{classic}/{path}", {"params": series}
    for path in ("data/compressedHistograms", "individualImage", "audio", "individualAudio"):
        yield "GET", f"{classic}/{path}", {"params": {**series, "index": 0, "sample": 0}}
    yield "GET", f"{classic}/data/run_metadata", {"params": series}


def table_reads(base, run):
    """Return the reads by the routes of tables, and of points with metadata."""
    for form in ("csv", "parquet", "arrow"):
        for table in ("experiment", "properties", "uploads", "runs", "series", "sessions"):
            yield "GET", f"{base}/tables/{table}", {"params": {"format": form}}
        for table in ("hparams", "blobs"):
            yield "GET", f"{base}/tables/{table}", {"params": {"format": form}}
        for kind in KINDS:
            yield "GET", f"{base}/{kind}/data", {"params": {"format": form, "metadata": "true"}}
    for table in ("runs", "series", "blobs"):
        yield "POST", f"{base}/tables/{table}", {"json": {"run": [run], "format": "csv"}}


def page_reads(experiment, run, tag, *, compared=True):
    """Return the reads by the page's routes, and by a comparison's."""
    series = {"run": run, "tag": tag}
    page = f"/experiment/{experiment}"
    compared_base = f"/compare/a:{experiment},b:{experiment}"
    bases = [page, compared_base, f"{page}/attempt/1", f"{compared_base}/groups/group=run"]
    for base in bases if compared else bases[:1]:
        inside = f"a/{run}" if "compare" in base else run
        yield "GET", f"{base}/", {}
        for path in ("environment", "runs", "plugins_listing", "experiments"):
            yield "GET", f"{base}/data/{path}", {}
        for plugin in ("scalars", "timeseries", "text", "images", "audio", "histograms"):
            yield "GET", f"{base}/data/plugin/{plugin}/tags", {}
        for plugin in ("distributions", "pr_curves", "mesh", "custom_scalars"):
            yield "GET", f"{base}/data/plugin/{plugin}/tags", {}
        series = {"run": inside, "tag": tag, "sample": 0}
        for path in ("scalars/scalars", "text/text", "images/images", "audio/audio"):
            yield "GET", f"{base}/data/plugin/{path}", {"params": series}
        for path in ("histograms/histograms", "distributions/distributions"):
            yield "GET", f"{base}/data/plugin/{path}", {"params": series}
        form = {"tag": tag, "runs": [inside]}
        yield "POST", f"{base}/data/plugin/scalars/scalars_multirun", {"data": form}
        cards = [
            {"plugin": "scalars", "tag": tag},
            {"plugin": "images", "tag": tag, "run": inside, "sample": 0},
            {"plugin": "histograms", "tag": tag, "run": inside},
        ]
        requests = {"data": {"requests": json.dumps(cards)}}
        yield "POST", f"{base}/data/plugin/timeseries/timeSeries", requests
        for path in ("info", "run_tags"):
            yield "GET", f"{base}/data/plugin/graphs/{path}", {}
        yield "GET", f"{base}/data/plugin/graphs/graph", {"params": {"run": inside}}
        named = {"json": {"experimentName": base.split("/")[2]}}
        yield "POST", f"{base}/data/plugin/hparams/experiment", named
        groups = {"allowedStatuses": ["STATUS_SUCCESS"], "startIndex": 0, "sliceSize": 9}
        yield "POST", f"{base}/data/plugin/hparams/session_groups", {"json": groups}
        evals = {"sessionName": inside, "metricName": {"tag": tag, "group": ""}}
        yield "POST", f"{base}/data/plugin/hparams/metric_evals", {"json": evals}
        for form in ("csv", "json", "latex"):
            yield (
                "GET",
                f"{base}/data/plugin/hparams/download_data",
                {
                    "params": {
                        "format": form,
                        "request": json.dumps(groups),
                        "columnsVisibility": "[]",
                    }
                },
            )
        yield "GET", f"{base}/data/plugin/projector/runs", {}
        for path in ("info", "tensor", "metadata", "bookmarks", "sprite_image"):
            named = {"params": {"run": inside, "name": tag}}
            yield "GET", f"{base}/data/plugin/projector/{path}", named
    yield from (("GET", f"/experiment/{experiment}/download/{name}", {}) for name in FILES)
