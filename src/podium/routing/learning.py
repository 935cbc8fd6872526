"""How a router is learned from evidence, in two stages.

1.  Soft targets. For each question the workers' mean rewards, divided by a temperature, make a
    distribution, and the head is fitted to it by the least Kullback-Leibler divergence. A reward of
    one half stands in every distribution as a worker of its own, so that what the head says of a
    worker is not only relative to the others but a reward that can be expected of it. Workers that
    were not asked a question are left out of its distribution.
2.  Evolution (`podium.routing.evolution`), from there on, for what routing earns in the end.

How strongly the head is held back, and for how long it evolves, is decided by questions that it did
not learn from: parts of the evidence that are left out in turn. By the same parts the dial gets its
prices, and the confidence its curve.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podium.routing.arrays import Array
from podium.routing.dial import Dial, price_within, routed
from podium.routing.encoders import Encoder, ScoringEncoder, joined
from podium.routing.evidence import Evidence
from podium.routing.evolution import Evolution, evolved
from podium.routing.nearness import NearScores
from podium.routing.router import Certainty, LearnedRouter
from podium.routing.words import WordScores

MIDDLE: Final = 0.5
"""The reward that is a worker of its own in every distribution."""

ROUNDS: Final = 40
"""How often the head is moved; the problem is convex, and each move goes downhill."""

BUDGETS: Final = 11
"""At how many expenses routing is looked at, from the cheapest worker's to the dearest's."""

LEAST_QUESTIONS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """How a router is taught. `strengths` are how strongly the head may be held back, of which the
    best in `parts` parts is taken; `evolution` is the second stage, None to leave it out."""

    temperature: float = 0.5
    strengths: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0)
    parts: int = 5
    evolution: Evolution | None = field(default_factory=Evolution)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Taught:
    """The router, and how it came about: the strength that was best, what routing earned with each
    on questions left out, and for how many generations it evolved."""

    router: LearnedRouter
    strength: float
    areas: dict[float, float]
    generations: int


def taught(
    evidence: Evidence,
    encoder: Encoder,
    teaching: Teaching,
    *,
    source: str = "",
) -> Taught:
    """The router that comes of the evidence."""
    evidence.check(LEAST_QUESTIONS)
    parts = _dealt(len(evidence.questions), teaching)
    whole, vectors = _reading(evidence, encoder, parts)
    lesson = _Lesson(evidence, vectors, teaching, parts)
    foreseen = {strength: lesson.foreseen(strength) for strength in teaching.strengths}
    areas = {
        strength: area(expected, evidence.rewards, evidence.costs)
        for strength, expected in foreseen.items()
    }
    strength = max(areas, key=lambda each: (areas[each], each))
    head = lesson.head(lesson.everything, strength)
    expected = foreseen[strength]
    dial = Dial.learned(expected, evidence.rewards, evidence.costs)
    generations = 0
    if teaching.evolution is not None:
        first = head
        head, generations = lesson.evolved(first, strength, dial, teaching.evolution)
        expected = expected + expected_by(head - first, lesson.vectors)
        dial = Dial.learned(expected, evidence.rewards, evidence.costs)
    chances = certainty(expected, evidence.rewards)
    router = LearnedRouter(evidence.workers, whole, head, dial, chances, source)
    return Taught(router, strength, areas, generations)


def _dealt(count: int, teaching: Teaching) -> NDArray[np.int64]:
    """Which part each question is in."""
    order = np.random.default_rng(teaching.seed).permutation(count)
    found: NDArray[np.int64] = order % min(teaching.parts, count)
    return found


def _reading(
    evidence: Evidence, encoder: Encoder, parts: NDArray[np.int64]
) -> tuple[Encoder, Array]:
    """What the router will read questions by, and how it reads these. Opinions on a question are
    formed on the other parts, for of its own they would tell more than is true."""
    questions, rewards = evidence.questions, evidence.rewards
    vectors = encoder.encode(questions)
    found = np.zeros((len(questions), 2 * rewards.shape[1]))
    for part in range(int(parts.max()) + 1):
        own, others = np.flatnonzero(parts == part), np.flatnonzero(parts != part)
        near = NearScores.fitted(vectors[others], rewards[others])
        words = WordScores.fitted([questions[place] for place in others], rewards[others])
        found[own] = joined(
            near.score(vectors[own]), words.score([questions[place] for place in own])
        )
    whole = ScoringEncoder(
        encoder, NearScores.fitted(vectors, rewards), WordScores.fitted(questions, rewards)
    )
    return whole, found


@dataclass(frozen=True, slots=True, eq=False)
class _Lesson:
    """The vectors of the questions beside what was earned on them."""

    evidence: Evidence
    vectors: Array
    teaching: Teaching
    parts: NDArray[np.int64]

    @property
    def everything(self) -> NDArray[np.bool_]:
        return np.ones(len(self.vectors), dtype=bool)

    def head(self, rows: NDArray[np.bool_], strength: float) -> Array:
        """The head that is fitted to those rows."""
        temperature = self.teaching.temperature
        return fitted_head(self.vectors[rows], self.evidence.rewards[rows], temperature, strength)

    def foreseen(self, strength: float) -> Array:
        """What is expected on each question by a head that was fitted to the other parts."""
        found = np.zeros(self.evidence.rewards.shape)
        for part in range(int(self.parts.max()) + 1):
            left_out = self.parts == part
            found[left_out] = expected_by(self.head(~left_out, strength), self.vectors[left_out])
        return found

    def evolved(
        self, head: Array, strength: float, dial: Dial, evolution: Evolution
    ) -> tuple[Array, int]:
        """The head after as many generations as did the questions of one part most good, and how
        many those are. A gain that chance would bring about is none."""
        left_out = self.parts == 0
        costs, rewards = self.evidence.costs, self.evidence.rewards
        states = evolved(
            self.head(~left_out, strength),
            self.vectors[~left_out],
            rewards[~left_out],
            costs,
            dial,
            evolution,
        )
        reached = [
            by_question(expected_by(state, self.vectors[left_out]), rewards[left_out], costs)
            for state in states
        ]
        best = int(np.argmax([np.nanmean(each) for each in reached]))
        gains = reached[best] - reached[0]
        gains = gains[~np.isnan(gains)]
        if best == 0 or gains.mean() <= gains.std() / np.sqrt(len(gains)):
            return head, 0
        *_, last = evolved(head, self.vectors, rewards, costs, dial, evolution, generations=best)
        return last, best


def expected_by(head: Array, vectors: Array) -> Array:
    """What reward the head expects of each worker (columns) on each question (rows)."""
    found: Array = vectors @ head[:-1] + head[-1]
    return found


def fitted_head(vectors: Array, rewards: Array, temperature: float, strength: float) -> Array:
    """The head whose distribution over the workers is nearest to the rewards'. Moved by a bound of
    the curvature that holds everywhere (Böhning and Lindsay 1988), so no step is too long."""
    inputs = np.hstack([vectors, np.ones((len(vectors), 1), dtype=vectors.dtype)])
    asked = ~np.isnan(rewards)
    logits = np.where(asked, (np.nan_to_num(rewards) - MIDDLE) / temperature, -np.inf)
    targets = _distribution(logits)
    held = np.full(inputs.shape[1], strength)
    held[-1] = 1e-6  # what is the same for all questions is not held back
    curvature = 0.5 * (inputs.T @ inputs).astype(np.float64) + np.diag(held)
    inverse = np.linalg.inv(curvature)
    head = np.zeros((inputs.shape[1], rewards.shape[1]))
    for _ in range(ROUNDS):
        said = _distribution(np.where(asked, inputs @ head, -np.inf))
        head -= inverse @ (inputs.T @ (said - targets) + held[:, None] * head)
    head *= temperature
    head[-1] += MIDDLE
    return head.astype(np.float32)


def area(expected: Array, rewards: Array, costs: Array) -> float:
    """What routing earns on the average over all that could be spent on a question, from the
    cheapest worker's cost to the dearest's."""
    return float(np.nanmean(by_question(expected, rewards, costs)))


def by_question(expected: Array, rewards: Array, costs: Array) -> Array:
    """What routing earns on each question, on the average over all that could be spent; not a
    number where the workers that it chooses were not asked."""
    budgets = np.linspace(costs.min(), costs.max(), BUDGETS)
    prices = [price_within(expected, costs, float(budget)) for budget in budgets]
    everyone = np.arange(len(rewards))
    found = np.stack([rewards[everyone, routed(expected, costs, price)] for price in prices])
    asked = ~np.isnan(found)
    sums = np.where(asked, found, 0.0).sum(axis=0)
    counts = asked.sum(axis=0)
    averages: Array = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return averages


def certainty(expected: Array, rewards: Array) -> Certainty:
    """The logistic curve that makes chances of expected rewards, by Newton's method."""
    asked = ~np.isnan(rewards)
    inputs = np.stack([expected[asked] - MIDDLE, np.ones(int(asked.sum()))], axis=1)
    weights = np.array([4.0, 0.0])
    for _ in range(ROUNDS):
        chances = 1 / (1 + np.exp(-np.clip(inputs @ weights, -50, 50)))
        slopes = inputs.T @ (chances - rewards[asked]) + 1e-3 * (weights - (4.0, 0.0))
        curvature = (inputs * (chances * (1 - chances))[:, None]).T @ inputs + 1e-3 * np.eye(2)
        weights = weights - np.linalg.solve(curvature, slopes)
    slope = max(float(weights[0]), 1e-3)
    return Certainty(slope, MIDDLE - float(weights[1]) / slope)


def _distribution(logits: Array) -> Array:
    """A softmax over the workers and the middle reward, whose logit is zero, of which the workers'
    part is returned."""
    highest = np.maximum(logits.max(axis=1, keepdims=True), 0)
    raised = np.exp(logits - highest)
    found: Array = raised / (raised.sum(axis=1, keepdims=True) + np.exp(-highest))
    return found
