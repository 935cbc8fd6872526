"""MASRouter: a cascade that chooses how agents work together, how many, in which roles, and by
which workers (Yue et al., ACL 2025, arXiv:2502.11133).

Written from the paper's description. Where it departs from the original:

- Linear scores over learned vectors take the place of the variational auto-encoders, whose loss
  goes with them; the encoder is this package's own (sentence embeddings in the original), or
  another that is named.
- There is no classifier of the question's domain, which in the original gets the benchmark's
  name, and one set of seven roles without tools instead of one for each domain.
- The number of agents is drawn from 1 to 6; the original rounds a squashed number.
- The policy gradient is taken against the mean of its batch; the original has no baseline.
- When it answers, the most likely choice is taken at each stage; the original draws.
- What an answer costs is what the run cost in USD; where that is unknown, nothing is taken off.

The rest is the original's: six ways of working together, a worker chosen by its description, an
agent that decides in the end, a gradient weighted by right or wrong less 100 times the cost,
Adam at 0.01, batches of 16, 5 passes over the training split.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np

from podium.conductors.routing.arrays import Array, encode_array, normalize_seed, read_array
from podium.conductors.routing.encoders import Encoder, width_of
from podium.core.pool import Pool
from podium.core.workflow import Step, Workflow
from podium.evals.evaluation import ProgressCallback
from podium.evals.sample import Case, Sample, grade_run
from podium.evals.setup import EvalSetup
from podium.evals.strategies.conducting import execute_plan
from podium.evals.strategies.registry import single_workers
from podium.evals.strategies.routers import EncoderFactory, read_encoder
from podium_lab.routers.adamw import AdamW

Mode = Literal["io", "cot", "chain", "full", "debate", "reflection"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
ALONE: Final[tuple[Mode, ...]] = ("io", "cot")
"""Modes with a single agent, whatever count was chosen."""

MOST_AGENTS: Final = 6

ROLES: Final = MappingProxyType(
    {
        "solver": "Solve the question and give the answer.",
        "planner": "Break the question into parts and say how each is to be solved.",
        "mathematician": "Work out every quantity with care and show the calculation.",
        "programmer": "Think in programs: give code, or trace what the code would do.",
        "scholar": "Recall the facts that the question turns on and apply them.",
        "critic": "Look for mistakes in what you are shown and correct them.",
        "inspector": "Check the answer against every condition and its required form.",
    }
)
"""The instruction of each role."""

STEP_BY_STEP: Final = "Think step by step, then answer the question."
REVISE: Final = "Weigh the other answers against your own, and answer the question anew."
REFLECT: Final = "Criticise the last answer you are shown, and give a better one."
DECIDE: Final = "Read all that was said, decide what is right, and answer the question."


class Agent(NamedTuple):
    """A role and the worker that plays it."""

    role: str
    worker: str


def workflow(mode: Mode, agents: Sequence[Agent], question: str, pool: Pool) -> Workflow:
    """Return the workflow of these agents; the last of several decides at the end."""
    first = agents[0]
    if mode == "io":
        return Workflow((Step(first.worker, question),))

    def subtask(instruction: str) -> str:
        """Add the question if workers see only their subtask."""
        return instruction if pool.share_question else f"{instruction}\n\n{question}"

    if mode == "cot":
        return Workflow((Step(first.worker, subtask(STEP_BY_STEP)),))
    steps = _together(mode, agents, subtask)
    if len(agents) > 1:
        steps.append(Step(agents[-1].worker, subtask(DECIDE), "all"))
    return Workflow(tuple(steps))


def _together(mode: Mode, agents: Sequence[Agent], subtask: Callable[[str], str]) -> list[Step]:
    count = len(agents)
    said = [Step(agent.worker, subtask(ROLES[agent.role])) for agent in agents]
    if mode == "debate":
        everyone = tuple(range(count))
        again = [Step(agent.worker, subtask(REVISE), everyone) for agent in agents]
        return [*said, *(again if count > 1 else ())]
    farthest = 1 if mode == "chain" else count
    reads = [tuple(range(max(0, position - farthest), position)) for position in range(count)]
    if mode == "reflection":
        said[1:] = [Step(agent.worker, subtask(REFLECT)) for agent in agents[1:]]
    return [Step(step.worker, step.subtask, read) for step, read in zip(said, reads, strict=True)]


WIDTH: Final = 64
RATE: Final = 0.01
BATCH: Final = 16
PASSES: Final = 5
COST_RATE: Final = 100.0
"""The weight of a US dollar against a right answer."""

NAMES: Final = ("question", "modes", "counts", "roles", "described", "known")


class SampledPlan(NamedTuple):
    """A plan, its log probability, and the gradients of that."""

    workflow: Workflow
    chance: float
    gradients: dict[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class MasRouter:
    """The cascade of choices.

    `weights` are arrays by name: `question` and `described` project questions and workers'
    descriptions; `modes`, `counts`, `roles` and `known` are vectors of the choices and of the
    workers seen in training.
    """

    workers: tuple[str, ...]
    encoder: Encoder
    weights: Mapping[str, Array]

    @classmethod
    def initialize(
        cls, workers: tuple[str, ...], questions: Sequence[str], encoder: EncoderFactory, seed: int
    ) -> MasRouter:
        """Return a router with random weights."""
        rng = np.random.default_rng(normalize_seed(seed))
        made = encoder(questions)
        wide = made.encode(questions[:1]).shape[1]
        weights = {
            name: rng.normal(0, WIDTH**-0.5, shape).astype(np.float32)
            for name, shape in _shapes(wide, len(workers)).items()
        }
        return cls(workers, made, weights)

    def plan(self, question: str, pool: Pool) -> Workflow:
        """Return the most likely plan for the question."""
        return self._choose(question, pool, None).workflow

    def sample(self, question: str, pool: Pool, rng: np.random.Generator) -> SampledPlan:
        """Sample a plan to learn from."""
        return self._choose(question, pool, rng)

    def _choose(self, question: str, pool: Pool, rng: np.random.Generator | None) -> SampledPlan:
        cascade = _Cascade(self.weights, self.encoder.encode([question])[0], rng)
        mode = MODES[cascade.choice("modes")]
        count = 1 + cascade.choice("counts")
        present = tuple(w for w in pool if w.is_model)
        described = self.encoder.encode([w.description or w.name for w in present])
        known = [self.workers.index(w.name) if w.name in self.workers else None for w in present]
        agents = []
        for _ in range(1 if mode in ALONE else count):
            role = cascade.choice("roles")
            worker = cascade.worker(described, known)
            agents.append(Agent(tuple(ROLES)[role], present[worker].name))
        return SampledPlan(
            workflow(mode, agents, question, pool), cascade.chance, cascade.gradients
        )

    def document(self) -> dict[str, Any]:
        """Return the router as JSON."""
        return {
            "encoder": self.encoder.document(),
            "weights": {name: encode_array(array) for name, array in self.weights.items()},
        }

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> MasRouter:
        """Read the router from JSON."""
        encoder = read_encoder(document.get("encoder"))
        shapes = _shapes(width_of(encoder), len(workers))
        kept = document.get("weights")
        weights = kept if isinstance(kept, Mapping) else {}
        return cls(
            workers, encoder, {name: read_array(weights, name, shapes[name]) for name in NAMES}
        )


def _shapes(wide: int, workers: int) -> dict[str, tuple[int, int]]:
    """Return the shape of each array."""
    rows = (wide, len(MODES), MOST_AGENTS, len(ROLES), wide, workers)
    return {name: (count, WIDTH) for name, count in zip(NAMES, rows, strict=True)}


class MasRouterTrainer:
    """Trains a router on the rewards of its plans, by policy gradient."""

    def __init__(self, router: MasRouter) -> None:
        self.router = replace(router, weights={k: v.copy() for k, v in router.weights.items()})
        self._optimiser = AdamW(RATE)

    def step(self, plans: Sequence[SampledPlan], rewards: Sequence[float]) -> None:
        """Make plans with more reward than their batch's mean more likely."""
        above = np.array(rewards, dtype=np.float32) - np.float32(np.mean(rewards))
        uphill = {
            name: sum(plan.gradients[name] * gain for plan, gain in zip(plans, above, strict=True))
            for name in NAMES
        }
        self._optimiser.update(
            [self.router.weights[name] for name in NAMES],
            [-uphill[name] / len(plans) for name in NAMES],
        )


