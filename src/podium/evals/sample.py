"""A sample: what one strategy made of one task, in the few figures that tables are made of.

The whole run may be kept in a file; in memory there is only this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from podium._util.lab import ETUDES, EVERYDAY, lab_extra
from podium.conductors import plan
from podium.conductors.evolved.turns import ends_accepted
from podium.core.errors import MalformedPlan, UsageError
from podium.core.pool import Pool
from podium.core.roles import Role, step_roles
from podium.core.run import Round, Run, dump
from podium.core.task import Suite, Task
from podium.core.usage import Usage
from podium.core.workflow import Workflow

if TYPE_CHECKING:
    from podium_lab.etudes import Etude, EtudeShape


@dataclass(frozen=True, slots=True)
class Case:
    """A task, the pool that it is asked over, and its ideal plan where that is known."""

    task: Task
    pool: Pool
    ideal: Workflow | None = None

    @property
    def skills(self) -> int | None:
        """How many skills the task needs, one for each step of its ideal plan."""
        return len(self.ideal) if self.ideal is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is changed about the études' test set.

    `shapes` are the shapes to draw and their weights, None for the usual ones.
    With `shuffled` each pool stands in yet
    another order than it was drawn in; with `drop_one` each lacks a worker that its étude does
    not need. `flaky` is the share of requests that a capable worker declines to answer: the
    workers are made so where they are connected, it is kept here to be told with the results.
    """

    shapes: Mapping[EtudeShape, float] | None = None
    shuffled: bool = False
    drop_one: bool = False
    flaky: float = 0.0

    def document(self) -> dict[str, object]:
        """The variant as it is written into tables."""
        return {
            "shapes": None if self.shapes is None else [shape.value for shape in self.shapes],
            "pool_order": "shuffled" if self.shuffled else "drawn",
            "drop_one": self.drop_one,
            "flaky": self.flaky,
        }


def suite_cases(suite: Suite, pool: Pool) -> tuple[Case, ...]:
    """The tasks of any suite, all over the configured pool."""
    return tuple(Case(task, pool) for task in suite)


def etude_cases(n: int, seed: int, pool: Pool, variant: Variant | None = None) -> tuple[Case, ...]:
    """Unseen études over the workers of that pool, which are known by the names of their roles.

    The same seed gives the same études over the same pools; a variant changes only what it says.
    """
    with lab_extra():
        from podium_lab.etudes import USUAL, held_out
    check_roles(pool)
    variant = variant or Variant()
    return tuple(_cases(held_out(n, seed, variant.shapes or USUAL), seed, pool, variant))


def needs_roles(suite: str) -> bool:
    """Whether the suite is about workers of certain roles, and not about any pool."""
    return suite in (ETUDES, EVERYDAY)


def check_roles(pool: Pool, suite: str = ETUDES) -> None:
    """Refuse a pool in which a worker is missing whose role the suite cannot do without."""
    if not needs_roles(suite):
        return
    with lab_extra():
        from podium_lab.etudes import FAMILIES, GENERALIST, ROLES
    needed = [family.value for family in FAMILIES] if suite == ETUDES else [GENERALIST]
    missing = [role for role in needed if role not in pool.names]
    if missing:
        raise UsageError(
            f"the suite {suite!r} needs a worker named {missing[0]!r}, and the pool has "
            f"{', '.join(pool.names)}; give a pool whose workers are named by their roles "
            f"({', '.join(ROLES)}) with --pool, or have perfect ones with --oracle"
        )


def _cases(etudes: Iterable[Etude], seed: int, pool: Pool, variant: Variant) -> Iterator[Case]:
    with lab_extra():
        from podium_lab.etudes import FAMILIES
        from podium_lab.etudes.tasks import etude_task
    roles = {family.value: family.value for family in FAMILIES}
    for etude in etudes:
        drawn = _described(pool, Random(f"{seed}/{etude.id}/pool"))  # noqa: S311 - repeatable
        rng = Random(f"{seed}/{etude.id}/variant")  # noqa: S311
        if variant.drop_one:
            spare = [name for name in drawn.names if name not in etude.families]
            drawn = drawn.without([rng.choice(spare)]) if spare else drawn
        if variant.shuffled:
            drawn = replace(drawn, workers=tuple(rng.sample(drawn.workers, len(drawn))))
        yield Case(etude_task(etude), drawn, etude.ideal(roles))


def _described(pool: Pool, rng: Random) -> Pool:
    """The workers that have a role, in words and in an order that no training has seen."""
    with lab_extra():
        from podium_lab.etudes import ROLES, pool_profiles
    roles = {role: pool[role].model for role in ROLES if role in pool.names}
    drawn = pool_profiles(rng, roles, split="test")
    workers = tuple(
        replace(pool[worker.name], description=worker.description, fallback=None)
        for worker in drawn
    )
    return replace(drawn, workers=workers)


