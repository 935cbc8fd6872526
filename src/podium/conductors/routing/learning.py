"""How a router is learned from evidence, in two stages.

1.  Soft targets. For each question the workers' mean rewards, divided by a temperature, make a
    distribution, and the head is fitted to it by the least Kullback-Leibler divergence. A reward of
    one half stands in every distribution as a worker of its own, so that what the head says of a
    worker is not only relative to the others but a reward that can be expected of it. Workers that
    were not asked a question are left out of its distribution.
2.  Evolution (`podium.routing.evolution`), from there on, for what routing earns in the end.

How the head is held back, and for how long it evolves, is decided by questions that it did not
learn from: parts of the evidence that are left out in turn. By the same parts the quality bias
gets its
prices, and the confidence its curve. The head learns from all questions; all that is decided is
decided by those that every worker was asked (`RewardTable.whole`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.conductors.routing.arrays import Array, normalize_seed
from podium.conductors.routing.encoders import Encoder, ScoringEncoder, averaged, joined
from podium.conductors.routing.evidence import RewardTable
from podium.conductors.routing.evolution import Evolution, evolve_head
from podium.conductors.routing.neighbours import NeighbourScores
from podium.conductors.routing.quality_bias import QualityBias, price_within, routed
from podium.conductors.routing.router import Calibration, LearnedRouter, expected_by
from podium.conductors.routing.words import TokenCounts, WordScores

FIRST: Final = 0.9
SECOND: Final = 0.999
SMALL: Final = 1e-8


class AdamW:
    """Updates the same arrays in place, step by step."""

    def __init__(self, rate: float, *, decay: float = 0.0) -> None:
        self._rate = rate
        self._decay = decay
        self._steps = 0
        self._means: list[Array] = []
        self._squares: list[Array] = []

    def update(self, arrays: Sequence[Array], gradients: Sequence[Array]) -> None:
        """One step downhill."""
        if not self._means:
            self._means = [np.zeros_like(array) for array in arrays]
            self._squares = [np.zeros_like(array) for array in arrays]
        self._steps += 1
        for array, gradient, mean, square in zip(
            arrays, gradients, self._means, self._squares, strict=True
        ):
            mean += (1 - FIRST) * (gradient - mean)
            square += (1 - SECOND) * (gradient * gradient - square)
            steady = mean / (1 - FIRST**self._steps)
            spread = np.sqrt(square / (1 - SECOND**self._steps)) + SMALL
            array -= self._rate * (steady / spread + self._decay * array)


MIDDLE: Final = 0.5
"""The reward that is a worker of its own in every distribution."""

ROUNDS: Final = 40
"""How often the head is moved; the problem is convex, and each move goes downhill."""

BUDGETS: Final = 11
"""At how many expenses routing is looked at, from the cheapest worker's to the dearest's."""

LEAST_QUESTIONS: Final = 10

SURE: Final = 1.64
"""How many standard errors a gain must reach: chance alone gets there once in twenty times."""

HELD: Final = 1e-3
"""How strongly the confidence's curve is held back to the usual one."""

LEAST_SLOPE: Final = 1e-3
"""As good as flat: the confidence's curve never falls."""

HALVINGS: Final = 20
"""How often a step of the confidence's curve is halved at most."""


class Hold(NamedTuple):
    """How strongly a head is held back, and to what: to the average of both opinions on a question
    (`heeding` them), or to what holds for all questions alike."""

    strength: float
    heeding: bool

    def __str__(self) -> str:
        return f"by {self.strength:g} to {'both opinions' if self.heeding else 'the average'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterTraining:
    """How a router is taught. `holds` are how the head may be held back, of which the best in
    `parts` parts is taken, three at the least: evolution needs one to choose by and one to prove
    itself; `evolution` is the second stage, None to leave it out."""

    temperature: float = 0.5
    holds: tuple[Hold, ...] = (
        *(Hold(strength, heeding=True) for strength in (1e3, 1e4, 1e5, 1e6)),
        *(Hold(strength, heeding=False) for strength in (1.0, 10.0, 100.0, 1e3)),
    )
    parts: int = 5
    evolution: Evolution | None = field(default_factory=Evolution)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class RouterFit:
    """The router, and how it came about: the hold that was best, what routing earned with each on
    questions left out, and for how many generations it evolved."""

    router: LearnedRouter
    hold: Hold
    areas: dict[Hold, float]
    generations: int


