from __future__ import annotations

import json

import pytest

from podium.core.pool import Pool, WorkerProfile

np = pytest.importorskip("numpy")

from podium.conductors.routing.arrays import Array
from podium.conductors.routing.encoders import HashedEncoder
from podium_lab.routers.masrouter import (
    DECIDE,
    MODES,
    NAMES,
    ROLES,
    Agent,
    MasRouter,
    MasRouterTrainer,
    SampledPlan,
    workflow,
)

POOL = Pool(
    (
        WorkerProfile(name="ann", description="good at verses"),
        WorkerProfile(name="ben", description="good at sums"),
    )
)
QUESTIONS = ("Write a verse about spring", "Add seven and eight", "Write a verse", "Add one")
AGENTS = (Agent("planner", "ann"), Agent("solver", "ben"), Agent("critic", "ann"))


def untaught(seed: int = 0) -> MasRouter:
    return MasRouter.initialize(POOL.names, QUESTIONS, HashedEncoder.fit, seed)


def test_alone_means_one_step_whoever_else_was_drawn() -> None:
    plain = workflow("io", AGENTS, "q", POOL)
    assert [(step.worker, step.subtask) for step in plain.steps] == [("ann", "q")]
    assert len(workflow("cot", AGENTS, "q", POOL)) == 1


@pytest.mark.parametrize(
    ("mode", "reads"),
    [
        ("chain", [(), (0,), (1,), "all"]),
        ("full", [(), (0,), (0, 1), "all"]),
        ("reflection", [(), (0,), (0, 1), "all"]),
        ("debate", [(), (), (), (0, 1, 2), (0, 1, 2), (0, 1, 2), "all"]),
    ],
)
def test_agents_read_each_other_as_their_way_of_working_says(
    mode: str, reads: list[object]
) -> None:
    (known,) = (known for known in MODES if known == mode)
    plan = workflow(known, AGENTS, "q", POOL)
    assert [step.access for step in plan.steps] == reads
    assert (plan.steps[-1].worker, plan.steps[-1].subtask) == ("ann", DECIDE)


def test_where_questions_are_kept_back_subtasks_carry_them() -> None:
    hidden = Pool(POOL.workers, share_question=False)
    plan = workflow("chain", AGENTS, "why?", hidden)
    assert all(step.subtask.endswith("why?") for step in plan.steps)


def test_gradients_are_those_of_small_changes() -> None:
    """The chance of a plan, by changing one weight at a time, with the draws held fixed."""
    router = untaught(3)

    def drawn(weights: dict[str, Array]) -> SampledPlan:
        changed = MasRouter(router.workers, router.encoder, weights)
        return changed.sample(QUESTIONS[0], POOL, np.random.default_rng(5))

    weights: dict[str, Array] = {n: array.astype(np.float64) for n, array in router.weights.items()}
    gradients = drawn(weights).gradients
    rng = np.random.default_rng(0)
    for name in NAMES:
        for _ in range(5):
            place = tuple(int(rng.integers(size)) for size in weights[name].shape)
            moved = {key: array.copy() for key, array in weights.items()}
            moved[name][place] += 1e-5
            up = drawn(moved).chance
            moved[name][place] -= 2e-5
            down = drawn(moved).chance
            assert (up - down) / 2e-5 == pytest.approx(gradients[name][place], abs=1e-3)


def test_it_learns_which_worker_earns() -> None:
    teacher = MasRouterTrainer(untaught())
    rng = np.random.default_rng(0)
    for _ in range(60):
        plans = [teacher.router.sample(question, POOL, rng) for question in QUESTIONS]
        wanted = ["ann" if "verse" in question else "ben" for question in QUESTIONS]
        rewards = [
            float(plan.workflow.steps[-1].worker == worker)
            for plan, worker in zip(plans, wanted, strict=True)
        ]
        teacher.step(plans, rewards)
    assert teacher.router.plan(QUESTIONS[0], POOL).steps[-1].worker == "ann"
    assert teacher.router.plan(QUESTIONS[1], POOL).steps[-1].worker == "ben"


def test_teaching_leaves_the_router_that_it_began_from_alone() -> None:
    router = untaught()
    before = {name: array.copy() for name, array in router.weights.items()}
    teacher = MasRouterTrainer(router)
    rng = np.random.default_rng(0)
    plans = [router.sample(question, POOL, rng) for question in QUESTIONS]
    teacher.step(plans, [1.0, 0.0, 0.0, 0.0])
    assert all(np.array_equal(router.weights[name], before[name]) for name in NAMES)
    assert any(not np.array_equal(teacher.router.weights[n], before[n]) for n in NAMES)


def test_a_worker_that_it_never_met_can_be_chosen_by_its_description() -> None:
    grown = Pool((*POOL.workers, WorkerProfile(name="cid", description="good at everything")))
    rng = np.random.default_rng(0)
    plans = [untaught().sample(QUESTIONS[0], grown, rng).workflow for _ in range(100)]
    assert {"ann", "ben", "cid"} <= {step.worker for plan in plans for step in plan.steps}


def test_every_way_and_every_role_is_tried() -> None:
    rng = np.random.default_rng(0)
    plans = [untaught().sample(QUESTIONS[0], POOL, rng).workflow for _ in range(400)]
    told = {step.subtask for plan in plans for step in plan.steps}
    assert set(ROLES.values()) <= told
    assert {len(plan) for plan in plans} >= {1, 3, 4, 13}


def test_a_router_that_was_written_down_plans_alike() -> None:
    router = untaught()
    again = MasRouter.read(POOL.names, json.loads(json.dumps(router.document())))
    assert [again.plan(q, POOL) for q in QUESTIONS] == [router.plan(q, POOL) for q in QUESTIONS]
