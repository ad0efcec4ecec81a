"""Build batches as an uploader sends them, and send them with a small client."""

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
    """Return a stream whose digests follow from its file's name."""
    return wire_pb2.Stream(
        run=run,
        file_name=file_name,
        first_record_digest=hashlib.sha256(file_name.encode()).digest(),
        generation=generation,
        filters_digest=bytes(32),
    )


def segment(of, start, end, *series, start_checksum=None, skipped=None, start_time=0.0):
    """Return a segment; its checksums follow from its offsets unless given, so that segments join."""
    return wire_pb2.Segment(
        stream=of,
        start=start,
        end=end,
        start_checksum=start if start_checksum is None else start_checksum,
        end_checksum=end,
        series=series,
        skipped=[
            wire_pb2.Skipped(reason=reason, count=count)
            for reason, count in (skipped or {}).items()
        ],
        run_start_time=start_time,
    )


def _wall_times(steps, wall_times):
    return 1.7e9 + steps.astype("<f8") if wall_times is None else np.asarray(wall_times, "<f8")


def scalars(tag, steps, values=None, wall_times=None, *, summary_metadata=None):
    """Return a scalar series; values follow from the steps unless given."""
    steps = np.asarray(steps, "<i8")
    values = steps.astype("<f8") / 3 if values is None else np.asarray(values, "<f8")
    wall_times = _wall_times(steps, wall_times)
    return wire_pb2.Series(
        tag=tag,
        summary_metadata=metadata() if summary_metadata is None else summary_metadata,
        scalars=wire_pb2.ScalarPoints(
            steps=steps.tobytes(), wall_times=wall_times.tobytes(), values64=values.tobytes()
        ),
    )


def packed_scalars(tag, steps, values=None, wall_times=None, *, block_points=4096):
    """Return a scalar series in packed blocks of `block_points` points."""
    steps = np.asarray(steps, "<i8")
    values = steps.astype("<f8") / 3 if values is None else np.asarray(values)
    wall_times = _wall_times(steps, wall_times)
    parts = [slice(start, start + block_points) for start in range(0, len(steps), block_points)]
    blocks = [packing.pack(steps[part], wall_times[part], values[part]) for part in parts]
    return wire_pb2.Series(
        tag=tag, summary_metadata=metadata(), scalars=wire_pb2.ScalarPoints(blocks=blocks)
    )


def texts(tag, steps, strings, wall_times=None):
    """Return a text series: one string tensor of shape [1] per step."""
    steps = np.asarray(steps, "<i8")
    wall_times = _wall_times(steps, wall_times)
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
    """Return a blob sequence series of inline blobs; BlobReferences are sent as they are."""
    steps = np.asarray(steps, "<i8")
    wall_times = _wall_times(steps, wall_times)
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
    """Return a serialized WriteBatch."""
    return wire_pb2.WriteBatch(segments=segments).SerializeToString()


class ApiClient:
    """The HTTP API with one token, over any client that speaks like httpx."""

    def __init__(self, client, token):
        self.client = client
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def request(self, method, path, **options):
        """Send a request below /api/v1."""
        headers = self.headers | options.pop("headers", {})
        return self.client.request(method, f"/api/v1{path}", headers=headers, **options)

    def new_experiment(self, *series, **fields):
        """Create an experiment, with these series in the run of `stream`; return its id."""
        answer = self.request("POST", "/experiments", json=fields)
        assert answer.status_code == 201, answer.text
        experiment_id = answer.json()["experiment_id"]
        if series:
            self.write(experiment_id, segment(stream(), 0, 9, *series))
        return experiment_id

    def send(self, experiment_id, *segments):
        """Post a batch; return the response."""
        return self.request(
            "POST",
            f"/experiments/{experiment_id}/batches",
            content=batch(*segments),
            headers=PROTOBUF,
        )

    def write(self, experiment_id, *segments):
        """Post a batch that must be committed; return the WriteResult."""
        answer = self.send(experiment_id, *segments)
        assert answer.status_code == 200, answer.text
        return wire_pb2.WriteResult.FromString(answer.content)

    def get(self, experiment_id, path, **parameters):
        """Read below an experiment; return the JSON."""
        answer = self.request("GET", f"/experiments/{experiment_id}/{path}", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def experiments(self):
        """Return the experiments of the workspace."""
        return self.request("GET", "/experiments").json()["experiments"]

    def new_token(self, experiment_id, *scopes, **fields):
        """Create a token for an experiment; return its secret."""
        answer = self.request(
            "POST", f"/experiments/{experiment_id}/tokens", json={"scopes": scopes, **fields}
        )
        assert answer.status_code == 201, answer.text
        return answer.json()["token"]
