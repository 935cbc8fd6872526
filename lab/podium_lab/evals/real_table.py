"""The table of real workers: strategies over several suites, from the samples of `podium eval run`.

    rows = read_rows([Path("measured/gsm8k"), Path("measured/math500")])
    RealTable(rows).document()          # results/real.json
    write_samples(rows, path)           # what the table follows from, and nothing else

`best-single` is the worker with the best mean, `best-per-suite` the best worker of each suite, an
oracle router, and `oracle` is right where any worker is. Intervals are bootstrapped: tasks are
drawn anew within each suite, the same ones for every row.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from operator import ge, le
from pathlib import Path
from typing import Any, Final

import numpy as np

from podium.core.errors import UsageError
from podium.core.run import Run
from podium.core.workflow import Condition, Step, Workflow
from podium.evals.log import read_eval_log
from podium.evals.results import IntervalEstimate, StrategyRow, interval, mean, round_figure
from podium.evals.sample import Case, EvalContext, Sample
from podium.evals.strategies.conducting import execute_plan

Rows = Mapping[str, Mapping[str, StrategyRow]]
"""The rows by strategy and suite."""

CONDUCTOR, SECOND = "conductor", "recursion"
SINGLE, PER_SUITE, ORACLE = "best-single", "best-per-suite", "oracle"
ALONE: Final = "single:"
NOT_FIXED: Final = (CONDUCTOR, SECOND, SINGLE, PER_SUITE, ORACLE, "router", "baseline-conductor")
"""Strategies that see the question before they decide."""

RESAMPLES: Final = 4_000
KEPT: Final = (
    *("task", "right", "valid", "workers"),
    *("worker_tokens", "orchestration_tokens", "calls"),
)
"""The figures of a sample that the table follows from."""


async def program(case: Case, context: EvalContext) -> Run:
    """Answer by a program, and directly where it gave nothing."""
    model = next(worker.name for worker in case.pool if worker.is_model)
    tool = next(worker.name for worker in case.pool if worker.provider == "python")
    write = "Write a Python program that prints the answer."
    workflow = Workflow(
        (
            Step(model, write),
            Step(tool, "Run the program.", (0,)),
            Step(model, "Answer the question.", condition=Condition("failed", (1,))),
        )
    )
    return await execute_plan("program", workflow, case, context)


def read_rows(paths: Iterable[Path]) -> Rows:
    """Read evaluations, and files that `write_samples` wrote; a strategy counts that all have."""
    found: dict[str, dict[str, StrategyRow]] = {}
    suites: set[str] = set()
    for path in paths:
        for name, rows in (read_samples(path) if path.is_file() else _read_log(path)).items():
            for suite, row in rows.items():
                if suite in found.setdefault(name, {}):
                    raise UsageError(f"{path} measures {name} on {suite} again; name one of them")
                found[name][suite] = row
                suites.add(suite)
    return {name: rows for name, rows in found.items() if len(rows) == len(suites)}


def _read_log(directory: Path) -> Rows:
    """Return the rows of the table and of all single workers, by a function's bare name."""
    log = read_eval_log(directory)
    alone = [row for row in log.all_rows if row.strategy.startswith(ALONE)]
    found = {}
    for row in (*alone, *(row for row in log.rows if row.strategy != SINGLE)):
        family, _, function = row.strategy.rpartition(":")
        found[function if "." in family else row.strategy] = {log.suite: row}
    return found


