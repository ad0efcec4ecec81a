"""Large blobs uploaded in parts, on a real PostgreSQL and SeaweedFS: resumed, repeated, wrong,
abandoned.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from sqlalchemy import text

from support.batches import ApiClient, images, segment, stream
from support.servers import new_owner, new_workspace, s3_client
from tbservice import limits
from tbservice.errors import Unavailable
from tbservice.ingest import blob_uploads
from tbservice.ingest.blob_uploads import BLOB_UNFINISHED_SECONDS_MAX
from tbservice.ingest.tables import blob_uploads as store_uploads
from tbservice.metrics import REGISTRY
from tbservice.objects.object_store import ObjectStore
from tbwire import wire_pb2

PIECE = 5 * limits.MIB
"""The pieces of these tests, in bytes: as short as S3 allows."""

CONTENT = b"\x89PNG\r\n\x1a\n" + os.urandom(64) * (2 * PIECE // 64 + 1_000)
"""Two whole pieces, and one that is shorter."""


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch):
    monkeypatch.setattr(limits, "BLOB_PART_BYTES", PIECE)


class Putting:
    """The upload of one blob to an experiment."""

    def __init__(
        self, api: ApiClient, experiment: str, content: bytes = CONTENT, digest: bytes | None = None
    ) -> None:
        self.api = api
        self.experiment = experiment
        self.content = content
        self.digest = digest or hashlib.sha256(content).digest()
        self.path = f"/experiments/{experiment}/blobs/{self.digest.hex()}"

    def state(self, **parameters):
        """Return whether the blob is stored, and how many bytes were received."""
        answer = self.api.request(
            "GET", self.path, params={"size": len(self.content), **parameters}
        )
        assert answer.status_code == 200, answer.text
        return _state(answer)

    def send(self, offset, content=None, **parameters):
        """Send the part at this offset; return the response."""
        content = self.content[offset : offset + PIECE] if content is None else content
        parameters |= {"offset": offset, "size": len(self.content)}
        return self.api.request("PUT", self.path, params=parameters, content=content)

    def put(self, offset, **parameters):
        """Send the part at this offset, which must be accepted; return the state after it."""
        answer = self.send(offset, **parameters)
        assert answer.status_code == 200, answer.text
        return _state(answer)

    def put_all(self, **parameters):
        """Send all parts in order."""
        return [self.put(offset, **parameters) for offset in range(0, len(self.content), PIECE)]

    def name(self):
        """Send a batch that references the blob; return the response."""
        reference = wire_pb2.BlobReference(sha256=self.digest, size=len(self.content))
        return self.api.send(
            self.experiment, segment(stream(), 0, 9, images("cat", [0], [[reference]]))
        )

    def read_back(self):
        """Send a batch that references the blob, and read the blob as a browser does."""
        assert self.name().status_code == 200
        (blob,) = self.api.get(self.experiment, "blob_sequences/data")["train"]["cat"]["values"][0]
        return self.api.request("GET", f"/blobs/{blob['key']}")


def with_token(api, experiment):
    """The API with a token of this experiment alone."""
    return ApiClient(api.client, api.new_token(experiment, "append", "read"))


def _state(answer):
    content = answer.json()
    assert content["piece_bytes"] == PIECE
    return content["is_stored"], content["received_bytes"]


@pytest.fixture
def putting(api):
    return Putting(api, api.new_experiment())


@pytest.fixture
def bucket(settings, workspace_id):
    """The objects of this test's workspace, and its uploads under way."""
    prefix = f"{workspace_id}/"
    with closing(s3_client(settings)) as plain:

        class Bucket:
            @staticmethod
            def objects():
                return [
                    item["Key"]
                    for item in plain.list_objects_v2(Bucket=settings.s3_bucket, Prefix=prefix).get(
                        "Contents", []
                    )
                ]

            @staticmethod
            def put(key, content):
                plain.put_object(Bucket=settings.s3_bucket, Key=key, Body=content)

            @staticmethod
            def delete(key):
                plain.delete_object(Bucket=settings.s3_bucket, Key=key)

            @staticmethod
            def uploads():
                listed = plain.list_multipart_uploads(Bucket=settings.s3_bucket)
                keys = [upload["Key"] for upload in listed.get("Uploads", [])]
                return [key for key in keys if key.startswith(prefix)]

        yield Bucket


