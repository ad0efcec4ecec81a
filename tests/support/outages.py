"""Training jobs and their uploads while servers fail: what each has logged must be stored once."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

import httpx2

from support import event_files
from support.servers import http_client
from support.stored_state import runs_with_duplicates
from support.uploading import Ended, Following, Uploader

STEP_SECONDS = 0.1
TAGS = 5
STEPS_PER_IMAGE = 10
PNG_BYTES = 20_000


class TrainingJob:
    """Logs scalars, and images if asked to, into one event file, until `end`."""

    def __init__(self, logdir: Path, number: int, *, with_images: bool) -> None:
        self.file = logdir / "train" / f"events.out.tfevents.1.host{number}"
        self._number, self._with_images = number, with_images
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.steps = 0
        event_files.write_records(self.file, [event_files.version_event()])

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._has_ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._has_ended.wait(STEP_SECONDS):
            self.log()

    def log(self) -> None:
        """Log the next step."""
        wall_time = time.time()
        events = [
            event_files.scalar_event(f"tag{tag}", self.steps, tag / 3, wall_time)
            for tag in range(TAGS)
        ]
        if self._with_images and self.steps % STEPS_PER_IMAGE == 0:
            image = f"{self._number} {self.steps} ".encode().ljust(PNG_BYTES, b"x")
            events.append(event_files.image_event("image", self.steps, [image], wall_time))
        event_files.write_records(self.file, events, append=True)
        self.steps += 1


class Fleet:
    """Some training jobs, half of them with images, and an uploader that follows each."""

    def __init__(self, url: str, token: str, directory: Path) -> None:
        self.directory = directory
        self.uploader = Uploader(url, token, directory)
        self.jobs: list[TrainingJob] = []
        self.uploads: list[Following] = []
        self._exits = ExitStack()

    @contextmanager
    def training(self, count: int, *options: object):
        """Run so many jobs and their uploads during the block; the uploads end in `finish`."""
        with self._exits:
            for number in range(count):
                logdir = self.directory / f"job{number}"
                job = TrainingJob(logdir, number, with_images=number % 2 == 1)
                job.log()
                self.jobs.append(job)
                following = self.uploader.follow(logdir, "--retry-timeout", 300, *options)
                self.uploads.append(self._exits.enter_context(following))
            self._exits.callback(self.end_jobs)
            self.experiments = [upload.wait_for_experiment() for upload in self.uploads]
            for job in self.jobs:
                job.start()
            yield self

    def end_jobs(self) -> None:
        for job in self.jobs:
            if job._thread.is_alive():
                job.end()

    def finish(self) -> list[Ended]:
        """End the jobs, and let the uploaders send the rest; all must end well."""
        self.end_jobs()
        ended = [upload.stop() for upload in self.uploads]
        assert [each.code for each in ended] == [0] * len(ended), [each.err for each in ended]
        return ended

    def verify(self) -> list[int]:
        """Return what `tbupload verify` says of each upload: the numbers of missing series."""
        return [
            self.missing(job.file.parents[1], experiment)
            for job, experiment in zip(self.jobs, self.experiments, strict=True)
        ]

    def missing(self, logdir: Path, experiment: str) -> int:
        """Return the number of series that `verify` does not prove."""
        told = self.uploader.run_process(
            "verify", "--logdir", logdir, "--experiment", experiment, "--json"
        )
        if told.code == 0:
            return 0
        with suppress(ValueError, IndexError, KeyError):
            return max(1, json.loads(told.out.splitlines()[-1])["missing"])
        return 1

    def duplicates(self, superuser) -> list[set[str]]:
        """Return the runs of each experiment in which points are stored twice."""
        return [runs_with_duplicates(superuser, experiment) for experiment in self.experiments]

    def stored_steps(self, superuser, number: int) -> int:
        """Return how many points of its first tag the database holds for a job."""
        rows = superuser.execute(
            """
            SELECT s.count FROM time_series AS s JOIN tags USING (experiment_id, tag_id)
            WHERE s.experiment_id = %s AND tags.name = 'tag0'
            """,
            [self.experiments[number]],
        ).fetchall()
        return sum(count for (count,) in rows)


class ReadyClock:
    """Asks /readyz ten times a second, and notes when it changes."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/readyz"
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.changes: list[tuple[float, int, str]] = []
        """(monotonic seconds, HTTP status or 0 for no answer, body)."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def _run(self) -> None:
        with http_client(timeout=20) as http:
            while not self._has_ended.wait(0.1):
                try:
                    answer = http.get(self._url)
                    state = answer.status_code, answer.text
                except httpx2.HTTPError:
                    state = 0, ""
                if not self.changes or self.changes[-1][1:] != state:
                    self.changes.append((time.monotonic(), *state))

    def statuses(self) -> list[int]:
        """Return the statuses in the order in which they were seen, without repetitions."""
        seen: list[int] = []
        for _, status, _ in self.changes:
            if not seen or seen[-1] != status:
                seen.append(status)
        return seen

    def seconds_to_ready(self, since: float) -> float:
        """Return the seconds from a time until /readyz last became 200 again."""
        return max((at for at, status, _ in self.changes if status == 200), default=since) - since