def write_samples(rows: Rows, path: Path) -> None:
    """Write the samples of all rows, compressed."""
    document = {
        name: {
            suite: [[getattr(sample, key) for key in KEPT] for sample in row.samples]
            for suite, row in suites.items()
        }
        for name, suites in rows.items()
    }
    text = json.dumps(document, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_samples(path: Path) -> Rows:
    """Read what `write_samples` wrote."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    return {
        name: {
            suite: StrategyRow(
                name,
                tuple(
                    Sample.from_document(given | dict(zip(KEPT, values, strict=True)))
                    for given in ({"kind": suite, "skills": None, "shape": "", "seconds": 0.0},)
                    for values in samples
                ),
            )
            for suite, samples in suites.items()
        }
        for name, suites in document.items()
    }


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of one row by suite, over the tasks that all rows have, in one order."""

    suites: Mapping[str, Any]
    worker_tokens: float | None
    calls: float | None

    def accuracy(self, suite: str) -> float:
        return float(self.suites[suite].mean())

    @property
    def mean(self) -> float:
        """The mean of the suites' accuracies."""
        return float(np.mean([self.accuracy(suite) for suite in self.suites]))


class RealTable:
    """The rows with their derived ones, and what is drawn from them."""

    def __init__(self, rows: Rows) -> None:
        singles = [name for name in rows if name.startswith(ALONE)]
        if not singles:
            raise UsageError("no worker was measured alone; add the strategy best-single")
        self.suites = list(rows[singles[0]])
        self._tasks = {
            suite: sorted(set.intersection(*(set(row[suite].outcomes) for row in rows.values())))
            for suite in self.suites
        }
        self.measured = rows
        self.rows = {name: self._outcomes(row) for name, row in rows.items()}
        alone = {name: self.rows[name] for name in singles}
        best = max(alone, key=lambda name: alone[name].mean)
        of_suite = {
            suite: max(alone, key=lambda name: alone[name].accuracy(suite)) for suite in self.suites
        }
        self.best_worker = best.removeprefix(ALONE)
        chosen = {suite: alone[name].suites[suite] for suite, name in of_suite.items()}
        either = {
            suite: np.max([row.suites[suite] for row in alone.values()], axis=0)
            for suite in self.suites
        }
        parts = [rows[name][suite] for suite, name in of_suite.items()]
        self.rows |= {
            SINGLE: alone[best],
            PER_SUITE: Outcomes(
                chosen,
                mean(row.worker_tokens for row in parts),
                mean(row.calls for row in parts),
            ),
            ORACLE: Outcomes(either, None, None),
        }
        rng = np.random.default_rng(0)
        self._draws = {
            suite: rng.integers(len(tasks), size=(RESAMPLES, len(tasks)), dtype=np.int32)
            for suite, tasks in self._tasks.items()
        }

    def _outcomes(self, row: Mapping[str, StrategyRow]) -> Outcomes:
        found = {suite: row[suite].outcomes for suite in self.suites}
        arrays = {
            suite: np.array([found[suite][task] for task in tasks])
            for suite, tasks in self._tasks.items()
        }
        tokens = mean(row[suite].worker_tokens for suite in self.suites)
        return Outcomes(arrays, tokens, mean(row[suite].calls for suite in self.suites))

    def interval(self, values: Mapping[str, Any]) -> IntervalEstimate:
        """Return the mean of the suites' means, with its bootstrap interval."""
        means = np.mean([values[s][self._draws[s]].mean(axis=1) for s in values], axis=0)
        low, high = np.quantile(means, (0.025, 0.975))
        value = np.mean([values[s].mean() for s in values])
        return IntervalEstimate(float(value), float(low), float(high))

    def difference(self, one: str, other: str, suite: str | None = None) -> IntervalEstimate:
        """Return the paired difference of two rows, of all suites or of one."""
        wanted = self.suites if suite is None else [suite]
        mine, theirs = self.rows[one].suites, self.rows[other].suites
        return self.interval({name: mine[name] - theirs[name] for name in wanted})

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "suites": {suite: len(tasks) for suite, tasks in self._tasks.items()},
            "best_worker": self.best_worker,
            "rows": {
                name: {
                    **{suite: round_figure(row.accuracy(suite)) for suite in self.suites},
                    "mean": round_figure(row.mean),
                    "interval": interval(self.interval(row.suites)),
                    "worker_tokens": _round(row.worker_tokens),
                    "calls": _round(row.calls),
                }
                for name, row in self.rows.items()
            },
        }
        if CONDUCTOR in self.rows:
            document |= {"conductor": self._plans(), "requirements": self._requirements()}
        return document

    def _plans(self) -> dict[str, Any]:
        """What the conductor's plans are like."""
        suites = self.measured[CONDUCTOR]
        samples = [sample for row in suites.values() for sample in row.samples]
        row = StrategyRow(CONDUCTOR, tuple(samples))
        total, lengths = row.worker_counts.total(), [sample.steps for sample in samples]
        return {
            "valid_rate": _round(row.valid_rate),
            "accuracy_given_valid": row.document()["accuracy_given_valid"],
            "entropy_bits": round_figure(row.entropy_bits),
            "worker_shares": {
                name: round_figure(count / total) for name, count in row.worker_counts.items()
            },
            "steps": {str(n): lengths.count(n) for n in sorted({*lengths})},
            "one_step": {
                suite: round_figure(sum(s.steps == 1 for s in row.samples) / len(row.samples))
                for suite, row in suites.items()
            },
        }

    def _requirements(self) -> list[dict[str, Any]]:
        """Return what must be shown, each with its paired difference."""
        fixed = [
            name
            for name in self.rows
            if name.split(":")[0] not in NOT_FIXED and not name.startswith(ALONE)
        ]
        found = [
            self._lead(CONDUCTOR, SINGLE, 0.05),
            self._lead(CONDUCTOR, PER_SUITE, 0.01),
            *(self._lead(CONDUCTOR, PER_SUITE, -0.02, suite) for suite in self.suites),
        ]
        if fixed:
            best = max(fixed, key=lambda name: self.rows[name].mean)
            mine, theirs = self.rows[CONDUCTOR].worker_tokens, self.rows[best].worker_tokens
            ratio = mine / theirs if mine is not None and theirs else None
            found.insert(1, self._lead(CONDUCTOR, best, 0.02))
            name = f"worker tokens of {CONDUCTOR} over {best}"
            found.insert(2, _requirement(name, ratio, le, 1.0))
        if SECOND in self.rows:
            found += [self._lead(SECOND, CONDUCTOR, 0.0, suite) for suite in self.suites]
        return found

    def _lead(self, one: str, other: str, least: float, suite: str | None = None) -> dict[str, Any]:
        lead = self.difference(one, other, suite)
        where = "" if suite is None else f", {suite}"
        found = _requirement(f"{one} - {other}{where}", lead.value, ge, least)
        return found | {"interval": interval(lead)}