def test_blob_is_put_piece_by_piece_and_read_back_whole(putting, bucket):
    assert putting.state() == (False, 0)
    assert putting.put_all() == [(False, PIECE), (False, 2 * PIECE), (True, len(CONTENT))]
    assert putting.state() == (True, len(CONTENT))
    answer = putting.read_back()
    assert (answer.content == CONTENT, answer.headers["Content-Type"]) == (True, "image/png")
    assert (len(bucket.objects()), bucket.uploads()) == (1, [])


def test_blob_upload_interrupted_resumes_at_received_part(putting):
    putting.put(0)
    again = Putting(
        with_token(putting.api, putting.experiment), putting.experiment
    )  # with another token
    assert again.state() == (False, PIECE)
    again.put(PIECE)
    assert putting.state() == (False, 2 * PIECE)
    assert putting.put(2 * PIECE) == (True, len(CONTENT))
    assert again.read_back().content == CONTENT


def test_pieces_may_come_again_and_in_any_order_and_after_end(putting, bucket):
    for offset in (2 * PIECE, PIECE, PIECE, 0):
        state = putting.put(offset)
    assert state == (False, PIECE)
    assert putting.state() == (False, len(CONTENT))
    assert putting.put(2 * PIECE) == (True, len(CONTENT))
    for offset in (0, 2 * PIECE):
        assert putting.put(offset) == (True, len(CONTENT))
    assert putting.api.request("PUT", putting.path, content=CONTENT).status_code == 204
    assert putting.read_back().content == CONTENT
    assert (len(bucket.objects()), bucket.uploads()) == (1, [])


def test_blob_sent_whole_ignores_later_parts(putting, bucket):
    small = Putting(putting.api, putting.experiment, b"a small one")
    assert small.api.request("PUT", small.path, content=small.content).status_code == 204
    assert small.state() == (True, len(small.content))
    assert small.put(0) == (True, len(small.content))
    assert (len(bucket.objects()), bucket.uploads()) == (1, [])


def test_blob_sent_whole_equals_parts_and_aborted_leaves_none(putting, bucket):
    putting.put(0)
    answer = putting.api.request("PUT", putting.path, content=CONTENT)
    assert (answer.status_code, answer.content) == (204, b"")
    assert putting.read_back().content == CONTENT
    wrong = Putting(putting.api, putting.experiment, CONTENT, digest=bytes(32))
    answer = wrong.api.request("PUT", wrong.path, content=CONTENT)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    unannounced = Putting(putting.api, putting.experiment, CONTENT[:-1])
    answer = unannounced.api.request("PUT", unannounced.path, content=iter([unannounced.content]))
    assert answer.status_code == 204
    assert (len(bucket.objects()), bucket.uploads()) == (2, [])


def test_blob_with_wrong_digest_is_refused_and_deleted(putting, bucket):
    wrong = bytes(PIECE)
    assert putting.send(0, wrong).status_code == 200
    putting.put(PIECE)
    answer = putting.send(2 * PIECE)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert putting.state() == (False, 0)
    assert (bucket.objects(), bucket.uploads()) == ([], [])
    assert putting.put_all()[-1] == (True, len(CONTENT))


def test_blob_present_survives_wrong_parts(putting, bucket):
    putting.send(0, bytes(PIECE))
    answer = putting.api.request(
        "PUT", putting.path, content=iter([CONTENT])
    )  # whole, past the pieces
    assert answer.status_code == 204
    assert putting.put_all()[-1] == (True, len(CONTENT))
    assert putting.read_back().content == CONTENT
    assert len(bucket.objects()) == 1


def test_piece_that_is_not_where_pieces_are_is_refused(putting):
    wrong = ((1, PIECE), (PIECE, PIECE - 1), (0, 0), (0, PIECE - 1), (len(CONTENT), 1))
    for offset, length in wrong:
        assert putting.send(offset, bytes(length)).status_code == 422, (offset, length)
    assert putting.state() == (False, 0)


