"""The learned router: one worker for a question, by expected reward and cost.

    router = LearnedRouter.load(Path("router.json"))
    router.check(pool)
    decision = router.decide("What is six times seven?", pool, quality_bias=0.5)
    decision.worker, decision.confidence, decision.scores

A linear head over the encoded question predicts each worker's reward. The quality bias weighs that
against cost. The file is versioned JSON with numbers in base64.

A router learns from a log of answers and their rewards (`read_log`), as a `RewardMatrix`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podium._util.files import explain_write_errors, read_json, write_atomically
from podium.conductors.routing.arrays import RETRAIN_HINT, Array, decode_array, encode_array
from podium.conductors.routing.encoders import Encoder, read_encoder
from podium.conductors.tiers import RoutingDecision
from podium.core.errors import ConfigError, UsageError
from podium.core.pool import Pool, WorkerProfile
from podium.core.task import Outcome

BIAS_GRID: Final = tuple(bias / 20 for bias in range(21))
"""Quality biases with a learned weight of cost; between them weights are interpolated."""

HALVINGS: Final = 40
"""Steps of the bisection for a weight of cost."""


@dataclass(frozen=True, slots=True)
class QualityBias:
    """The weight of cost against reward at each quality bias of `BIAS_GRID`.

    At 0 it is so high that the cheapest worker always wins; at 1 it is the one that earned the most
    reward in cross-validation. Between them, the mean cost of a question rises in equal steps.
    """

    cost_weights: tuple[float, ...]

    def cost_weight(self, quality_bias: float) -> float:
        """Return the reward that a unit of cost must bring at that bias."""
        if not 0 <= quality_bias <= 1:
            raise UsageError(
                f"expected a quality bias between 0 (cheapest) and 1 (best), not {quality_bias:g}"
            )
        return float(np.interp(quality_bias, BIAS_GRID, self.cost_weights))

    def choose(
        self, expected: Array, costs: Array, quality_bias: float, positions: Sequence[int]
    ) -> int:
        """Return the place of the worker that is worth most; of equals, the cheaper."""
        cost_weight = self.cost_weight(quality_bias)
        if quality_bias == 0:  # nothing that is expected outweighs money
            return min(positions, key=lambda position: (costs[position], -expected[position]))
        return max(
            positions,
            key=lambda position: (
                expected[position] - cost_weight * costs[position],
                -costs[position],
            ),
        )

    @classmethod
    def fit(cls, expected: Array, rewards: Array, costs: Array) -> QualityBias:
        """Fit the weights to left-out questions (rows) that every worker (column) was asked."""
        lowest = float(costs.min())
        budgets = np.linspace(lowest, _spent(expected, costs, 0.0), len(BIAS_GRID))
        weights = [cost_weight_for_budget(expected, costs, float(budget)) for budget in budgets]
        best = max(weights, key=lambda weight: mean_reward(expected, rewards, costs, weight))
        reach = _spent(expected, costs, best) - lowest
        steps = [
            cost_weight_for_budget(expected, costs, lowest + bias * reach)
            for bias in BIAS_GRID[1:-1]
        ]
        return cls((_highest_weight(expected, costs), *steps, best))


def mean_reward(expected: Array, rewards: Array, costs: Array, cost_weight: float) -> float:
    return float(rewards[np.arange(len(rewards)), route(expected, costs, cost_weight)].mean())


def route(expected: Array, costs: Array, cost_weight: float) -> Array:
    """Return the place of the worker of each question (row) at that weight of cost."""
    cheapest_first = np.argsort(costs, kind="stable")
    worth = (expected - cost_weight * costs)[:, cheapest_first]
    found: Array = cheapest_first[worth.argmax(axis=1)]
    return found


def _spent(expected: Array, costs: Array, cost_weight: float) -> float:
    return float(costs[route(expected, costs, cost_weight)].mean())


def _highest_weight(expected: Array, costs: Array) -> float:
    """Return a weight of cost at which every question goes to the cheapest worker."""
    apart = float(expected.max() - expected.min())
    distinct = np.unique(costs)
    step = float(np.diff(distinct).min()) if len(distinct) > 1 else 1.0
    return 2 * apart / step + 1.0


def cost_weight_for_budget(expected: Array, costs: Array, budget: float) -> float:
    """Return the weight at which routing spends most of the budget: the middle of all such."""
    if _spent(expected, costs, 0.0) <= budget:
        return 0.0
    ceiling = _highest_weight(expected, costs)

    def lowest(spends: Callable[[float], bool]) -> float:
        low, high = 0.0, ceiling
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if spends(middle) else (middle, high)
        return high

    first = lowest(lambda weight: _spent(expected, costs, weight) <= budget)
    spent = _spent(expected, costs, first)
    if spent <= costs.min():
        return first
    return (first + lowest(lambda weight: _spent(expected, costs, weight) < spent)) / 2


FORMAT: Final = "podium-router"
VERSION: Final = 4
CHECKSUM: Final = "sha256"


@dataclass(frozen=True, slots=True)
class KnownWorker:
    """A worker of the training: its name, its model if known, its mean cost of a question."""

    name: str
    model: str
    cost: float

    def matches(self, worker: WorkerProfile) -> bool:
        """True if it is that worker: of the same name and, where known, model."""
        return self.name == worker.name and self.model in ("", worker.model)


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic curve from expected reward to chance, fitted to left-out questions."""

    slope: float = 4.0
    midpoint: float = 0.5

    def __call__(self, expected: float) -> float:
        steepness = min(max(self.slope * (expected - self.midpoint), -50.0), 50.0)
        return float(1 / (1 + np.exp(-steepness)))