THE_CONDUCTOR: Final = "the conductor"
THE_GRADER: Final = "the grader"
THE_BUDGET: Final = "the budget"
THE_STRATEGY: Final = "the strategy"
NOT_WORKERS: Final = (THE_CONDUCTOR, THE_GRADER, THE_BUDGET, THE_STRATEGY)
"""Who else can be at fault, where it is no worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One task, answered and graded.

    `valid` is whether the plan was carried out as the conductor wrote it, and not something in
    its place because it was malformed. `steps` and `workers` are those of every round,
    `topology` is the first workflow's. `first_right` is whether the first round's answer was
    right, and `accepted` whether the conductor said to take an answer as it was, and not just
    failed to write another plan; both are None where there was no second round. `fault` is the
    first call or plan that failed, if any. `roles` are what the steps are there for, one for
    each of `workers`; `calls` counts those of planning and every retry too. `expected` is the
    task's reference, `difficulty` what its data says of how hard it is, and `judge` the worker
    whose opinion the grade is, where it is one.

    `at_fault` is who failed first: a worker by its name, or one of `NOT_WORKERS`. Of several
    `repeat`s of a task this is the one of that number, from 0. `recalled` counts the calls that
    a kept reply answered: what took `seconds` is known only where there are none. `paid_usd` is
    what this sample itself added to the bill; `cost_usd` is what it would cost without kept
    replies.
    """

    task: str
    kind: str
    skills: int | None
    right: bool
    valid: bool
    workers: tuple[str, ...]
    topology: str
    worker_tokens: int | None
    orchestration_tokens: int | None
    seconds: float
    first_right: bool | None = None
    accepted: bool | None = None
    fault: str | None = None
    roles: tuple[Role, ...] = ()
    calls: int = 0
    cost_usd: float | None = None
    expected: str = ""
    difficulty: str | None = None
    judge: str | None = None
    at_fault: str = ""
    repeat: int = 0
    recalled: int = 0
    paid_usd: float = 0.0

    @property
    def steps(self) -> int:
        """How many steps were planned in all rounds."""
        return len(self.workers)

    def document(self, run: Run) -> dict[str, Any]:
        """The sample with its whole run, as a line of a file."""
        return {**asdict(self), "steps": self.steps, "run": dump(run)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Sample:
        """Read what `document` wrote, less the run. What an older Podium left out is unknown to
        it; what a newer one added is passed over."""
        known = {
            field.name: document[field.name] for field in fields(cls) if field.name in document
        }
        known["workers"] = tuple(known["workers"])
        known["roles"] = tuple(Role(role) for role in known.get("roles", ()))
        return cls(**known)


async def graded(case: Case, run: Run) -> Sample:
    """Grade the run's answer, or its plan where the task says so, and take from the run what
    tables need. A grader that fails counts the answer as wrong, and is at fault."""
    sample = _described_sample(case, run)
    try:
        if case.task.plan_grader is not None:
            planned = run.rounds[0].workflow if sample.valid else None
            return replace(sample, right=planned is not None and case.task.plan_grader(planned))
        sample = replace(sample, right=await _is_right(case, run.answer))
        if len(run.rounds) < 2:
            return sample
        first, last = run.rounds[0].final, run.rounds[-1]
        return replace(
            sample,
            first_right=await _is_right(case, first.reply if first is not None else None),
            accepted=ends_accepted(run.rounds) and _as_written(last, run),
        )
    except Exception as error:  # noqa: BLE001 - whatever somebody's own function raises
        fault = f"the grader raised {type(error).__name__}: {error}"
        return replace(sample, fault=sample.fault or fault, at_fault=sample.at_fault or THE_GRADER)


def _described_sample(case: Case, run: Run) -> Sample:
    """All that there is to say of a run before it is graded."""
    workflows = [round_.workflow for round_ in run.rounds if round_.workflow is not None]
    orchestration = run.orchestration
    return Sample(
        task=case.task.id,
        kind=case.task.kind,
        skills=case.skills,
        right=False,
        valid=bool(run.rounds) and all(_as_written(round_, run) for round_ in run.rounds),
        workers=tuple(step.worker for workflow in workflows for step in workflow.steps),
        topology=workflows[0].shape.value if workflows else "none",
        worker_tokens=_difference(run.usage, orchestration),
        orchestration_tokens=orchestration.total_tokens,
        seconds=run.spent.seconds,
        fault=_fault(run),
        at_fault=_at_fault(run),
        roles=step_roles(run),
        calls=sum(1 for _ in run.calls),
        cost_usd=run.cost_usd,
        expected=case.task.answer,
        difficulty=case.task.difficulty,
        judge=case.task.judge,
    )


async def _is_right(case: Case, answer: str | None) -> bool:
    return answer is not None and await case.task.grader(answer)


def _as_written(round_: Round, run: Run) -> bool:
    """Whether the round is what its plan says; plans that nobody wrote down are taken as read, and
    so is a turn, whose text tells why it was given to whom."""
    if round_.workflow is None and not round_.accepted:
        return False
    if round_.role is not None:
        return True
    if not round_.plan_text:
        return not round_.warnings
    try:
        parsed = plan.parse(
            round_.plan_text,
            run.pool,
            max_steps=run.max_steps,
            may_accept=round_.index > 0,
        )
    except MalformedPlan:
        return False
    return parsed.workflow == round_.workflow


def _fault(run: Run) -> str | None:
    """What failed, in words; also a conductor that could not be reached, though the question was
    answered without its plan. An answer that was cut off at its limit is one all the same."""
    if run.status != "answered" or any(step.status != "done" for step in run.steps):
        return run.error
    planned = (round_.planning[-1].error for round_ in run.rounds if round_.planning)
    return next((error for error in planned if error is not None), None)


def _at_fault(run: Run) -> str:
    """Whose fault it was; nobody's where there is none."""
    if _fault(run) is None:
        return ""
    failed = next((step.worker for step in run.steps if step.status == "failed"), None)
    return failed or (THE_BUDGET if run.status == "exhausted" else THE_CONDUCTOR)


def _difference(whole: Usage, part: Usage) -> int | None:
    if whole.total_tokens is None or part.total_tokens is None:
        return None
    return whole.total_tokens - part.total_tokens
