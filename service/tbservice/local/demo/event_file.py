"""An event file of the demo, written by TensorBoard's own record writer."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

STEP_SECONDS: Final = 0.5
"""How long a step of the demo's training pretends to have taken."""


class EventFileWriter:
    """The one event file of the run `directory`; step 0 is at wall time `started`, seconds since the epoch.

    Its name is the same each time, so that writing the demo again replaces it.
    """

    def __init__(self, directory: Path, started: float) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._writer = RecordWriter((directory / "events.out.tfevents.demo").open("wb"))
        self._started = started
        self._write(0, file_version="brain.Event:2")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writer.close()

    def add(self, step: int, *values: summary_pb2.Summary.Value) -> None:
        """Writes an event for each value."""
        for value in values:
            self._write(step, summary=summary_pb2.Summary(value=[value]))

    def add_graph(self, graph_def: bytes) -> None:
        """Writes the run's graph, a serialized GraphDef."""
        self._write(0, graph_def=graph_def)

    def add_run_metadata(self, tag: str, step: int, run_metadata: bytes) -> None:
        """Writes a serialized RunMetadata: what each node of the graph cost at this step."""
        tagged = event_pb2.TaggedRunMetadata(tag=tag, run_metadata=run_metadata)
        self._write(step, tagged_run_metadata=tagged)

    def _write(self, step: int, **what: object) -> None:
        event = event_pb2.Event(wall_time=self._started + step * STEP_SECONDS, step=step, **what)
        self._writer.write(event.SerializeToString())
