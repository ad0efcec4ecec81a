"""The classic HTTP API over real files, checked against each sentence of its first documentation."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from collections import Counter
from urllib.parse import urlencode

import httpx2
import numpy as np
import pytest
from google.protobuf import text_format
from starlette.testclient import TestClient
from tensorboard.backend.event_processing.event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef

from support import event_files
from support.batches import ApiClient, images, metadata, scalars, segment, stream, texts
from support.complete_logdir import REAL_FILES
from support.uploading import Uploader
from tbservice.api.v0_classic.histograms import BASIS_POINTS
from tbservice.reading.reservoir import equally_spaced, reservoir
from tbservice.server.app import create_app
from tbservice.settings import Settings

LONG = 16_000
"""Points of a series that is longer than its reservoir."""

STEPS = LONG * 3 // 4
"""Of these, those that no later point of the same step replaces."""


MEDIA = 37
"""Steps with an image and a clip each, in the run of many."""


class Classic:
    """The routes of one experiment."""

    def __init__(self, uploader, experiment_id):
        headers = {"Authorization": f"Bearer {uploader.token}"}
        self.http = httpx2.Client(
            base_url=f"{uploader.server}/api/v0/experiments/{experiment_id}/",
            headers=headers,
            timeout=60,
        )

    def ask(self, path, **query):
        return self.http.get(path, params=query)

    def get(self, path, **query):
        answer = self.ask(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    logdir = tmp_path_factory.mktemp("classic") / "logdir"
    logdir.mkdir()
    for name in ("tensorflow1", "tensorflow2", "pytorch"):
        (logdir / name).symlink_to(REAL_FILES / name, target_is_directory=True)
    _write_many(logdir / "many")
    return logdir


def _write_many(directory):
    """Write a long run: two scalars of one rhythm, a restart from an earlier step, images, clips
    and histograms.
    """
    wall_times = event_files.WALL_TIME + np.arange(LONG)
    steps = np.concatenate([np.arange(LONG // 2), np.arange(LONG // 2) + LONG // 4])
    events = [event_files.version_event(wall_times[0])]
    for step, wall_time in zip(steps.tolist(), wall_times.tolist(), strict=True):
        for tag, value in (("A", step), ("B", -step)):
            events.append(event_files.scalar_event(tag, step, float(value), wall_time, "simple"))
    events += [
        event_files.image_event("image", step, [_png(step)], wall_times[0] + step)
        for step in range(MEDIA)
    ]
    event_files.write_records(directory / "events.out.tfevents.1700000000.many", events)


def _png(step):
    return b"\x89PNG\r\n\x1a\n" + step.to_bytes(4, "big")


@pytest.fixture(scope="module")
def classic(live_service, logdir, tmp_path_factory):
    uploader = Uploader(
        live_service.url, live_service.new_owner(), tmp_path_factory.mktemp("uploader")
    )
    ended = uploader.run("--logdir", logdir, "--one-shot")
    assert ended.code == 0, ended.err
    classic = Classic(uploader, ended.experiment_id)
    yield classic
    classic.http.close()


def accumulated(path):
    """Return what TensorBoard's own accumulator reads of a run's files, without limits."""
    accumulator = EventAccumulator(str(path), size_guidance=STORE_EVERYTHING_SIZE_GUIDANCE)
    return accumulator.Reload()


LEGACY = REAL_FILES / "tensorflow1" / "run"


def test_runs_is_dictionary_from_run_name_to_tag_types(classic):
    """ "Returns a dictionary mapping from `run name` (quoted string) to dictionaries mapping from
    all available tagTypes to a list of tags of that type available for the run."
    """
    runs = classic.get("data/runs")
    assert all(
        set(tags)
        == {
            "histograms",
            "compressedHistograms",
            "scalars",
            "images",
            "audio",
            "graph",
            "run_metadata",
        }
        for tags in runs.values()
    )
    stock = accumulated(LEGACY).Tags()
    ours = runs["tensorflow1/run"]
    assert sorted(ours["scalars"]) == sorted(stock["scalars"])
    assert (
        sorted(ours["histograms"])
        == sorted(stock["histograms"])
        == sorted(ours["compressedHistograms"])
    )
    assert sorted(ours["audio"]) == sorted(stock["audio"])
    assert sorted(ours["images"]) == sorted(stock["images"])
    assert ours["graph"] is stock["graph"] is True
    assert runs["many"]["graph"] is False
    assert sorted(ours["run_metadata"]) == sorted(stock["run_metadata"])


def test_scalars_are_wall_time_step_and_value(classic):
    """ "Returns an array of event_accumulator.SimpleValueEvents ([wall_time, step, value]) for the
    given run and tag."
    """
    stock = accumulated(LEGACY)
    for tag in stock.Tags()["scalars"]:
        expected = [[event.wall_time, event.step, event.value] for event in stock.Scalars(tag)]
        assert classic.get("data/scalars", run="tensorflow1/run", tag=tag) == expected


def test_numbers_that_are_not_finite_are_words(classic):
    runs = classic.get("data/runs")
    values = [
        value
        for tag in runs["tensorflow2/edges"]["scalars"]
        for _, _, value in classic.get("data/scalars", run="tensorflow2/edges", tag=tag)
    ]
    assert {"NaN", "Infinity", "-Infinity"} <= set(values)


def test_scalars_as_csv(classic):
    """ "If the format parameter is set to 'csv', the response will instead be in CSV format: Wall
    time,step,value"
    """
    answer = classic.ask("data/scalars", run="many", tag="A", format="csv")
    assert answer.headers["Content-Type"].startswith("text/csv")
    header, *rows = csv.reader(io.StringIO(answer.text))
    assert header == ["Wall time", "step", "value"]
    assert [
        [float(wall_time), int(step), float(value)] for wall_time, step, value in rows
    ] == classic.get("data/scalars", run="many", tag="A")


def test_without_run_and_tag_all_scalars_are_sampled(classic):
    """ "Without any parameters, returns a dictionary mapping from run name to a dictionary mapping
    from tag name to a sampled list of scalars from that run and tag." "The sample_count parameter
    is optional and defaults to 10"
    """
    everything = classic.get("data/scalars")
    runs = classic.get("data/runs")
    assert {run: set(tags) for run, tags in everything.items()} == {
        run: set(tags["scalars"]) for run, tags in runs.items() if tags["scalars"]
    }
    assert len(everything["many"]["A"]) == 10
    assert everything == classic.get("data/scalars", sample_count=10)


def test_samples_are_distributed_uniformly_over_list(classic):
    """ "The samples are distributed uniformly over the list of values." "The first and the last
    value will always be sampled."
    """
    written = classic.get("data/scalars", run="many", tag="A", sample_count=STEPS)
    assert len(written) == STEPS
    sample = classic.get("data/scalars", sample_count=7)["many"]["A"]
    assert sample == [written[(len(written) - 1) * index // 6] for index in range(7)]
    assert (sample[0], sample[-1]) == (written[0], written[-1])


def test_histograms_are_as_they_were_logged(classic):
    """ "Returns an array of event_accumulator.HistogramEvents ([wall_time, step, HistogramValue])
    for the given run and tag. A HistogramValue is [min, max, num, sum, sum_squares, bucket_limit,
    bucket]."
    """
    stock = accumulated(LEGACY)
    for tag in stock.Tags()["histograms"]:
        expected = [
            [
                event.wall_time,
                event.step,
                [
                    event.histogram_value.min,
                    event.histogram_value.max,
                    event.histogram_value.num,
                    event.histogram_value.sum,
                    event.histogram_value.sum_squares,
                    list(event.histogram_value.bucket_limit),
                    list(event.histogram_value.bucket),
                ],
            ]
            for event in stock.Histograms(tag)
        ]
        assert classic.get("data/histograms", run="tensorflow1/run", tag=tag) == expected


def test_compressed_histograms_are_basis_point_pairs(classic):
    """ "CompressedHistogramValues is a list of namedtuples with each tuple specifying a basis point
    (bps) as well as an interpolated value of the histogram value at that basis point."
    """
    stock = accumulated(LEGACY)
    for tag in stock.Tags()["histograms"]:
        ours = classic.get("data/compressedHistograms", run="tensorflow1/run", tag=tag)
        theirs = stock.CompressedHistograms(tag)
        assert [event[:2] for event in ours] == [[event.wall_time, event.step] for event in theirs]
        for (_, _, pairs), event in zip(ours, theirs, strict=True):
            assert [point for point, _ in pairs] == list(BASIS_POINTS)
            expected = [value for _, value in event.compressed_histogram_values]
            assert [value for _, value in pairs] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_images_are_described_and_found_by_their_query(classic):
    """ "Returns an array of objects containing information about available images, crucially
    including the query parameter that may be used to retrieve that image."
    """
    stock = accumulated(LEGACY)
    for tag in stock.Tags()["images"]:
        ours = classic.get("data/images", run="tensorflow1/run", tag=tag)
        theirs = stock.Images(tag)
        assert [
            (image["width"], image["height"], image["wall_time"], image["step"]) for image in ours
        ] == [(image.width, image.height, image.wall_time, image.step) for image in theirs]
        for image, event in zip(ours, theirs, strict=True):
            named = urlencode({"tagname": tag, "run": "tensorflow1/run"})
            assert re.fullmatch(rf"index=\d+&{re.escape(named)}", image["query"])
            for path in ("individualImage", "data/individualImage"):
                answer = classic.http.get(f"{path}?{image['query']}")
                assert answer.content == event.encoded_image_string
                assert answer.headers["Content-Type"] == "image/png"


def test_audio_is_described_and_found_by_its_query(classic):
    """ "Returns an array of objects containing information about available audio", "The response is
    the audio itself with an appropriate Content-Type header set."
    """
    stock = accumulated(LEGACY)
    for tag in stock.Tags()["audio"]:
        for path in ("audio", "data/audio"):
            ours = classic.get(path, run="tensorflow1/run", tag=tag)
            theirs = stock.Audio(tag)
            assert [(clip["wall_time"], clip["step"], clip["content_type"]) for clip in ours] == [
                (clip.wall_time, clip.step, clip.content_type) for clip in theirs
            ]
        for clip, event in zip(ours, theirs, strict=True):
            for path in ("individualAudio", "data/individualAudio"):
                answer = classic.http.get(f"{path}?{clip['query']}")
                assert answer.content == event.encoded_audio_string
                assert answer.headers["Content-Type"] == clip["content_type"]


def test_graph_is_gzipped_text(classic):
    """ "Returns the graph definition for the given run in gzipped pbtxt format." """
    with classic.http.stream("GET", "data/graph", params={"run": "tensorflow1/run"}) as answer:
        raw = b"".join(answer.iter_raw())
    graph = text_format.Parse(gzip.decompress(raw).decode(), GraphDef())
    assert graph == accumulated(LEGACY).Graph()


def test_large_attributes_are_left_out_and_listed(classic):
    """ "`limit_attr_size` specifies the maximum allowed size in bytes, before the attribute is
    considered large and filtered out of the graph." "The value of this key (list of strings) should
    be used by the client in order to determine which attributes have been filtered."
    """
    whole = accumulated(LEGACY).Graph()
    text = classic.ask(
        "data/graph", run="tensorflow1/run", limit_attr_size=20, large_attrs_key="_too_large"
    ).text
    graph = text_format.Parse(text, GraphDef())
    filtered = 0
    for node, original in zip(graph.node, whole.node, strict=True):
        large = {key for key, value in original.attr.items() if value.ByteSize() > 20}
        assert {key for key in node.attr if key != "_too_large"} == set(original.attr) - large
        assert {key.decode() for key in node.attr["_too_large"].list.s} == large
        filtered += len(large)
    assert filtered


def test_run_metadata_is_gzipped_text(classic):
    """ "Given a run and tag, returns the metadata of a particular `session.run()` as a gzipped,
    pbtxt serialized `RunMetadata` proto."
    """
    stock = accumulated(LEGACY)
    tags = stock.Tags()["run_metadata"]
    assert tags
    for tag in tags:
        answer = classic.ask("data/run_metadata", run="tensorflow1/run", tag=tag)
        assert answer.headers["Content-Encoding"] == "gzip"
        assert text_format.Parse(answer.text, RunMetadata()) == stock.RunMetadata(tag)


def test_reservoir_bounds_what_is_returned_and_keeps_last(classic):
    """ "The reservoir sampling puts an upper bound on the number of items that will be returned for
    a given run-tag combination [...], with the proviso that the most recent individual item is
    always included in the sample."
    """
    images = classic.get("data/images", run="many", tag="image")
    assert len(images) == 10
    assert images[-1]["step"] == MEDIA - 1
    for image in images:
        assert classic.http.get(f"individualImage?{image['query']}").content == _png(image["step"])


def test_sizes_of_reservoirs_are_configurable(settings, owner_token, monkeypatch):
    """ "The reservoir sizes are configurable on a per-tag type basis." """
    sizes = {"scalars": 5, "histograms": 4, "compressedHistograms": 3, "images": 2, "audio": 1}
    monkeypatch.setenv("TBHUB_RESERVOIR_SIZES", json.dumps(sizes))
    configured = Settings(database_url=settings.database_url).reservoir_sizes
    with TestClient(
        create_app(settings.model_copy(update={"reservoir_sizes": configured}))
    ) as client:
        api = ApiClient(client, owner_token)
        experiment = api.new_experiment()
        histograms, clips = (
            texts("histograms", range(9), [b""] * 9),
            images("audio", range(9), [[b"x"]] * 9),
        )
        histograms.summary_metadata, clips.summary_metadata = (
            metadata("histograms", 2),
            metadata("audio", 3),
        )
        pictures = images("images", range(9), [[b"1", b"1", b"png"]] * 9)
        api.write(
            experiment,
            segment(stream(), 0, 9, scalars("scalars", range(9)), histograms, clips, pictures),
        )
        for name, size in sizes.items():
            query = {
                "run": "train",
                "tag": "histograms" if name == "compressedHistograms" else name,
            }
            path = f"/api/v0/experiments/{experiment}/data/{name}"
            answer = client.get(path, params=query, headers=api.headers)
            assert len(answer.json()) == size, name
    with TestClient(
        create_app(settings)
    ) as client:  # a script that has the answer is told that it is another one
        again = client.get(
            path, params=query, headers=api.headers | {"If-None-Match": answer.headers["ETag"]}
        )
        assert len(again.json()) == 9


def test_different_tags_sample_same_indices():
    """ "the server guarantees that different tags will all sample at the same sequence of indices" """
    choose = reservoir(100)
    assert np.array_equal(choose(1_000), choose(1_000))
    # A tag that is a few points shorter keeps the same indices, except for its own last point.
    assert len(np.setdiff1d(choose(1_000)[:-1], choose(1_003))) <= 3


def test_all_items_are_equally_likely_to_be_in_sample():
    """ "guarantees that all items are equally likely to be in the final sample (ie it is a uniform
    distribution over the values)"
    """
    size, deciles = 200, Counter()
    for count in range(2_000, 2_200):
        kept = reservoir(size)(count)
        assert (len(kept), kept[-1]) == (size, count - 1)
        deciles.update((kept[:-1] * 10 // count).tolist())
    mean = 200 * (size - 1) / 10
    # Samples of neighbouring counts are nearly the same, so that one sample's deviation is that of
    # all.
    assert all(
        abs(deciles[decile] - mean) < 4 * mean / math.sqrt(size / 10) for decile in range(10)
    )


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 11])
def test_samples_of_short_series_are_all_of_them(count):
    assert equally_spaced(10)(count).tolist() == (
        list(range(count)) if count <= 10 else [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]
    )
    assert len(reservoir(3)(count)) == min(count, 3)
    assert reservoir(1)(count).tolist() == ([count - 1] if count else [])


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("data/scalars", {"run": "many"}, 400),
        ("data/scalars", {"tag": "A"}, 400),
        ("data/scalars", {"format": "csv"}, 400),
        ("data/scalars", {"run": "many", "tag": "none"}, 404),
        ("data/scalars", {"run": "none", "tag": "A"}, 404),
        ("data/scalars", {"run": "many", "tag": "image"}, 404),
        ("data/histograms", {}, 400),
        ("data/histograms", {"run": "many", "tag": "A"}, 404),
        ("data/compressedHistograms", {"run": "many"}, 400),
        ("data/images", {"run": "many", "tag": "A"}, 404),
        ("individualImage", {"run": "many", "tagname": "image", "index": 10}, 404),
        ("individualImage", {"run": "many", "tagname": "image", "index": "x"}, 400),
        ("individualImage", {"run": "many", "tagname": "image", "index": -1}, 400),
        ("audio", {"run": "many"}, 400),
        ("data/graph", {}, 400),
        ("data/graph", {"run": "many"}, 404),
        ("data/run_metadata", {"run": "tensorflow1/run", "tag": "none"}, 404),
        ("data/nothing", {}, 404),
        ("data/scalars", {"sample_count": "1"}, 400),
        ("data/scalars", {"sample_count": "9" * 30}, 400),
        ("data/graph", {"run": "tensorflow1/run", "limit_attr_size": 1024}, 400),
        (
            "data/graph",
            {"run": "tensorflow1/run", "limit_attr_size": 0, "large_attrs_key": "k"},
            400,
        ),
    ],
)
def test_what_is_missing_or_wrong_is_said(classic, path, query, status):
    answer = classic.ask(path, **query)
    assert (answer.status_code, set(answer.json())) == (status, {"code", "detail"})
