"""Lists and searches of experiments: the first page of 50, in workspaces of 1,000 and 100,000, over
HTTP; with words that nearly all, some, few and no experiments have; by status, stars and archive.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from bench import Bench, say
from machine import report
from service import Service

from support.people import cookie_of, sign_in
from tbservice.auth.secrets import generate_experiment_id
from tbservice.db.database import Database
from tbservice.experiment_values import ExperimentNotes
from tbservice.experiments.search_words import collect_words, in_archive
from tbservice.pages.base.csrf import SCRIPT_HEADER, script_key
from tbservice.types.experiments import Experiment, Visibility
from tbservice.types.identifiers import UserId
from tbservice.types.people import Person

EXPERIMENTS = (1_000, 100_000)
ROUNDS = 21
PAGE = 50
TARGET = "at most 50 ms"
_random = random.Random(7)  # noqa: S311 - the same experiments each time

VOCABULARY = [f"{a}{b}{c}" for a in ("ba", "ke", "li", "mo", "tu", "sa") for b in ("ra", "ne", "dit", "gol") for c in ("", "s", "nik", "ver", "tem")]  # fmt: skip
MODELS = ("resnet50", "vit-large", "bert-base", "gpt2-small", "unet", "mlp")
PEOPLE = [f"{n:022d}" for n in range(20)]
SEARCHES: dict[str, dict[str, Any]] = {
    "no search": {},
    "sorted by name": {"sort": "name"},
    "sorted by last data": {"sort": "updated"},
    "sorted by size": {"sort": "size"},
    "a word of all": {"q": "run"},
    "a word of all, by size": {"q": "run", "sort": "size"},
    "a word of a sixth": {"q": "unet"},
    "a word of a sixth, by size": {"q": "unet", "sort": "size"},
    "a word of the oldest 3 in 10": {"q": "pilot"},
    "a word of the oldest 3 in 10, by last data": {"q": "pilot", "sort": "updated"},
    "one letter": {"q": "r"},
    "a digit, the beginning of most names' numbers": {"q": "1"},
    "two words of a sixth, none with both": {"q": "unet mlp"},
    "a word of all and one of a sixth": {"q": "run unet"},
    "a word of few": {"q": "rarity"},
    "a word of one": {"q": "00777"},
    "no such word": {"q": "zzz"},
    "a tag of half": {"tag": "baseline"},
    "a tag of one": {"tag": "best-of-all"},
    "a person and a tag": {"tag": "baseline", "created_by": PEOPLE[3]},
    "private ones": {"visibility": "private"},
    "those visible by link, one in 200": {"visibility": "link"},
    "running, 20": {"status": "running"},
    "failed, one in 20": {"status": "failed"},
    "failed, by name": {"status": "failed", "sort": "name"},
    "finished, nine in ten": {"status": "finished"},
    "finished, by size": {"status": "finished", "sort": "size"},
    "killed, the oldest 4,000": {"status": "killed"},
    "sorted by status": {"sort": "status"},
    "failed with a word of a sixth, by last data": {
        "status": "failed",
        "q": "unet",
        "sort": "updated",
    },
    "starred, 500": {"starred": "true"},
    "archived, one in 10": {"archived": "true"},
    "archived, by name": {"archived": "true", "sort": "name"},
    "archived with a word of a sixth": {"archived": "true", "q": "unet"},
}


def measure(bench: Bench) -> None:
    """`--only` picks searches by their names."""
    with bench.new_service() as service:
        for count in EXPERIMENTS:
            workspace_id, token = _new_workspace(service)
            _fill(service, workspace_id, int(count * bench.scale))
            http = service.reader.http
            headers = {"Authorization": f"Bearer {token}"}
            for name, parameters in SEARCHES.items():
                if not bench.is_chosen(name):
                    continue
                seconds, count_found = [], 0
                for _ in range(ROUNDS):
                    began = time.perf_counter()
                    answer = http.get(
                        "/api/v1/experiments",
                        params={"limit": PAGE, **parameters},
                        headers=headers,
                    )
                    seconds.append(time.perf_counter() - began)
                    answer.raise_for_status()
                    count_found = len(answer.json()["experiments"])
                label = f"{count * bench.scale:9,.0f}: {name} ({count_found} found)"
                told = f"{statistics.median(seconds) * 1e3:.1f} ms, best {min(seconds) * 1e3:.1f}"
                report(label, told, TARGET)
            if bench.is_chosen("jump"):
                _measure_jump(service, workspace_id, headers, int(count * bench.scale))
        _report_size(service)


def _measure_jump(service: Service, workspace_id: int, headers: dict[str, str], count: int) -> None:
    """A key press after Ctrl-K: in turns with the list of the same words, of which it is a ratio."""
    postgres = service.servers.instance.postgres
    database = Database(service.live.database_url, 1)
    secret = sign_in(database, Person(UserId(PEOPLE[0]), "", ""))
    database.close()
    with postgres.connect_as_superuser(service.database_name) as db:
        _copy_runs(db, workspace_id)
    key = {**cookie_of(secret), SCRIPT_HEADER: script_key(secret)}
    asked = {
        "/jump": ({"workspace": str(workspace_id)}, key),
        "/api/v1/experiments": ({"limit": "30"}, headers),
    }
    for typed in ("un", "run", "unet", "unet mlp", "00777", "seed", "zzz"):
        seconds: dict[str, list[float]] = {path: [] for path in asked}
        for _ in range(ROUNDS):
            for path, (parameters, sent) in asked.items():
                began = time.perf_counter()
                answer = service.reader.http.get(
                    path, params={"q": typed, **parameters}, headers=sent
                )
                seconds[path].append(time.perf_counter() - began)
                answer.raise_for_status()
        jump, listed = map(statistics.median, seconds.values())
        label = f"{count:9,}: jump to {typed!r}"
        report(label, f"{jump * 1e3:.1f} ms, {jump / listed:.2f} of the list", TARGET)


def _copy_runs(db: psycopg.Connection[Any], workspace_id: int) -> None:
    """500 runs of each of the newest 20 experiments: all that a key press looks at."""
    db.execute(
        """
        INSERT INTO runs (experiment_id, workspace_id, name, name_digest)
        SELECT experiment_id, workspace_id, name, sha256(name::bytea) FROM (
            SELECT experiment_id, workspace_id, 'sweep/lr0.01/seed' || n AS name
            FROM generate_series(1, 500) AS n CROSS JOIN (
                SELECT experiment_id, workspace_id FROM experiments
                WHERE workspace_id = %s AND is_listed ORDER BY data_at DESC LIMIT 20) AS newest
        ) AS named
        """,
        [workspace_id],
    )


def _new_workspace(service: Service) -> tuple[int, str]:
    token = service.live.new_owner()
    return service.query("SELECT max(workspace_id) FROM workspaces")[0][0], token


def _fill(service: Service, workspace_id: int, count: int) -> None:
    say(f"writing {count:,} experiments")
    postgres = service.servers.instance.postgres
    with postgres.connect_as_superuser(service.database_name) as db:
        for user_id in PEOPLE:
            db.execute(
                "INSERT INTO users VALUES (%s, %s, '', NULL) ON CONFLICT DO NOTHING",
                [user_id, f"Person {user_id[-2:]}"],
            )
        made = list(_make(count))
        _copy_experiments(db, workspace_id, made)
        with db.cursor().copy(
            "COPY experiment_words (workspace_id, word, number) FROM STDIN"
        ) as copy:
            for experiment, notes in made:
                words = collect_words(experiment, notes, [])
                if _is_archived(experiment):
                    words = set(map(in_archive, words))
                for word in sorted(words):
                    copy.write_row((workspace_id, word, experiment.number))
        _copy_uploads(db, workspace_id, [experiment for experiment, _ in made])
    service.query("VACUUM ANALYZE")


def _is_archived(experiment: Experiment) -> bool:
    return experiment.number % 10 == 3


def _copy_uploads(db: psycopg.Connection[Any], workspace_id: int, made: list[Experiment]) -> None:
    """One upload of each experiment, and the stars of a person."""
    now = datetime.now(UTC)
    with db.cursor().copy(
        "COPY uploads (experiment_id, upload_id, workspace_id, origin, packages, status, status_of, "
        "detail, started_at, seen_at) FROM STDIN"
    ) as copy:
        for number, each in enumerate(made):
            age = len(made) - number
            status = "failed" if number % 20 == 1 else "finished"
            status = "killed" if number < len(made) // 25 else status
            status = "running" if age <= 20 or number % 100 == 0 else status
            copy.write_row(
                (
                    *(each.experiment_id, "0" * 16, workspace_id, "{}", "{}", status, "training"),
                    *("", each.created_at, now if age <= 20 else each.created_at),
                )
            )
    db.execute(
        "INSERT INTO experiment_stars SELECT experiment_id, %s, workspace_id FROM experiments"
        " WHERE workspace_id = %s ORDER BY number LIMIT 500",
        [PEOPLE[0], workspace_id],
    )
    db.execute("INSERT INTO members VALUES (%s, %s, 'owner')", [workspace_id, PEOPLE[0]])
    db.execute("UPDATE tokens SET user_id = %s WHERE workspace_id = %s", [PEOPLE[0], workspace_id])


def _copy_experiments(
    db: psycopg.Connection[Any],
    workspace_id: int,
    made: list[tuple[Experiment, ExperimentNotes]],
) -> None:
    with db.cursor().copy(
        "COPY experiments (experiment_id, workspace_id, name, name_key, description, visibility, "
        "created_at, updated_at, data_at, version, tags, created_by, points, bytes, listed_bytes, "
        "notes, number, is_listed) FROM STDIN"
    ) as copy:
        for each, notes in made:
            copy.write_row(
                (
                    *(each.experiment_id, workspace_id, each.name, each.name.casefold()),
                    *(each.description, each.visibility.value, each.created_at, each.updated_at),
                    *(each.data_at, 1, list(each.tags), each.created_by, each.points),
                    *(each.bytes, each.bytes, notes.notes, each.number, not _is_archived(each)),
                )
            )


def _make(count: int) -> Iterator[tuple[Experiment, ExperimentNotes]]:
    """Experiments from the oldest to the newest, an hour apart."""
    begin = datetime.now(UTC) - timedelta(hours=count)
    for number in range(count):
        created_at = begin + timedelta(hours=number)
        word = "pilot" if number < count * 0.3 else "final"
        name = f"{_random.choice(MODELS)}-run-{number:05d}-{word}"
        tags = {_random.choice(VOCABULARY) for _ in range(_random.randrange(3))}
        tags |= {"baseline"} if number % 2 else set()
        tags |= {"best-of-all"} if number == count // 3 else set()
        notes = " ".join(_random.choices(VOCABULARY, k=40)) if number % 2 else ""
        size = int(_random.lognormvariate(15, 3))
        yield (
            Experiment(
                generate_experiment_id(),
                name,
                " ".join(_random.choices(VOCABULARY, k=12)),
                Visibility.LINK if number % 200 == 0 else Visibility.PRIVATE,
                created_at,
                created_at,
                1,
                tuple(sorted(tags)),
                UserId(_random.choice(PEOPLE)),
                size // 12,
                size,
                created_at + timedelta(minutes=_random.randrange(600)),
                number=count * 10 + number,
            ),
            ExperimentNotes(f"{notes} rarity" if number % 997 == 0 else notes, {}, {}),
        )


def _report_size(service: Service) -> None:
    rows = service.query(
        "SELECT count(*), pg_total_relation_size('experiment_words') FROM experiment_words"
    )
    count, size = rows[0]
    report("the table of words", f"{count:,} rows, {size / 1e6:.0f} MB, {size / count:.0f} B each")