def test_piece_is_bounded_and_so_is_whole(putting):
    answer = putting.send(0, bytes(PIECE + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    size = limits.BLOB_BYTES_MAX + 1
    answer = putting.api.request(
        "PUT", putting.path, params={"offset": 0, "size": size}, content=bytes(PIECE)
    )
    assert answer.status_code == 413
    assert str(limits.BLOB_BYTES_MAX) in answer.json()["detail"]
    for parameters in (
        {"offset": 0},
        {"size": 9},
        {"offset": -1, "size": 9},
        {"offset": 0, "size": 0},
    ):
        assert (
            putting.api.request("PUT", putting.path, params=parameters, content=b"x").status_code
            == 422
        )


def test_blob_state_hides_other_workspaces(putting, client, settings):
    stranger = ApiClient(client, new_owner(settings.database_url.get_secret_value()))
    theirs = Putting(stranger, stranger.new_experiment())
    putting.put(0)
    assert theirs.state() == (False, 0)
    putting.put_all()
    assert theirs.state() == (False, 0)
    assert theirs.put(0) == (False, PIECE)
    assert theirs.put_all()[-1] == (True, len(CONTENT))


def test_several_clients_at_once_make_one_blob(putting, bucket):
    before = parts_put()
    with ThreadPoolExecutor(4) as threads:
        states = threads.map(lambda _: putting.put_all()[-1], range(4))
    assert [*states] == [(True, len(CONTENT))] * 4
    assert putting.read_back().content == CONTENT
    assert (len(bucket.objects()), bucket.uploads()) == (1, [])
    # SeaweedFS deletes the bytes of a part that is put again, even when an object refers to them by
    # then.
    assert parts_put() - before == len(CONTENT) // PIECE + 1


def parts_put():
    return (
        REGISTRY.get_sample_value(
            "tbhub_s3_calls_total", {"operation": "UploadPart", "result": "done"}
        )
        or 0
    )


@pytest.mark.parametrize(
    ("module", "name"), [(store_uploads, "touch"), (blob_uploads, "join_parts")]
)
def test_blob_completed_by_another_client_is_found(putting, monkeypatch, bucket, module, name):
    """Before the last piece is recorded, or before the pieces are joined."""
    putting.put(0)
    putting.put(PIECE)
    function = getattr(module, name)

    def overtaken(*arguments):
        monkeypatch.setattr(module, name, function)
        assert putting.put(2 * PIECE) == (True, len(CONTENT))
        return function(*arguments)

    monkeypatch.setattr(module, name, overtaken)
    assert putting.put(2 * PIECE) == (True, len(CONTENT))
    assert putting.read_back().content == CONTENT
    assert (len(bucket.objects()), bucket.uploads()) == (1, [])


def test_object_swept_during_verification_is_never_recorded(
    putting, client, settings, database, workspace_id, monkeypatch
):
    putting.put(0)
    putting.put(PIECE)
    stranger = ApiClient(client, new_owner(settings.database_url.get_secret_value()))
    read = ObjectStore.read

    def swept(*arguments):
        content = b"".join(read(*arguments))
        with database.transaction(workspace_id) as db:
            db.execute(text("UPDATE blob_uploads SET touched_at = now() - interval '1 year'"))
        Putting(stranger, stranger.new_experiment()).put(0)
        return iter([content])

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "read", swept)
        assert putting.put(2 * PIECE) == (False, 0)
    assert putting.state() == (False, 0)
    assert putting.put_all()[-1] == (True, len(CONTENT))
    assert putting.read_back().content == CONTENT


# The calls just before the pieces are joined, and just after.
@pytest.mark.parametrize(
    ("call", "received_bytes"), [("find_size", len(CONTENT)), ("read", 2 * PIECE)]
)
def test_blob_upload_resumes_after_server_died_unverified(
    putting, monkeypatch, bucket, call, received_bytes
):
    putting.put(0)
    putting.put(PIECE)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, call, _fail)
        assert putting.send(2 * PIECE).status_code == 503
    assert putting.state() == (False, received_bytes)
    assert putting.put(2 * PIECE) == (True, len(CONTENT))
    assert putting.read_back().content == CONTENT
    assert len(bucket.objects()) == 1


def _fail(*_arguments):
    raise Unavailable("the object store went away")


def test_upload_that_object_store_has_lost_begins_again(putting, settings, database, workspace_id):
    putting.put(0)
    with database.transaction(workspace_id) as db:
        upload_id, suffix = db.execute(
            text("SELECT upload_id, object_suffix FROM blob_uploads")
        ).one()
    with closing(s3_client(settings)) as plain:
        key = f"{workspace_id}/{putting.digest.hex()}{suffix}"
        plain.abort_multipart_upload(Bucket=settings.s3_bucket, Key=key, UploadId=upload_id)
    assert putting.state() == (False, 0)
    assert putting.put(PIECE) == (False, 0)
    assert putting.put_all()[-1] == (True, len(CONTENT))