@dataclass(frozen=True, slots=True, eq=False)
class LearnedRouter:
    """A trained router.

    `head` has a column for each worker, a row for each number of a question's vector, and a last
    row for the intercept.
    """

    workers: tuple[KnownWorker, ...]
    encoder: Encoder
    head: Array
    quality_bias: QualityBias
    calibration: Calibration = Calibration()
    source: str = ""

    @classmethod
    def load(cls, path: Path) -> LearnedRouter:
        document = read_json(path, "make it by `podium train router`")
        try:
            return cls.read(document)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        with explain_write_errors(path.parent, 0):
            document = self.document()
            document[CHECKSUM] = _checksum(document)
            write_atomically(path, json.dumps(document) + "\n")

    def decide(
        self, question: str, pool: Pool, quality_bias: float = 1.0, confidence: float = 0.0
    ) -> RoutingDecision:
        """Choose a worker of the pool: at a quality bias of 0 the cheapest.

        Above, it is one of at least that `confidence`, or else the one with the best chance.
        """
        positions = self._positions(pool)
        expected = self.expected(self.encoder.encode([question]))[0]
        chances = {position: self.calibration(float(expected[position])) for position in positions}
        trusted = [position for position in positions if chances[position] >= confidence]
        if quality_bias == 0:
            trusted = positions
        elif not trusted:
            trusted = [max(positions, key=chances.__getitem__)]
        chosen = self.quality_bias.choose(expected, self.costs, quality_bias, trusted)
        return RoutingDecision(
            self.workers[chosen].name,
            chances[chosen],
            MappingProxyType(
                {
                    self.workers[position].name: _reward(float(expected[position]))
                    for position in positions
                }
            ),
        )

    def expected(self, vectors: Array) -> Array:
        """Return the expected reward of each worker, a row for each vector."""
        return expected_by(self.head, vectors)

    @property
    def costs(self) -> Array:
        return np.array([worker.cost for worker in self.workers])

    @property
    def fingerprint(self) -> str:
        """Changes with anything that could change a decision."""
        return _checksum(self.document())[:12]

    def knows(self, worker: WorkerProfile) -> bool:
        return any(item.matches(worker) for item in self.workers)

    def check(self, pool: Pool) -> None:
        """Refuse a pool other than that of the training, in any order."""
        changes = self.changes(pool)
        if changes:
            raise ConfigError(
                f"the router was trained with another pool: {'; '.join(changes)}; train it again "
                f"with `podium train router`, or put the pool back"
            )

    def changes(self, pool: Pool) -> tuple[str, ...]:
        """Return how the pool differs from that of the training, a phrase each.

        A worker is the same if its name is and, where known, its model; conductors do not count.
        """
        there = {worker.name: worker.model for worker in pool if worker.is_model}
        here = {worker.name: worker.model for worker in self.workers}
        added = [name for name in there if name not in here]
        removed = [name for name in here if name not in there]
        found = []
        for name in removed:
            match = next((new for new in added if there[new] == here[name]), None)
            if match is None:
                found.append(f"{name} is gone")
            else:
                added.remove(match)
                found.append(f"{name} is now called {match}")
        found += [f"{name} is new" for name in added]
        found += [
            f"{name} was the model {here[name]} and is {there[name]}"
            for name in here
            if name in there and here[name] not in ("", there[name])
        ]
        return tuple(found)

    def _positions(self, pool: Pool) -> list[int]:
        found = [
            position
            for position, known in enumerate(self.workers)
            if known.name in pool.names and known.matches(pool[known.name])
        ]
        if not found:
            known = ", ".join(worker.name for worker in self.workers)
            raise UsageError(
                f"the router was trained with {known}, and the pool has {', '.join(pool.names)}: "
                f"none of them; train it again with `podium train router`"
            )
        return found

    def document(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "source": self.source,
            "workers": [asdict(worker) for worker in self.workers],
            "encoder": self.encoder.document(),
            "head": encode_array(self.head),
            "quality_bias": asdict(self.quality_bias),
            "calibration": asdict(self.calibration),
        }

    @classmethod
    def read(cls, document: object) -> LearnedRouter:
        """Read a router from JSON; a change since it was written is refused."""
        if not isinstance(document, Mapping) or document.get("format") != FORMAT:
            raise ConfigError("not a router file of `podium train router`")
        if document.get("version") != VERSION:
            raise ConfigError(
                f"version {document.get('version')!r} cannot be read, only {VERSION}, so with this "
                f"Podium {RETRAIN_HINT}"
            )
        if document.get(CHECKSUM) != _checksum(document):
            raise ConfigError(f"it was changed or damaged after it was written; {RETRAIN_HINT}")
        return cls(
            tuple(KnownWorker(**row) for row in document["workers"]),
            read_encoder(document["encoder"]),
            decode_array(document["head"]),
            QualityBias(tuple(document["quality_bias"]["cost_weights"])),
            Calibration(**document["calibration"]),
            document["source"],
        )


