"""Tags, notes, properties and origin from the command line; deletion and its undoing."""

from __future__ import annotations

import json


def fields_of(reader, ended):
    return reader.http.get(f"/api/v1/experiments/{ended.experiment_id}").json()


def test_upload_records_tags_notes_and_origin(uploader, reader, written):
    options = ("--tag", "baseline", "--tag", "Vision", "--note", "*so far*")
    ended = uploader.run("--logdir", written, "--one-shot", *options)
    made = fields_of(reader, ended)
    assert (made["tags"], made["notes"]) == (["baseline", "Vision"], "*so far*")
    assert made["origin"]["host"]
    assert made["origin"]["command"]
    assert "records where it comes from (host, " in ended.err
    assert "--no-origin" in ended.err


def test_tags_are_for_new_experiments_only(uploader, written):
    ended = uploader.run("--logdir", written, "--experiment", "x", "--tag", "a")
    assert (ended.code, "--tag is only for a new experiment" in ended.err) == (2, True)


def test_metadata_is_updated(uploader, written):
    ended = uploader.run("--logdir", written, "--one-shot", "--tag", "a", "--tag", "b")
    id_ = ended.experiment_id
    changes = ("--tag", "c", "--remove-tag", "A", "--note", "new", "--property", "lr=0.1")
    shared = ("--visibility", "link", "--publish")
    changed = uploader.run("update-metadata", id_, *changes, "--property", "seed=7", *shared)
    assert changed.code == 0
    assert "tags: b, c" in changed.out
    assert "properties.lr: 0.1" in changed.out
    assert "published: True" in changed.out
    again = uploader.run(
        "update-metadata", id_, "--remove-property", "lr", "--remove-origin", "--json"
    )
    made = json.loads(again.out)
    assert (made["properties"], made["origin"], made["notes"]) == ({"seed": "7"}, {}, "new")
    assert made["tags"] == ["b", "c"]
    assert uploader.run("update-metadata", id_).code == 2
    assert uploader.run("update-metadata", id_, "--property", "nothing").code == 2
    listed = uploader.run("list", "--query", "new", "--json")
    assert json.loads(listed.out)["experiment_id"] == id_


def test_expiry_is_set_shown_and_removed(uploader, reader, written):
    ended = uploader.run("--logdir", written, "--one-shot", "--expires", "3d")
    id_ = ended.experiment_id
    assert fields_of(reader, ended)["expires_at"] is not None
    assert "1 experiment will be deleted within 7 days" in uploader.run("list").err
    assert "\nexpires_at: 2" in uploader.run("show", id_).out
    later = uploader.run("update-metadata", id_, "--expires", "30d")
    assert (later.code, "will be deleted" in uploader.run("list").err) == (0, False)
    uploader.run("update-metadata", id_, "--expires", "never")
    assert fields_of(reader, ended)["expires_at"] is None
    wrong = uploader.run("--logdir", written, "--one-shot", "--new", "--expires", "soon")
    assert (wrong.code, "--expires 'soon'" in wrong.err) == (2, True)


def test_deletion_is_undone(uploader, reader, written):
    ended = uploader.run("--logdir", written, "--one-shot", "--name", "sweep")
    id_ = ended.experiment_id
    deleted = uploader.run("delete", id_, "--yes")
    assert (deleted.out, deleted.code) == (f"deleted {id_}\n", 0)
    assert f"tbupload restore {id_}" in deleted.err
    assert uploader.run("show", id_).code == 1
    listed = uploader.run("restore")
    assert listed.out.startswith(id_)
    assert listed.out.rstrip().endswith("sweep")
    assert uploader.run("restore", id_).code == 0
    assert fields_of(reader, ended)["points"] == 5
    final = uploader.run("delete", id_, "--yes", "--permanently")
    assert (final.code, "restore" in final.err) == (0, False)
    assert uploader.run("restore", id_).code == 1