def test_blob_upload_abandoned_is_deleted_at_next_upload(
    putting, client, database_url, database, workspace_id, bucket
):
    putting.put(0)
    other = new_workspace(database_url)
    for reader_id, count in ((workspace_id, 1), (other.workspace_id, 0)):
        with database.transaction(reader_id) as db:
            assert db.execute(text("SELECT count(*) FROM blob_uploads")).scalar() == count
    api = ApiClient(client, other.owner_token)
    recent, old = (BLOB_UNFINISHED_SECONDS_MAX + moved for moved in (-3_600, 3_600))
    for age, left in ((recent, 1), (old, 0)):
        assert len(bucket.uploads()) == 1
        with database.transaction(workspace_id) as db:
            moved = text("UPDATE blob_uploads SET touched_at = now() - make_interval(secs => :age)")
            db.execute(moved, {"age": age})
        next_upload = Putting(api, api.new_experiment(), CONTENT + bytes([age % 256]))
        next_upload.put(0)
        assert next_upload.state() == (False, PIECE)
        assert len(bucket.uploads()) == left
    assert putting.state() == (False, 0)


def test_blob_of_another_experiment_needs_its_bytes(putting, bucket):
    content = b"a small one"
    theirs = Putting(putting.api, putting.experiment, content)
    theirs.api.request("PUT", theirs.path, content=content).raise_for_status()
    experiment = putting.api.new_experiment()
    ours = Putting(with_token(putting.api, experiment), experiment, content)
    assert ours.state() == (False, 0)  # as of a blob that the workspace has not
    refusal = ours.name()
    assert (refusal.status_code, refusal.json()["code"]) == (409, "blob_missing")
    assert ours.api.request("PUT", ours.path, content=content).status_code == 204
    assert ours.state() == (True, len(content))
    assert ours.read_back().content == content
    assert (len(bucket.objects()), bucket.uploads()) == (1, [])
    of_workspace = Putting(putting.api, putting.api.new_experiment(), content)
    assert of_workspace.state() == (True, len(content))  # a workspace's token sends nothing again
    assert of_workspace.read_back().content == content


def test_blob_pieces_of_two_experiments_are_apart(putting):
    experiment = putting.api.new_experiment()
    other = Putting(with_token(putting.api, experiment), experiment)
    putting.put(0)
    assert other.state() == (False, 0)
    assert other.send(0, bytes(PIECE)).status_code == 200
    assert putting.state() == (False, PIECE)
    putting.put(PIECE)
    assert putting.put(2 * PIECE) == (True, len(CONTENT))
    assert putting.read_back().content == CONTENT


@pytest.mark.parametrize("damage", ["lost", "short", "changed"])
def test_blob_object_that_was_damaged_is_repaired(putting, bucket, damage):
    putting.put_all()
    (key,) = bucket.objects()
    if damage == "lost":
        bucket.delete(key)
    else:
        bucket.put(key, bytes(10 if damage == "short" else len(CONTENT)))
    repair = {"repair": True} if damage == "changed" else {}  # only reading the object would tell
    assert putting.state() == (damage == "changed", len(CONTENT) if damage == "changed" else 0)
    assert putting.state(**repair) == (False, 0)
    assert putting.put_all(**repair)[-1] == (True, len(CONTENT))
    assert putting.read_back().content == CONTENT
    assert (len(bucket.objects()), bucket.uploads()) == (1, [])


def test_blob_put_whole_repairs_its_object(putting, bucket):
    small = Putting(putting.api, putting.experiment, b"a small one")
    for damaged in (b"a smaLL one", b"short"):
        small.api.request("PUT", small.path, content=small.content).raise_for_status()
        bucket.put(bucket.objects()[0], damaged)
    small.api.request("PUT", small.path, content=small.content).raise_for_status()
    assert small.read_back().content == small.content
    assert len(bucket.objects()) == 1


def test_inline_blob_that_was_lost_is_put_again(putting, bucket):
    contents = [b"one", b"two", b"three", b""]

    def write():
        experiment = putting.api.new_experiment(
            images("cat", range(4), [[each] for each in contents])
        )
        return putting.api.get(experiment, "blob_sequences/data")["train"]["cat"]["values"]

    write()
    objects = bucket.objects()
    for lost in [[key] for key in objects] + [objects]:
        for key in lost:
            bucket.delete(key)
        keys = [blob["key"] for (blob,) in write()]
        assert [putting.api.request("GET", f"/blobs/{key}").content for key in keys] == contents
    bucket.put(objects[0], b"short")
    keys = [blob["key"] for (blob,) in write()]
    assert [putting.api.request("GET", f"/blobs/{key}").content for key in keys] == contents