def _checksum(document: Mapping[str, Any]) -> str:
    content = {name: value for name, value in document.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def expected_by(head: Array, vectors: Array) -> Array:
    """Return the expected reward of each worker (column) on each question (row), unclipped."""
    found: Array = vectors @ head[:-1] + head[-1]
    return found


def _reward(expected: float) -> float:
    return min(max(expected, 0.0), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class RewardMatrix:
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
        return np.array([worker.cost for worker in self.workers])

    @property
    def complete_rows(self) -> NDArray[np.bool_]:
        """Mask of the questions that every worker was asked.

        Only on them is the reward of routing known, whatever it chooses. A router that sends hard
        questions to a worker that was never asked them would otherwise drop them from its score.
        """
        found: NDArray[np.bool_] = np.logical_and.reduce(~np.isnan(self.rewards), axis=1)
        return found

    def of(self, rows: Sequence[int]) -> RewardMatrix:
        chosen = list(rows)
        return RewardMatrix(
            tuple(self.questions[row] for row in chosen), self.workers, self.rewards[chosen]
        )

    def check(self, least: int) -> None:
        """Refuse a table with too few questions."""
        if len(self.questions) < least:
            raise ConfigError(
                f"the questions to learn from are {len(self.questions)}, and {least} are the least "
                f"that a router is held against; ask more"
            )
        whole = int(self.complete_rows.sum())
        if whole < least:
            raise ConfigError(
                f"every worker was asked {whole} of the {len(self.questions)} questions, and "
                f"{least} such are the least that a router is held against; put questions to all "
                f"of them by `podium eval run --strategy best-single`, and add what comes of it by "
                f"`podium train data --from-evaluation DIR`"
            )


MAX_FLOAT: Final = sys.float_info.max
"""JSON has larger whole numbers, which do not fit a float."""


@dataclass(frozen=True, slots=True)
class OutcomeLog:
    """The lines of a log, in their order."""

    outcomes: tuple[Outcome, ...]

    def reward_matrix(self, costs: Mapping[str, float] | None = None) -> RewardMatrix:
        """Return the log as a table; `costs` by worker replace those of the log."""
        rewards: dict[tuple[str, str], list[float]] = defaultdict(list)
        for outcome in self.outcomes:
            rewards[outcome.question, outcome.worker].append(outcome.reward)
        questions = tuple(dict.fromkeys(outcome.question for outcome in self.outcomes))
        workers = self._workers(costs or {})
        means = {key: fmean(found) for key, found in rewards.items()}
        table = [[means.get((text, known.name), np.nan) for known in workers] for text in questions]
        return RewardMatrix(questions, workers, np.array(table, dtype=np.float32))

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
        cost=None if data.get("cost") is None else _number(data, "cost", 0.0, MAX_FLOAT),
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
        between = f"between {least:g} and {most:g}" if most < MAX_FLOAT else f"from {least:g} up"
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
