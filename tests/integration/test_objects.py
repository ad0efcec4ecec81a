"""The S3 calls and each of their settings, on a real SeaweedFS."""

import io
import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError
from pydantic import SecretStr

from support.servers import s3_client
from support.tls_proxy import tls_proxy
from tbservice.errors import ObjectMissing, Unavailable
from tbservice.local.embedded.ports import LOOPBACK, choose_ports
from tbservice.objects.object_store import ObjectPart, ObjectStore

CONTENT = bytes(range(256)) * 4_000  # about 1 MB: more than one piece


def open_store(settings, **changes):
    """Return a store over the settings with some of them changed."""
    return closing(ObjectStore(settings.model_copy(update=changes)))


def whole(store, key, content=CONTENT):
    return b"".join(store.read(key, 0, len(content)))


@pytest.fixture
def settings(servers):
    """Settings with a bucket of this test's own; the database is never used."""
    with servers.settings("postgresql://nowhere/none") as settings:
        yield settings


@pytest.fixture
def store(settings):
    with open_store(settings) as store:
        store.ensure_bucket()
        yield store


def test_bucket_missing_is_created_once(settings):
    with open_store(settings) as store, closing(s3_client(settings)) as plain:
        with pytest.raises(ClientError, match="404"):
            plain.head_bucket(Bucket=settings.s3_bucket)
        with pytest.raises(Unavailable):
            store.check()
        store.ensure_bucket()
        store.check()
        store.put("w1/kept", CONTENT)
        store.ensure_bucket()
        assert whole(store, "w1/kept") == CONTENT


def test_bucket_in_another_region_than_first_is_made_there(settings):
    with open_store(settings, s3_region="eu-central-1") as store:
        store.ensure_bucket()
        store.put("w1/x", b"x")
        assert whole(store, "w1/x", b"x") == b"x"


def test_range_is_exactly_its_bytes(store):
    for start, end in (
        (0, 1),
        (0, 256),
        (1, 3),
        (255, 300_001),
        (len(CONTENT) - 1, len(CONTENT)),
        (7, 7),
        (0, 0),
    ):
        store.put("w1/ranges", CONTENT)
        assert b"".join(store.read("w1/ranges", start, end)) == CONTENT[start:end], start


def test_object_may_be_empty_and_rewritten(store):
    for content in (b"", CONTENT):
        for _ in range(2):
            store.put("w1/again", content)
            assert whole(store, "w1/again", content) == content


def test_object_of_file_has_bytes_from_its_position_on(store):
    file = io.BytesIO(CONTENT)
    file.seek(1_000)
    store.put("w1/file", file)
    assert whole(store, "w1/file", CONTENT[1_000:]) == CONTENT[1_000:]


def test_object_lost_or_too_short_is_missing(store):
    store.put("w1/short", b"abc")
    for key, start, end in (("w1/never", 0, 1), ("w1/short", 0, 4), ("w1/short", 3, 4)):
        with pytest.raises(ObjectMissing):
            store.read(key, start, end)


def test_object_sizes_are_listed_from_key_on(store):
    for name in ("a0", "a1", "a2.suffix", "b0"):
        store.put(f"7/{name}", bytes(len(name)))
    store.put("70/a1", b"another workspace's")
    assert store.list_sizes("7/a0") == {"7/a0": 2, "7/a1": 2, "7/a2.suffix": 9, "7/b0": 2}
    assert store.list_sizes("7/b0") == {"7/b0": 2}
    assert store.list_sizes("7/c0") == {}
    assert store.list_sizes("8/a0") == {}


@pytest.mark.parametrize("wrong", ["s3_access_key", "s3_secret_key"])
def test_wrong_credentials_are_unavailable_and_are_never_told(settings, store, wrong):
    store.put("w1/x", b"x")
    with open_store(settings, **{wrong: SecretStr("wrong-credential")}) as stranger:
        for call in (
            stranger.check,
            stranger.ensure_bucket,
            lambda: stranger.put("w1/x", b"y"),
            lambda: stranger.read("w1/x", 0, 1),
        ):
            with pytest.raises(Unavailable) as error:
                call()
            assert "wrong-credential" not in f"{error.value} {error.value.__cause__}"
    assert whole(store, "w1/x", b"x") == b"x"


def test_server_that_is_away_is_unavailable(settings):
    endpoint = f"http://{LOOPBACK}:{choose_ports(['s3'], {})['s3']}"
    with open_store(settings, s3_endpoint=endpoint) as store:
        for call in (store.check, store.ensure_bucket, lambda: store.put("w1/x", b"x")):
            with pytest.raises(Unavailable):
                call()