class _Cascade:
    """One plan being chosen, stage by stage.

    The context is the sum of the question's vector and those of all earlier choices, so a
    gradient of the context is a gradient of each of them.
    """

    def __init__(
        self, weights: Mapping[str, Array], encoded: Array, rng: np.random.Generator | None
    ) -> None:
        self._weights = weights
        self._encoded = encoded
        self._rng = rng
        self._context: Array = encoded @ weights["question"]
        self._chosen: list[tuple[str, int]] = []
        self.chance = 0.0
        self.gradients = {name: np.zeros_like(array) for name, array in weights.items()}

    def choice(self, name: str) -> int:
        """Choose one row of those vectors and add it to the context."""
        options = self._weights[name]
        position, slopes = self._settled(options @ self._context)
        self.gradients[name] += np.outer(slopes, self._context)
        self._pull(slopes @ options)
        self._chosen.append((name, position))
        self._context = self._context + options[position]
        return position

    def worker(self, described: Array, known: Sequence[int | None]) -> int:
        """Choose a worker by its description and its learned vector.

        It is not added to the context: the next agent depends only on this one's role.
        """
        own = self._weights["known"]
        options = described @ self._weights["described"]
        for row, position in enumerate(known):
            if position is not None:
                options[row] += own[position]
        position, slopes = self._settled(options @ self._context)
        self.gradients["described"] += np.outer(slopes @ described, self._context)
        for row, learned in enumerate(known):
            if learned is not None:
                self.gradients["known"][learned] += slopes[row] * self._context
        self._pull(slopes @ options)
        return position

    def _settled(self, logits: Array) -> tuple[int, Array]:
        """Choose an index; return it and the gradient of its log probability by each logit."""
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()
        if self._rng is None:
            position = int(chances.argmax())
        else:
            bounds = np.cumsum(chances)
            position = int(np.searchsorted(bounds, self._rng.random() * bounds[-1], side="right"))
            position = min(position, len(chances) - 1)
        self.chance += float(np.log(chances[position]))
        slopes: Array = -chances
        slopes[position] += 1
        return position, slopes

    def _pull(self, slope: Array) -> None:
        """Add a gradient of the context to everything that it consists of."""
        self.gradients["question"] += np.outer(self._encoded, slope)
        for name, position in self._chosen:
            self.gradients[name][position] += slope


