"""A training job of one run that writes event files and restarts, and what the server then shows."""

from __future__ import annotations

from support.batches import segment, stream
from tbservice.series import compaction
from tbservice.series.tables import runs_tags
from tbservice.types.grants import AppendGrant


class Job:
    """A training job of one run that writes event files and restarts."""

    def __init__(self, api, experiment, database, workspace_id, run="train"):
        self.api, self.experiment, self.run = api, experiment, run
        self.database, self.workspace_id = database, workspace_id
        self.offsets = {}
        self._contents = {}  # of blobs by key, as long as nothing is written or compacted

    def segment(self, file_name, started_at, *series):
        """Return the next segment of a file that began at a wall time."""
        self._contents.clear()
        start = self.offsets.get(file_name, 0)
        self.offsets[file_name] = start + 1
        of = stream(self.run, file_name)
        start_time = started_at if start == 0 else 0.0
        return segment(of, start, start + 1, *series, start_time=start_time)

    def write(self, file_name, started_at, *series):
        """Send one batch of a file that began at a wall time."""
        self.api.write(self.experiment, self.segment(file_name, started_at, *series))

    def compact(self):
        """Compact until nothing is left to compact."""
        self._contents.clear()
        grant = AppendGrant(self.workspace_id, self.experiment)
        with self.database.transaction(self.workspace_id) as db:
            run_id = runs_tags.resolve_runs(db, grant, [self.run])[self.run]
            while compaction.compact_run(db, grant, run_id, compact_idle=True).series:
                pass

    def attempts(self):
        """Return (number, start, superseded points) of each attempt of the run."""
        runs = self.api.get(self.experiment, "attempts")["runs"]
        return [
            (a["attempt"], a["started_at"], a["superseded_points"])
            for run in runs
            if run["run"] == self.run
            for a in run["attempts"]
        ]

    def read(self, kind, tag, **query):
        """Return {step: value} of one series; the bytes of a blob, its digest."""
        columns = self.api.get(self.experiment, f"{kind}/data", **query)[self.run][tag]
        values = columns["values"]
        if kind == "blob_sequences":
            values = [[self.blob(blob["key"]) for blob in step] for step in values]
        if kind == "tensors":
            values = [value["data"][0] for value in values]
        assert columns["total"] == columns["kept"] == len(columns["steps"])
        return dict(zip(columns["steps"], values, strict=True))

    def blob(self, key):
        if key not in self._contents:
            answer = self.api.request("GET", f"/blobs/{key}")
            assert answer.status_code == 200, answer.text
            self._contents[key] = answer.content
        return self._contents[key]
