"""`podium eval evolved-table`: evolved coordinators beside the conductor, in one table.

A row is named by what its training departs in from the first one, as their recipes say, so that no
row can be mistaken for another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from podium.cli import eval_options as given
from podium.cli import options
from podium.cli.eval_session import EvalSession
from podium.cli.output import say
from podium.cli.settings import Choice

if TYPE_CHECKING:  # what measures is slow to import, and help must be quick
    from podium.evals.tables.evolved import Learner
    from podium.train.evolved import Evolved

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
    from podium.evals.tables.evolved import BEST_SINGLE, CONDUCTOR, measure_evolved
    from podium.evals.tables.text_table import learners_table, notes
    from podium.evals.tables.training import read_trainings
    from podium.tasks.suites import ETUDES, USUAL_ETUDES

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
    from podium.evals.tables.training import each_once
    from podium.train.evolved import read_evolved

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


def _learner(name: str, directory: Path, left: Evolved) -> Learner:
    from podium.evals.tables.evolved import Learner
    from podium.evals.tables.training import read_trainings

    note = f"after {left.steps} of {left.planned} steps, where its training was interrupted"
    return Learner(
        name,
        f"evolved:{left.coordinator}",
        replace(read_trainings([directory]), parameters=left.parameters),
        "" if left.is_finished else note,
    )


def _departures(left: Evolved, first: Evolved) -> Iterator[str]:
    """What is otherwise than in the first one's recipe, in words where it is an ablation."""
    ours, theirs = (one.settings.model_dump(mode="json") for one in (left, first))
    for key, value in sorted(ours.items()):
        if value != theirs[key]:
            told = f"{key} {value}"
            yield IN_WORDS.get(told, told)
