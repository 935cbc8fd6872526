"""`podium eval evolved-table`: evolved coordinators beside the conductor, in one table.

A row is named by what its training departs in from the first one, as their recipes say, so that no
row can be mistaken for another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from podium._version import __version__
from podium.cli import eval_options as given
from podium.cli import options
from podium.cli.eval_session import EvalSession
from podium.cli.output import Exit, complain, say, say_json
from podium.cli.settings import Choice

if TYPE_CHECKING:
    from podium.evals.tables.evolved import Learner
    from podium.tasks.agreement import Agreement
    from podium_lab.evolution.results import EvolvedResult

USUAL: Final = (
    "math500",
    "humaneval",
    "mbpp",
    "mbpp:validation",
    "mbpp:train",
    "mbpp:prompt",
)
"""Those that run wherever Podium does: BigCodeBench needs the libraries that it is about."""

MISTAKES_SHOWN: Final = 20
TELL_EVERY: Final = 500
"""Answers, after which a line says how far it is."""

Suites = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SUITE]...",
        help=f"Benchmarks, or .jsonl or .csv files of tasks; when left out: {', '.join(USUAL)}.",
        show_default=False,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Where the benchmarks' files are, if not on the hub."),
]
Limit = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="How many tasks of each suite; all, when left out."),
]
Seed = Annotated[int, typer.Option(metavar="N", help="What the order of tasks comes from.")]
File = Annotated[
    Path | None,
    typer.Option(
        "--file", "-o", metavar="FILE", dir_okay=False, help="Write the figures there, as JSON."
    ),
]


def graders(
    suites: Suites = None,
    data: Data = None,
    limit: Limit = None,
    seed: Seed = 0,
    file: File = None,
    json: options.Json = False,
) -> None:
    """Test the graders on answers that are known to be right or wrong.

    Right are the reference answers, the same mathematics written in other ways, and the reference
    programs. Wrong are other tasks' answers, near misses, and programs with nothing in their
    functions. No worker is asked. Programs whose packages are not installed are not run.
    """
    from podium.evals.written import write_json

    rows, unavailable = asyncio.run(_measured(suites or USUAL, data, limit, seed))
    document = _document(rows, unavailable)
    if file is not None:
        write_json(file, document)
    if json:
        say_json(document)
    else:
        say("\n".join([agreement_table(document), *_mistakes(rows)]))
    if unavailable:
        raise typer.Exit(Exit.FAILED)


async def _measured(
    names: Sequence[str], data: Path | None, limit: int | None, seed: int
) -> tuple[list[Agreement], dict[str, str]]:
    """The rows of every suite that can be had, and why the others cannot."""
    from podium.core.errors import PodiumError
    from podium.tasks import loaded_suite
    from podium.tasks.agreement import agreement

    rows = []
    unavailable = {}
    for name in names:
        try:
            loaded = loaded_suite(name, data=data, limit=limit, seed=seed)
        except PodiumError as error:
            unavailable[name] = str(error)
            complain(f"{name}: {error}")
            continue
        for line in loaded.left_out:
            complain(str(line))

        def tell(done: int, total: int, name: str = name) -> None:
            if done == total or done % TELL_EVERY == 0:
                complain(f"{name}: {done} of {total} answers graded")

        rows += await agreement(name, loaded.tasks, seed=seed, watch=tell)
    return rows, unavailable


def _document(rows: Sequence[Agreement], unavailable: dict[str, str]) -> dict[str, Any]:
    from podium.core.run import timestamp

    return {
        "rows": [row.document() for row in rows],
        "unavailable": unavailable,
        "date": timestamp()[:10],
        "podium": __version__,
    }


def agreement_table(document: dict[str, Any]) -> str:
    """The figures as a table: how many answers of each kind, and how many mistakes."""
    from podium.evals.tables.text_table import markdown

    cells = [
        (
            row["suite"],
            row["what"],
            "right" if row["right"] else "wrong",
            str(row["graded"]),
            str(len(row["mistakes"])),
            str(sum(row["missing"].values())),
        )
        for row in document["rows"]
    ]
    return markdown(("suite", "answers", "are", "graded", "mistakes", "not run"), cells)


def _mistakes(rows: Sequence[Agreement]) -> list[str]:
    lines = []
    for row in rows:
        for mistake in row.mistakes[:MISTAKES_SHOWN]:
            said = "wrong" if row.right else "right"
            reason = f": {mistake.reason}" if mistake.reason else f": {mistake.given!r}"
            lines.append(f"{mistake.task}, {row.what}, graded {said}{reason}")
        if len(row.mistakes) > MISTAKES_SHOWN:
            lines.append(f"and {len(row.mistakes) - MISTAKES_SHOWN} more; --json shows all")
        if row.missing:
            packages = ", ".join(f"{name} ({count})" for name, count in row.missing)
            lines.append(f"{row.suite}, {row.what}: not run for want of {packages}")
    return lines


IN_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "roles False": "no roles",
        "token last": "last token",
        "method random": "random search",
        "directions None": "every number by itself",
        "matrices []": "no scales",
    }
)
"""The ablations, by the key and the value in a recipe that make them."""


def evolved_table(
    trainings: given.Evolved,
    file: given.TableFile = Path("results/etudes-evolved.json"),
    limit: given.Limit = None,
    seed: given.Seed = None,
    pool: options.Pool = None,
    config: options.Config = None,
    conductor: options.Conductor = None,
    oracle: given.Oracle = False,
    training: given.Trainings = None,
    concurrency: given.Concurrency = None,
    cache: given.TableCache = None,
    output: given.TableSamples = None,
    offline: options.Offline = False,
) -> None:
    """Measure evolved coordinators beside the conductor, and write it to a file.

    Over the same unseen études: accuracy, turns and tokens of each, and of each training its time,
    the parameters that it trained and the runs that it tried them by.
    """
    from podium._util.lab import ETUDES
    from podium.evals.tables.evolved import BEST_SINGLE, CONDUCTOR, measure_evolved
    from podium.evals.tables.text_table import learners_table, notes
    from podium.evals.tables.training import read_trainings
    from podium.tasks.suites import USUAL_ETUDES

    figures = read_trainings(training or ())
    coordinators = learners(trainings)
    count, chance = limit or USUAL_ETUDES, seed or 0
    sitting = EvalSession(
        choice=Choice(pool=pool, config=config, conductor=conductor, offline=offline),
        suite=ETUDES,
        strategies=(CONDUCTOR, *(learner.strategy for learner in coordinators), BEST_SINGLE),
        oracle=oracle,
        concurrency=concurrency,
        cache=cache,
        output=output,
    )
    table = sitting.hold(
        lambda held: measure_evolved(
            held.ensemble,
            coordinators,
            n=count,
            seed=chance,
            concurrency=held.at_once,
            conductor=figures,
            watch=held.watch,
            keep=held.keep,
        )
    )
    sitting.write_table(file, table.document(), seed=chance)
    remarks = notes((found.learner.name, found.row) for found in table.rows)
    say("\n".join([learners_table(table.rows), *remarks, "", str(file)]))


def learners(directories: Sequence[Path]) -> tuple[Learner, ...]:
    """The coordinators that these trainings left, each named by what it departs in from the first,
    and by its directory where that is not enough."""
    from podium._util.lab import lab_extra
    from podium.evals.tables.training import each_once

    with lab_extra():
        from podium_lab.evolution.results import read_evolved

    found = [read_evolved(directory) for directory in directories]
    names = [", ".join(("evolved", *_departures(left, found[0]))) for left in found]
    places = each_once(directories)
    alike: dict[str, list[Path]] = {}
    for name, place in zip(names, places, strict=True):
        alike.setdefault(name, []).append(place)
    return tuple(
        _learner(
            name if len(alike[name]) == 1 else f"{name} ({shortest_tail(place, alike[name])})",
            directory,
            left,
        )
        for name, place, directory, left in zip(names, places, directories, found, strict=True)
    )


def shortest_tail(place: Path, places: Sequence[Path]) -> Path:
    """As much of the end of that path as tells it from the others."""
    others = [other.parts for other in places if other != place]
    for length in range(1, len(place.parts)):
        tail = place.parts[-length:]
        if all(other[-length:] != tail for other in others):
            return Path(*tail)
    return place


def _learner(name: str, directory: Path, left: EvolvedResult) -> Learner:
    from podium.evals.tables.evolved import Learner
    from podium.evals.tables.training import read_trainings

    note = f"after {left.steps} of {left.planned} steps, where its training was interrupted"
    return Learner(
        name,
        f"evolved:{left.coordinator}",
        replace(read_trainings([directory]), parameters=left.parameters),
        "" if left.is_finished else note,
    )


def _departures(left: EvolvedResult, first: EvolvedResult) -> Iterator[str]:
    """What is otherwise than in the first one's recipe, in words where it is an ablation."""
    ours, theirs = (one.settings.model_dump(mode="json") for one in (left, first))
    for key, value in sorted(ours.items()):
        if value != theirs[key]:
            told = f"{key} {value}"
            yield IN_WORDS.get(told, told)