def fit_router(
    evidence: RewardTable,
    encoder: Encoder,
    teaching: RouterTraining,
    *,
    source: str = "",
) -> RouterFit:
    """The router that comes of the evidence."""
    evidence.check(LEAST_QUESTIONS)
    parts = _dealt(evidence.whole, teaching)
    reading, vectors = _reading(evidence, encoder, parts)
    lesson = _Lesson(evidence, vectors, teaching, parts)
    whole, rewards, costs = evidence.whole, evidence.rewards[evidence.whole], evidence.costs
    foreseen = {hold: lesson.foreseen(partial(lesson.head, hold=hold)) for hold in teaching.holds}
    areas = {hold: area(expected[whole], rewards, costs) for hold, expected in foreseen.items()}
    hold = max(areas, key=areas.__getitem__)
    head = lesson.head(lesson.everything, hold)
    expected = foreseen[hold]
    quality_bias = QualityBias.learned(expected[whole], rewards, costs)
    generations = 0
    if teaching.evolution is not None:
        stage = _Stage(lesson, hold, quality_bias, teaching.evolution)
        generations = stage.generations()
        if generations:
            head = stage.head(lesson.everything, generations)
            expected = lesson.foreseen(lambda rows: stage.head(rows, generations))
            quality_bias = QualityBias.learned(expected[whole], rewards, costs)
    chances = certainty(expected[whole], rewards)
    router = LearnedRouter(evidence.workers, reading, head, quality_bias, chances, source)
    return RouterFit(router, hold, areas, generations)


def _dealt(whole: NDArray[np.bool_], teaching: RouterTraining) -> NDArray[np.int64]:
    """Which part each question is in; those that every worker was asked are shared out evenly."""
    rng = np.random.default_rng(normalize_seed(teaching.seed))
    found = np.zeros(len(whole), dtype=np.int64)
    for rows in (whole, ~whole):
        found[rows] = rng.permutation(int(rows.sum())) % min(teaching.parts, int(whole.sum()))
    return found


def _reading(
    evidence: RewardTable, encoder: Encoder, parts: NDArray[np.int64]
) -> tuple[Encoder, Array]:
    """What the router will read questions by, and how it reads these. Opinions on a question are
    formed on the other parts, for of its own they would tell more than is true."""
    questions, rewards = evidence.questions, evidence.rewards
    vectors, counted = encoder.encode(questions), TokenCounts.of(questions)
    found = np.zeros((len(questions), 2 * rewards.shape[1]))
    for part in range(int(parts.max()) + 1):
        own, others = np.flatnonzero(parts == part), np.flatnonzero(parts != part)
        near = NeighbourScores.fitted(vectors[others], rewards[others])
        words = WordScores.fitted(counted.some(others), rewards[others])
        found[own] = joined(near.score(vectors[own]), words.score(counted.some(own)))
    whole = ScoringEncoder(
        encoder, NeighbourScores.fitted(vectors, rewards), WordScores.fitted(counted, rewards)
    )
    return whole, found


@dataclass(frozen=True, slots=True, eq=False)
class _Lesson:
    """The vectors of the questions beside what was earned on them."""

    evidence: RewardTable
    vectors: Array
    teaching: RouterTraining
    parts: NDArray[np.int64]

    @property
    def everything(self) -> NDArray[np.bool_]:
        return np.ones(len(self.vectors), dtype=bool)

    def head(self, rows: NDArray[np.bool_], hold: Hold) -> Array:
        """The head that is fitted to those rows."""
        vectors, rewards = self.vectors[rows], self.evidence.rewards[rows]
        shape = vectors.shape[1], rewards.shape[1]
        plain = averaged(shape[1]) if hold.heeding else np.zeros(shape)
        return fitted_head(vectors, rewards, self.teaching.temperature, hold.strength, plain)

    def foreseen(self, fit_head: Callable[[NDArray[np.bool_]], Array]) -> Array:
        """What is expected on each question by a head that was taught by the other parts."""
        found = np.zeros(self.evidence.rewards.shape)
        for part in range(int(self.parts.max()) + 1):
            left_out = self.parts == part
            found[left_out] = expected_by(fit_head(~left_out), self.vectors[left_out])
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """The second stage of a lesson, from heads that are held back so."""

    lesson: _Lesson
    hold: Hold
    quality_bias: QualityBias
    evolution: Evolution

    def generations(self) -> int:
        """How many generations did the questions of one part most good, if the questions of
        another, which had no say in that, agree that they do good; else none."""
        choosing, proving = (self.lesson.parts == part for part in range(2))
        states = list(self._states(~choosing & ~proving))
        best = int(np.argmax([self._reached(state, choosing).mean() for state in states]))
        gains = self._reached(states[best], proving) - self._reached(states[0], proving)
        if best == 0 or len(gains) < LEAST_QUESTIONS:
            return 0
        return best if gains.mean() > SURE * gains.std(ddof=1) / np.sqrt(len(gains)) else 0

    def head(self, rows: NDArray[np.bool_], generations: int) -> Array:
        """The head that comes of those rows after so many generations."""
        *_, last = self._states(rows, generations)
        return last

    def _states(self, rows: NDArray[np.bool_], generations: int | None = None) -> Iterator[Array]:
        evidence, whole = self.lesson.evidence, rows & self.lesson.evidence.whole
        return evolve_head(
            self.lesson.head(rows, self.hold),
            self.lesson.vectors[whole],
            evidence.rewards[whole],
            evidence.costs,
            self.quality_bias,
            self.evolution,
            generations=generations,
        )

    def _reached(self, head: Array, part: NDArray[np.bool_]) -> Array:
        evidence, whole = self.lesson.evidence, part & self.lesson.evidence.whole
        expected = expected_by(head, self.lesson.vectors[whole])
        return by_question(expected, evidence.rewards[whole], evidence.costs)