def _requirement(
    name: str, reached: float | None, holds: Callable[[float, float], bool], limit: float
) -> dict[str, Any]:
    met = None if reached is None else holds(round_figure(reached), limit)
    return {"name": name, "reached": _round(reached), "limit": limit, "met": met}


def _round(number: float | None) -> float | None:
    return None if number is None else round_figure(number)


WIDTH, LEFT, HEIGHT = 720, 190, 22


def picture(document: Mapping[str, Any]) -> str:
    """Draw the means of all rows with their intervals, as an SVG."""
    rows = sorted(document["rows"].items(), key=lambda item: -item[1]["mean"])
    scale = WIDTH - LEFT - 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
        f'height="{HEIGHT * len(rows) + 8}" font-family="sans-serif" font-size="12">'
    ]
    for number, (name, row) in enumerate(rows):
        top, (low, high) = HEIGHT * number + 4, row["interval"]
        colour = "#2a6" if name == CONDUCTOR else "#89a"
        parts += [
            f'<text x="{LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{top}" width="{row["mean"] * scale:.1f}" height="16" '
            f'fill="{colour}"/>',
            f'<path d="M{LEFT + low * scale:.1f} {top + 8}H{LEFT + high * scale:.1f}" '
            f'stroke="#000"/>',
            f'<text x="{LEFT + high * scale + 6:.1f}" y="{top + 13}">{row["mean"]:.3f}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])
