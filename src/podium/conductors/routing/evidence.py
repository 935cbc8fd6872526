"""The rewards that a router learns from: a log of answers, and its table."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podium.conductors.routing.arrays import Array
from podium.conductors.routing.router import KnownWorker
from podium.core.errors import ConfigError
from podium.core.task import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class RewardTable:
    """Rewards by question (row) and worker (column); NaN where the worker was not asked."""

    questions: tuple[str, ...]
    workers: tuple[KnownWorker, ...]
    rewards: Array

    def __post_init__(self) -> None:
        expected = (len(self.questions), len(self.workers))
        if self.rewards.shape != expected:
            raise ValueError(f"expected rewards of the shape {expected}, not {self.rewards.shape}")

    @property
    def costs(self) -> Array:
        """Mean cost of a question for each worker."""
        return np.array([worker.cost for worker in self.workers])

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Mask of the questions that every worker was asked.

        Only on them is the reward of routing known, whatever it chooses. A router that sends hard
        questions to a worker that was never asked them would otherwise drop them from its score.
        """
        found: NDArray[np.bool_] = np.logical_and.reduce(~np.isnan(self.rewards), axis=1)
        return found

    def of(self, rows: Sequence[int]) -> RewardTable:
        """Return the table of some of the questions."""
        chosen = list(rows)
        return RewardTable(
            tuple(self.questions[row] for row in chosen), self.workers, self.rewards[chosen]
        )

    def check(self, least: int) -> None:
        """Refuse a table with too few questions."""
        if len(self.questions) < least:
            raise ConfigError(
                f"the questions to learn from are {len(self.questions)}, and {least} are the least "
                f"that a router is held against; ask more"
            )
        whole = int(self.whole.sum())
        if whole < least:
            raise ConfigError(
                f"every worker was asked {whole} of the {len(self.questions)} questions, and "
                f"{least} such are the least that a router is held against; put questions to all "
                f"of them by `podium eval run --strategy best-single`, and add what comes of it by "
                f"`podium train data --from-evaluation DIR`"
            )


MOST: Final = sys.float_info.max
"""JSON has larger whole numbers, which do not fit a float."""


@dataclass(frozen=True, slots=True)
class OutcomeLog:
    """The lines of a log, in their order."""

    outcomes: tuple[Outcome, ...]

    def evidence(self, costs: Mapping[str, float] | None = None) -> RewardTable:
        """Return the log as a table; `costs` by worker replace those of the log."""
        rewards: dict[tuple[str, str], list[float]] = defaultdict(list)
        for outcome in self.outcomes:
            rewards[outcome.question, outcome.worker].append(outcome.reward)
        questions = tuple(dict.fromkeys(outcome.question for outcome in self.outcomes))
        workers = self._workers(costs or {})
        means = {key: fmean(found) for key, found in rewards.items()}
        table = [[means.get((text, known.name), np.nan) for known in workers] for text in questions]
        return RewardTable(questions, workers, np.array(table, dtype=np.float32))

    def _workers(self, costs: Mapping[str, float]) -> tuple[KnownWorker, ...]:
        models: dict[str, set[str]] = defaultdict(set)
        paid: dict[str, list[float | None]] = defaultdict(list)
        for outcome in self.outcomes:
            models[outcome.worker] |= {outcome.model} - {""}  # not every line needs to say it
            paid[outcome.worker].append(outcome.cost)
        strangers = [name for name in costs if name not in models]
        if strangers:
            raise ConfigError(
                f"costs are given for {', '.join(strangers)}, and the log has only "
                f"{', '.join(models)}"
            )
        for name, found in models.items():
            if len(found) > 1:
                raise ConfigError(
                    f"{name} stands in the log with {len(found)} models, "
                    f"{' and '.join(sorted(found))}; keep the lines of the one that it is now"
                )
        return tuple(
            KnownWorker(
                name,
                next(iter(found), ""),
                costs[name] if name in costs else _mean_cost(name, paid[name]),
            )
            for name, found in models.items()
        )


def read_log(paths: Sequence[Path]) -> OutcomeLog:
    """Read the log files; `ConfigError` names the line that is wrong."""
    found = tuple(outcome for path in paths for outcome in _outcomes(path))
    if not found:
        raise ConfigError(
            f"{', '.join(map(str, paths)) or 'no log'}: there is no line to learn from; write one "
            f"for each answer, as `podium train data` does"
        )
    workers = {outcome.worker for outcome in found}
    if len(workers) < 2:
        raise ConfigError(
            f"{', '.join(map(str, paths))}: "
            f"{f'all {len(found)} lines are' if len(found) > 1 else 'its only line is'} of "
            f"{found[0].worker}; a router chooses between workers, so add what others answered"
        )
    return OutcomeLog(found)


def _outcomes(path: Path) -> Iterable[Outcome]:
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror or error}; write it by `podium train data "
            f"--from-evaluation DIR --from-runs -o FILE`"
        ) from error
    except UnicodeDecodeError as error:
        number = 1 + error.object.count(b"\n", 0, error.start)
        raise ConfigError(
            f"{path}, line {number}: not UTF-8 ({error.reason}), as where a file was cut off; "
            f"remove the line"
        ) from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield _outcome(_parse(line))
            except ValueError as error:
                raise ConfigError(f"{path}, line {number}: {error}") from error


def _parse(line: str) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"expected a whole JSON object, and at character {error.pos + 1} of {len(line)} it is "
            f"none ({error.msg}), as where a file was cut off; remove the line"
        ) from error
    except RecursionError as error:
        raise ValueError("nested deeper than can be read; remove the line") from error


def _outcome(data: object) -> Outcome:
    if not isinstance(data, Mapping):
        raise ValueError(f"expected an object, not {type(data).__name__}")
    return Outcome(
        question=_text(data, "question"),
        worker=_text(data, "worker"),
        model=str(data.get("model") or ""),
        reward=_number(data, "reward", 0.0, 1.0),
        cost=None if data.get("cost") is None else _number(data, "cost", 0.0, MOST),
        output_tokens=_tokens(data.get("output_tokens")),
        source=str(data.get("source") or ""),
    )


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text in {key!r}, not {value!r:.40}")
    return value


def _number(data: Mapping[str, Any], key: str, least: float, most: float) -> float:
    value = data.get(key)
    if isinstance(value, bool):
        value = float(value)
    if not isinstance(value, int | float) or not least <= value <= most:
        between = f"between {least:g} and {most:g}" if most < MOST else f"from {least:g} up"
        raise ValueError(f"expected a number {between} in {key!r}, not {value!r:.40}")
    return float(value)


def _tokens(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _mean_cost(name: str, paid: Sequence[float | None]) -> float:
    known = [cost for cost in paid if cost is not None]
    if not known:
        raise ConfigError(
            f"no line of the log says what {name} costs, so the quality bias cannot be learned; "
            f"say it in "
            f'the recipe, in US dollars for a question: usd = {{ "{name}" = 0.002 }} under [costs]'
        )
    return fmean(known)
