"""`podium train data --from-runs` and `--from-evaluation`: what was judged, as data to learn from.

What becomes of a judged run is `podium.train.run_data`; here it is gathered and written.
"""

from __future__ import annotations

import json as json_format
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from podium._util.files import write_whole, writing
from podium.cli.formatting import counted
from podium.cli.output import say, say_json
from podium.cli.session import with_store
from podium.conductors.prompt import Length, Prompt
from podium.core.errors import UsageError
from podium.store import RunStore, audit_in
from podium.store.audit import local_event

if TYPE_CHECKING:  # it loads the graders, and help must be quick
    from podium.train.run_data import RunDataset

_UNFIT: Final = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
"""What JSON allows as it is, and some readers take for the end of a line or no file can hold."""

_WHAT_TO_DO: Final = MappingProxyType(
    {
        "outcomes": "judge a run of one step, as podium ask --tier mini makes them",
        "tasks": "say what is right with podium runs feedback ID SCORE --answer TEXT",
        "plans": "judge a run by 0.75 or more that was planned once",
    }
)
_OPTIONS: Final = MappingProxyType({"outcomes": "-o", "tasks": "--tasks", "plans": "--plans"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where judged runs come from."""

    runs: bool
    evaluations: Sequence[Path]
    config: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What is to be written: the router's log, the conductor's tasks and its plans."""

    outcomes: Path | None
    tasks: Path | None
    plans: Path | None

    def wanted(self) -> dict[str, Path]:
        """The files that were asked for, by what goes there."""
        files = {"outcomes": self.outcomes, "tasks": self.tasks, "plans": self.plans}
        return {kind: path for kind, path in files.items() if path is not None}


def write_use(sources: Sources, files: Files, length: Length, *, json: bool) -> None:
    """Gather what was judged and write what was asked for: all of it, or nothing where one of the
    files would be empty."""
    wanted = files.wanted()
    if not wanted:
        raise UsageError(
            "say what to write: the router's log with -o FILE, the conductor's tasks with --tasks "
            "FILE, its plans with --plans FILE"
        )
    harvest, left_out = _gathered(sources, length)
    lines = {
        "outcomes": [outcome.to_json() for outcome in harvest.outcomes],
        "tasks": [task.to_json() for task in harvest.tasks],
        "plans": harvest.plans,
    }
    for kind in wanted:
        if not lines[kind]:
            less = f", or leave out {_OPTIONS[kind]}" if len(wanted) > 1 else ""
            raise UsageError(f"{_nothing(kind, harvest, left_out, sources)}{less}")
    counts = {kind: len(lines[kind]) for kind in wanted}
    if sources.runs:  # first: what cannot be entered is not done
        with_store(sources.config, lambda store: _note(store, counts))
    for kind, path in wanted.items():
        _write(path, lines[kind])
    _tell(wanted, counts, harvest, left_out, json=json)


def _gathered(sources: Sources, length: Length) -> tuple[RunDataset, Counter[str]]:
    from podium.evals.written import judged_samples
    from podium.train.run_data import RunDataset, judged_runs

    harvest, left_out = RunDataset(Prompt(length=length)), Counter[str]()

    async def gather(store: RunStore) -> None:
        async for judged in judged_runs(store, left_out):
            harvest.take(judged)

    if sources.runs:
        with_store(sources.config, gather)
    for directory in sources.evaluations:
        for judged in judged_samples(directory, left_out):
            harvest.take(judged)
    return harvest, left_out


async def _note(store: RunStore, written: Mapping[str, int]) -> None:
    await audit_in(store).add(local_event("training data written", details=dict(written)))


def _nothing(kind: str, harvest: RunDataset, left_out: Counter[str], sources: Sources) -> str:
    """Why there is nothing of that kind to write, and what to do."""
    from podium.train.run_data import NOT_SERVED

    reasons = [*_reasons(left_out), *_reasons(harvest.without[kind])]
    if reasons:
        hint = _WHAT_TO_DO[kind]
        if kind == "tasks" and sources.evaluations and not sources.runs:
            hint = "samples of an evaluation do not hold what is right: train on its own tasks"
        elif harvest.without[kind][NOT_SERVED]:
            hint = (
                "measure workers that are served: podium eval run TASKS.jsonl --strategy "
                "best-single --output DIR, without --oracle"
            )
        left = "; ".join(reasons)
        return f"nothing was written, for there are no {kind}: left out were {left}; {hint}"
    if sources.evaluations:
        return f"nothing was written, for there are no {kind}: the evaluation has no samples yet"
    return (
        "nothing was written, for nobody has judged a run yet: do so on a run's page, with podium "
        "runs feedback, or have a grader do it with podium runs grade"
    )


def _write(path: Path, documents: Iterable[Mapping[str, Any]]) -> None:
    lines = (json_format.dumps(each, ensure_ascii=False) for each in documents)
    with writing(path.parent, 0):
        write_whole(path, "".join(f"{_UNFIT.sub(_escaped, line)}\n" for line in lines))


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _tell(
    wanted: Mapping[str, Path],
    written: Mapping[str, int],
    harvest: RunDataset,
    left_out: Counter[str],
    *,
    json: bool,
) -> None:
    if json:
        say_json(
            {
                "written": {
                    kind: {"file": str(path), "lines": written[kind]}
                    for kind, path in wanted.items()
                },
                "left_out": dict(left_out),
                "without": {kind: dict(harvest.without[kind]) for kind in wanted},
            }
        )
        return
    for kind, path in wanted.items():
        say(f"{counted(written[kind], kind.removesuffix('s'))} in {path}")
        for reason in _reasons(harvest.without[kind]):
            say(f"  without {reason}")
    for reason in _reasons(left_out):
        say(f"left out {reason}")


def _reasons(counts: Counter[str]) -> list[str]:
    return [f"{counted(count, 'run')} {reason}" for reason, count in counts.most_common()]
