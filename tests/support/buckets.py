"""The objects of a live service's workspace, and ways to lose or damage them behind its back."""

from __future__ import annotations

import hashlib
import mmap


class Bucket:
    """A workspace's objects, over a plain S3 client."""

    def __init__(self, plain, name, workspace_id, files) -> None:
        """`files` is the directory of SeaweedFS's own files."""
        self._plain = plain
        self._name = name
        self._prefix = f"{workspace_id}/"
        self._files = files

    def keys(self, content=None):
        """Return the keys of the objects with the SHA-256 of this content; without content, of all."""
        digest = "" if content is None else hashlib.sha256(content).hexdigest()
        listed = self._plain.list_objects_v2(Bucket=self._name, Prefix=self._prefix)["Contents"]
        return [item["Key"] for item in listed if digest in item["Key"]]

    def delete(self, *contents):
        """Delete the objects with these contents, each of which must exist once."""
        for content in contents:
            (key,) = self.keys(content)
            self._plain.delete_object(Bucket=self._name, Key=key)

    def replace(self, content, other):
        """Replace the bytes of the object with this content."""
        (key,) = self.keys(content)
        self._plain.put_object(Bucket=self._name, Key=key, Body=other)

    def spoil(self, content):
        """Change bytes in the file where SeaweedFS stores this content, so that reading it fails.

        Return a function that restores them.
        """
        keys = [
            (path, place)
            for path in self._files.rglob("*.dat")
            if (place := _find(path, content)) >= 0
        ]
        ((path, place),) = keys
        _write(path, place, bytes(byte ^ 0xFF for byte in content[:8]))
        return lambda: _write(path, place, content[:8])


def _find(path, content):
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped.find(content)


def _write(path, place, content):
    with path.open("r+b") as file:
        file.seek(place)
        file.write(content)
