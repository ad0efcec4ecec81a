"""Batches as an uploader would send them, made by hand, and a small client that sends them."""

from __future__ import annotations

import hashlib

import numpy as np

from tbwire import packing, tensors, wire_pb2
from tbwire.tensorboard_pb2 import SummaryMetadata

PROTOBUF = {"Content-Type": "application/x-protobuf"}


def metadata(plugin="scalars", data_class=1, *, description="", content=b""):
    """A serialized SummaryMetadata."""
    return SummaryMetadata(
        plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content),
        summary_description=description,
        data_class=data_class,
    ).SerializeToString()


def stream(run="train", file_name="events.out.tfevents.1", generation=0):
    """A stream whose digests follow from its file's name."""
    return wire_pb2.Stream(
        run=run,
        file_name=file_name,
        first_record_digest=hashlib.sha256(file_name.encode()).digest(),
        generation=generation,
        filters_digest=bytes(32),
    )


def segment(of, start, end, *series, start_checksum=None, end_checksum=None, skipped=None):
    """A segment; its checksums follow from its offsets unless given, so that segments fit one
    another.
    """
    return wire_pb2.Segment(
        stream=of,
        start=start,
        end=end,
        start_checksum=start if start_checksum is None else start_checksum,
        end_checksum=end if end_checksum is None else end_checksum,
        series=series,
        skipped=[
            wire_pb2.Skipped(reason=reason, count=count)
            for reason, count in (skipped or {}).items()
        ],
    )


def scalars(tag, steps, values=None, wall_times=None, *, summary_metadata=None):
    """A scalar series; values follow from the steps unless given."""
    steps = np.asarray(steps, "<i8")
    values = steps.astype("<f8") / 3 if values is None else np.asarray(values, "<f8")
    wall_times = (
        1.7e9 + steps.astype("<f8") if wall_times is None else np.asarray(wall_times, "<f8")
    )
    return wire_pb2.Series(
        tag=tag,
        summary_metadata=metadata() if summary_metadata is None else summary_metadata,
        scalars=wire_pb2.ScalarPoints(
            steps=steps.tobytes(), wall_times=wall_times.tobytes(), values64=values.tobytes()
        ),
    )


def packed_scalars(tag, steps, values=None, wall_times=None, *, block_points=4096):
    """The same, in packed blocks of so many points."""
    steps = np.asarray(steps, "<i8")
    values = steps.astype("<f8") / 3 if values is None else np.asarray(values)
    wall_times = (
        1.7e9 + steps.astype("<f8") if wall_times is None else np.asarray(wall_times, "<f8")
    )
    parts = [slice(start, start + block_points) for start in range(0, len(steps), block_points)]
    blocks = [packing.pack(steps[part], wall_times[part], values[part]) for part in parts]
    return wire_pb2.Series(
        tag=tag, summary_metadata=metadata(), scalars=wire_pb2.ScalarPoints(blocks=blocks)
    )


def texts(tag, steps, strings, wall_times=None):
    """A text series: one string tensor of shape [1] a step."""
    steps = np.asarray(steps, "<i8")
    wall_times = (
        1.7e9 + steps.astype("<f8") if wall_times is None else np.asarray(wall_times, "<f8")
    )
    return wire_pb2.Series(
        tag=tag,
        summary_metadata=metadata("text", 2),
        tensors=wire_pb2.TensorPoints(
            steps=steps.tobytes(),
            wall_times=wall_times.tobytes(),
            tensors=[
                wire_pb2.Tensor(dtype=7, shape=[1], data=tensors.pack_strings([s])) for s in strings
            ],
        ),
    )


def images(tag, steps, sequences, wall_times=None):
    """A blob sequence series of inline blobs; a blob that is a BlobReference is sent as one."""
    steps = np.asarray(steps, "<i8")
    wall_times = (
        1.7e9 + steps.astype("<f8") if wall_times is None else np.asarray(wall_times, "<f8")
    )
    return wire_pb2.Series(
        tag=tag,
        summary_metadata=metadata("images", 3),
        blob_sequences=wire_pb2.BlobSequencePoints(
            steps=steps.tobytes(),
            wall_times=wall_times.tobytes(),
            sequences=[
                wire_pb2.BlobSequence(blobs=[_blob(blob) for blob in blobs]) for blobs in sequences
            ],
        ),
    )


def _blob(blob):
    if isinstance(blob, bytes):
        return wire_pb2.Blob(content=blob)
    return wire_pb2.Blob(reference=blob)


def batch(*segments):
    """A serialized WriteBatch."""
    return wire_pb2.WriteBatch(segments=segments).SerializeToString()


class ApiClient:
    """The HTTP API with one token, over any client that speaks like httpx."""

    def __init__(self, client, token):
        self.client = client
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def request(self, method, path, **options):
        """One request below /api/v1."""
        headers = self.headers | options.pop("headers", {})
        return self.client.request(method, f"/api/v1{path}", headers=headers, **options)

    def new_experiment(self, **fields):
        """Makes an experiment and gives its id."""
        answer = self.request("POST", "/experiments", json=fields)
        assert answer.status_code == 201, answer.text
        return answer.json()["experiment_id"]

    def send(self, experiment_id, *segments):
        """Posts a batch and gives the response."""
        return self.request(
            "POST",
            f"/experiments/{experiment_id}/batches",
            content=batch(*segments),
            headers=PROTOBUF,
        )

    def write(self, experiment_id, *segments):
        """Posts a batch that must be taken, and gives the WriteResult."""
        answer = self.send(experiment_id, *segments)
        assert answer.status_code == 200, answer.text
        return wire_pb2.WriteResult.FromString(answer.content)

    def get(self, experiment_id, path, **parameters):
        """Reads below an experiment and gives the JSON."""
        answer = self.request("GET", f"/experiments/{experiment_id}/{path}", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def new_token(self, experiment_id, *scopes, **fields):
        """Makes a token for an experiment and gives its secret."""
        answer = self.request(
            "POST", f"/experiments/{experiment_id}/tokens", json={"scopes": scopes, **fields}
        )
        assert answer.status_code == 201, answer.text
        return answer.json()["token"]