def test_readiness_asks_silent_server_once(settings):
    with socket.create_server((LOOPBACK, 0)) as silent:
        endpoint = f"http://{LOOPBACK}:{silent.getsockname()[1]}"
        with open_store(settings, s3_endpoint=endpoint) as store:
            with pytest.raises(Unavailable):
                store.check()
            silent.accept()[0].close()
            silent.setblocking(False)
            with pytest.raises(BlockingIOError):
                silent.accept()


def test_buckets_are_addressed_by_path_or_host_name(settings):
    bucket = settings.s3_bucket
    for by_path, host, path in (
        (True, "s3.example.org", f"/{bucket}/w1/x"),
        (False, f"{bucket}.s3.example.org", "/w1/x"),
    ):
        with open_store(
            settings, s3_endpoint="https://s3.example.org", s3_path_style=by_path
        ) as store:
            address = urlsplit(
                store._client.generate_presigned_url(
                    "get_object", {"Bucket": bucket, "Key": "w1/x"}
                )
            )
        assert (address.netloc, address.path) == (host, path)


def test_object_store_ca_file_is_trusted(settings, tmp_path):
    with tls_proxy(urlsplit(settings.s3_endpoint).port, tmp_path) as proxy:
        with open_store(settings, s3_endpoint=proxy.url, s3_ca_file=proxy.ca_file) as store:
            store.ensure_bucket()
            store.put("w1/tls", CONTENT)
            assert whole(store, "w1/tls") == CONTENT
        with (
            open_store(settings, s3_endpoint=proxy.url) as store,
            pytest.raises(Unavailable) as error,
        ):
            store.check()
    assert "CERTIFICATE_VERIFY_FAILED" in str(error.value.__cause__)


def test_object_encryption_is_requested_only_when_set(settings, store):
    store.put("w1/plain", CONTENT)
    with open_store(settings, s3_server_side_encryption="AES256") as encrypting:
        encrypting.put("w1/encrypted", CONTENT)
        upload_id = encrypting.create_multipart("w1/parts")
        assert encrypting.put_part("w1/parts", upload_id, 1, CONTENT)
        encrypting.complete_multipart(
            "w1/parts", upload_id, encrypting.list_parts("w1/parts", upload_id)
        )
    with closing(s3_client(settings)) as plain:
        # Not by the store, which reads ranges: SeaweedFS 4.48 fetches those of objects that it
        # encrypted without TLS, and its inner ports want TLS here.
        bodies = [
            plain.get_object(Bucket=settings.s3_bucket, Key=f"w1/{name}")["Body"]
            for name in ("encrypted", "parts")
        ]
        assert [body.read() for body in bodies] == [CONTENT, CONTENT]
        kept = {
            name: plain.head_object(Bucket=settings.s3_bucket, Key=f"w1/{name}").get(
                "ServerSideEncryption"
            )
            for name in ("plain", "encrypted", "parts")
        }
    assert kept == {"plain": None, "encrypted": "AES256", "parts": "AES256"}


def test_multipart_ended_differs_from_store_away(settings, store):
    upload_id = store.create_multipart("w1/parts")
    assert store.list_parts("w1/parts", upload_id) == []
    store.abort_multipart("w1/parts", upload_id)
    for _ in range(2):
        assert not store.put_part("w1/parts", upload_id, 1, CONTENT)
        assert store.list_parts("w1/parts", upload_id) is None
        store.complete_multipart("w1/parts", upload_id, [ObjectPart(1, len(CONTENT), "tag")])
        store.abort_multipart("w1/parts", upload_id)
        store.delete("w1/parts")
    assert store.find_size("w1/parts") is None
    endpoint = f"http://{LOOPBACK}:{choose_ports(['s3'], {})['s3']}"
    with open_store(settings, s3_endpoint=endpoint) as away:
        for call in (away.create_multipart, away.find_size, away.delete):
            with pytest.raises(Unavailable):
                call("w1/parts")


def test_object_store_without_kms_refuses_and_stores_nothing(settings, store):
    with (
        open_store(
            settings, s3_server_side_encryption="aws:kms", s3_kms_key_id="a-key"
        ) as encrypting,
        pytest.raises(Unavailable),
    ):
        encrypting.put("w1/secret", b"x")
    with pytest.raises(ObjectMissing):
        store.read("w1/secret", 0, 1)
