from __future__ import annotations

import pytest

from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.core.roles import Role, infer_role, step_roles
from podium.core.run import Round, Run
from podium.core.workflow import Access, Step, Workflow

ANN, BOB = WorkerProfile(name="ann"), WorkerProfile(name="bob")
LEADER = WorkerProfile(name="leader", provider=CONDUCTOR_PROVIDER)


def run_of(*rounds: Workflow | None, question: str = "What is six times seven?") -> Run:
    return Run(
        id="r",
        question=question,
        status="answered",
        pool=Pool((ANN, BOB, LEADER)),
        conductor="c",
        created_at="2026-01-01",
        rounds=tuple(Round(index, workflow) for index, workflow in enumerate(rounds)),
    )


def workflow(*steps: tuple[str, Access]) -> Workflow:
    return Workflow(tuple(Step("ann", subtask, access) for subtask, access in steps))


@pytest.mark.parametrize(
    ("subtask", "reads", "role"),
    [
        ("Describe an algorithm for this and list every edge case. Write no code.", 0, Role.PLAN),
        ("Outline how to solve the problem, without solving it.", 0, Role.PLAN),
        ("Break the problem into parts and say what each needs.", 0, Role.PLAN),
        ("Count the arrangements directly: seat one first.", 0, Role.SOLVE),
        ("Write the function after the given algorithm.", 1, Role.SOLVE),
        ("Go through the code with each edge case and correct what is wrong.", 1, Role.VERIFY),
        ("Check every number of the calculation, units included.", 1, Role.VERIFY),
        ("revise the answer", 3, Role.VERIFY),
        ("Compare the two counts. If they differ, find the mistake.", 2, Role.AGGREGATE),
        ("put the responses together", 7, Role.AGGREGATE),
        ("Write the subtasks for three other models and who does each.", 0, Role.HAND_OVER),
        ("Decide which model should solve each part of this.", 0, Role.HAND_OVER),
    ],
)
def test_a_subtask_is_read_by_its_first_words(subtask: str, reads: int, role: Role) -> None:
    assert infer_role(subtask, reads=reads, is_last=False) is role


def test_a_step_that_reads_nothing_neither_verifies_nor_aggregates() -> None:
    assert infer_role("Check whether 91 is prime.", reads=0, is_last=False) is Role.SOLVE
    assert infer_role("Compare the two rivers.", reads=1, is_last=False) is Role.SOLVE


def test_a_last_step_answers_and_does_not_plan() -> None:
    assert infer_role("Plan the journey.", reads=0, is_last=False) is Role.PLAN
    assert infer_role("Plan the journey.", reads=0, is_last=True) is Role.SOLVE


def test_the_question_itself_as_a_subtask_is_there_to_solve() -> None:
    asked = run_of(
        workflow(("Plan a week in Rome. ", ()), ("Check it", (0,))), question="plan a week in Rome."
    )
    assert step_roles(asked) == (Role.SOLVE, Role.VERIFY)


def test_a_step_of_a_conductor_hands_planning_over_whatever_it_says() -> None:
    nested = Workflow((Step("leader", "Check it"), Step("bob", "Answer", (0,))))
    assert step_roles(run_of(nested)) == (Role.HAND_OVER, Role.SOLVE)


def test_from_the_second_round_on_all_means_the_round_before_as_well() -> None:
    first = workflow(("Multiply.", ()), ("Multiply again.", ()))
    second = workflow(("Compare the attempts and answer.", "all"))
    assert step_roles(run_of(second)) == (Role.SOLVE,)
    assert step_roles(run_of(first, second)) == (Role.SOLVE, Role.SOLVE, Role.AGGREGATE)


def test_a_round_that_accepts_has_no_steps_and_so_no_roles() -> None:
    assert step_roles(run_of(workflow(("Multiply.", ())), None)) == (Role.SOLVE,)