async def fit_masrouter(
    setup: EvalSetup,
    cases: Sequence[Case],
    *,
    seed: int,
    concurrency: int,
    encoder: EncoderFactory,
    on_progress: ProgressCallback,
) -> MasRouter:
    """Fit MASRouter in some passes over the cases, each with a sampled plan."""
    questions = [case.task.question for case in cases]
    trainer = MasRouterTrainer(
        MasRouter.initialize(single_workers(setup), questions, encoder, seed)
    )
    rng = np.random.default_rng(normalize_seed(seed))
    context = setup.context(seed)
    gate = asyncio.Semaphore(concurrency)

    async def reward(case: Case, plan: SampledPlan) -> float:
        async with gate:
            run = await execute_plan("masrouter", plan.workflow, case, context)
        return utility(await grade_run(case, run))

    done, total = 0, PASSES * len(cases)
    for _ in range(PASSES):
        order = [cases[int(index)] for index in rng.permutation(len(cases))]
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            plans = [trainer.router.sample(c.task.question, c.pool, rng) for c in batch]
            trainer.step(plans, await asyncio.gather(*map(reward, batch, plans)))
            done += len(batch)
            on_progress("masrouter", done, total)
    return trainer.router


def utility(sample: Sample) -> float:
    """Return the reward of a plan: 1 for a right answer, minus its cost."""
    return float(sample.right) - COST_RATE * (sample.cost_usd or 0.0)
