"""`podium train data`: training data from runs with feedback and from evaluations."""

from __future__ import annotations

import json as json_format
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from podium._util.files import explain_write_errors, write_atomically
from podium.cli.output import echo, echo_json, pluralize
from podium.cli.session import run_with_store
from podium.conductors.prompt import Length, Prompt
from podium.core.errors import UsageError
from podium.store import RunStore
from podium.store.audit import local_event

if TYPE_CHECKING:  # it loads the graders, and help must be quick
    from podium.train.run_data import RunDataset

_UNSAFE: Final = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
"""Characters that JSON allows, but that end a line for some readers or cannot be encoded."""

_HINTS: Final = MappingProxyType(
    {
        "outcomes": "give feedback on a run of one step, such as podium ask --tier mini",
        "tasks": "give the correct answer with podium runs feedback ID SCORE --answer TEXT",
        "plans": "give a score of 0.75 or more to a run that was planned once",
    }
)
_OPTIONS: Final = MappingProxyType({"outcomes": "-o", "tasks": "--tasks", "plans": "--plans"})


def write_training_data(
    wanted: Mapping[str, Path],
    length: Length,
    *,
    from_runs: bool,
    evaluations: Sequence[Path],
    config: Path | None,
    json: bool,
) -> None:
    """Collect the runs and write the files, by kind: all of them, or none if one would be empty."""
    from podium.evals.log import read_judged_runs
    from podium.train.run_data import RunDataset, judged_runs

    if not wanted:
        raise UsageError(
            "nothing to write: give -o FILE for the router's log, --tasks FILE for the conductor's "
            "tasks, or --plans FILE for its plans"
        )
    dataset, left_out = RunDataset(Prompt(length=length)), Counter[str]()

    async def collect(store: RunStore) -> None:
        async for judged in judged_runs(store, left_out):
            dataset.take(judged)

    if from_runs:
        run_with_store(config, collect)
    for directory in evaluations:
        for judged in read_judged_runs(directory, left_out):
            dataset.take(judged)
    lines = {
        "outcomes": [outcome.to_json() for outcome in dataset.outcomes],
        "tasks": [task.to_json() for task in dataset.tasks],
        "plans": dataset.plans,
    }
    for kind in wanted:
        if not lines[kind]:
            less = f", or leave out {_OPTIONS[kind]}" if len(wanted) > 1 else ""
            raise UsageError(
                f"{_describe_empty(kind, dataset, left_out, from_runs, evaluations)}{less}"
            )
    counts = {kind: len(lines[kind]) for kind in wanted}
    if from_runs:  # first: nothing is written without an audit entry
        run_with_store(config, lambda store: _audit(store, counts))
    for kind, path in wanted.items():
        _write(path, lines[kind])
    _print_summary(wanted, counts, dataset, left_out, json=json)


async def _audit(store: RunStore, written: Mapping[str, int]) -> None:
    await store.audit.add(local_event("training data written", details=dict(written)))


def _describe_empty(
    kind: str,
    dataset: RunDataset,
    left_out: Counter[str],
    from_runs: bool,
    evaluations: Sequence[Path],
) -> str:
    """Say why there is nothing of that kind, and what to do."""
    from podium.train.run_data import NOT_SERVED

    reasons = [*_reasons(left_out), *_reasons(dataset.without[kind])]
    if reasons:
        hint = _HINTS[kind]
        if kind == "tasks" and evaluations and not from_runs:
            hint = "samples of an evaluation hold no correct answers: train on its tasks"
        elif dataset.without[kind][NOT_SERVED]:
            hint = (
                "evaluate real workers: podium eval run TASKS.jsonl --strategy "
                "best-single --output DIR, without --oracle"
            )
        left = "; ".join(reasons)
        return f"nothing was written: no {kind}; skipped {left}; {hint}"
    if evaluations:
        return f"nothing was written: no {kind}; the evaluation has no samples yet"
    return (
        "nothing was written: no run has feedback; give it on a run's page or with podium runs "
        "feedback, or grade runs with podium runs grade"
    )


def _write(path: Path, documents: Iterable[Mapping[str, Any]]) -> None:
    lines = (json_format.dumps(document, ensure_ascii=False) for document in documents)
    with explain_write_errors(path.parent, 0):
        write_atomically(path, "".join(f"{_UNSAFE.sub(_escape, line)}\n" for line in lines))


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _print_summary(
    wanted: Mapping[str, Path],
    written: Mapping[str, int],
    dataset: RunDataset,
    left_out: Counter[str],
    *,
    json: bool,
) -> None:
    if json:
        echo_json(
            {
                "written": {
                    kind: {"file": str(path), "lines": written[kind]}
                    for kind, path in wanted.items()
                },
                "left_out": dict(left_out),
                "without": {kind: dict(dataset.without[kind]) for kind in wanted},
            }
        )
        return
    for kind, path in wanted.items():
        echo(f"{pluralize(written[kind], kind.removesuffix('s'))} in {path}")
        for reason in _reasons(dataset.without[kind]):
            echo(f"  without {reason}")
    for reason in _reasons(left_out):
        echo(f"skipped {reason}")


def _reasons(counts: Counter[str]) -> list[str]:
    return [f"{pluralize(count, 'run')} {reason}" for reason, count in counts.most_common()]