def fitted_head(
    vectors: Array, rewards: Array, temperature: float, strength: float, plain: Array
) -> Array:
    """The head whose distribution over the workers is nearest to the rewards', held back to the
    `plain` one, which has no last row. Moved by a bound of the curvature that holds everywhere
    (Böhning and Lindsay 1988), so no step is too long."""
    inputs = np.hstack([vectors, np.ones((len(vectors), 1), dtype=vectors.dtype)])
    asked = ~np.isnan(rewards)
    logits = np.where(asked, (np.nan_to_num(rewards) - MIDDLE) / temperature, -np.inf)
    targets = _distribution(logits)
    held = np.full(inputs.shape[1], strength)
    held[-1] = 1e-6  # what is the same for all questions is not held back
    curvature = 0.5 * (inputs.T @ inputs).astype(np.float64) + np.diag(held)
    inverse = np.linalg.inv(curvature)
    towards = np.vstack([plain / temperature, np.zeros((1, rewards.shape[1]))])
    head = towards.copy()
    for _ in range(ROUNDS):
        said = _distribution(np.where(asked, inputs @ head, -np.inf))
        head -= inverse @ (inputs.T @ (said - targets) + held[:, None] * (head - towards))
    head *= temperature
    head[-1] += MIDDLE
    return head.astype(np.float32)


def area(expected: Array, rewards: Array, costs: Array) -> float:
    """What routing earns on the average over all that could be spent on a question, from the
    cheapest worker's cost to the dearest's, where every worker was asked."""
    return float(by_question(expected, rewards, costs).mean())


def by_question(expected: Array, rewards: Array, costs: Array) -> Array:
    """What routing earns on each question, on the average over all that could be spent."""
    budgets = np.linspace(costs.min(), costs.max(), BUDGETS)
    prices = [price_within(expected, costs, float(budget)) for budget in budgets]
    everyone = np.arange(len(rewards))
    found = np.stack([rewards[everyone, routed(expected, costs, price)] for price in prices])
    averages: Array = found.mean(axis=0)
    return averages


def certainty(expected: Array, rewards: Array) -> Calibration:
    """The logistic curve that makes chances of expected rewards, by Newton's method, whose steps
    are halved until they go downhill. Where no more was earned as more was expected, what is
    expected tells nothing, and the chance is what was earned on the average."""
    inputs = np.stack([expected.ravel() - MIDDLE, np.ones(expected.size)], axis=1)
    earned = rewards.ravel().astype(np.float64)
    usual = np.array([Calibration().slope, 0.0])

    def loss(weights: Array) -> float:
        logits = inputs @ weights
        held = 0.5 * HELD * np.square(weights - usual).sum()
        return float(np.logaddexp(0, logits).sum() - earned @ logits + held)

    weights = usual
    for _ in range(ROUNDS):
        chances = 1 / (1 + np.exp(-np.clip(inputs @ weights, -50, 50)))
        slopes = inputs.T @ (chances - earned) + HELD * (weights - usual)
        curvature = (inputs * (chances * (1 - chances))[:, None]).T @ inputs + HELD * np.eye(2)
        step = np.linalg.solve(curvature, slopes)
        lost = loss(weights) * (1 + 1e-12)  # at the bottom there is nothing but rounding
        shares = (0.5**halvings for halvings in range(HALVINGS))
        share = next((each for each in shares if loss(weights - each * step) <= lost), 0.0)
        weights = weights - share * step
    if weights[0] < LEAST_SLOPE:
        mean = min(max(float(earned.mean()), 1e-3), 1 - 1e-3)
        logit = math.log(mean / (1 - mean))
        return Calibration(LEAST_SLOPE, float(expected.mean()) - logit / LEAST_SLOPE)
    slope = float(weights[0])
    return Calibration(slope, MIDDLE - float(weights[1]) / slope)


def _distribution(logits: Array) -> Array:
    """A softmax over the workers and the middle reward, whose logit is zero, of which the workers'
    part is returned."""
    highest = np.maximum(logits.max(axis=1, keepdims=True), 0)
    raised = np.exp(logits - highest)
    found: Array = raised / (raised.sum(axis=1, keepdims=True) + np.exp(-highest))
    return found
