"""What runs of coordinators show."""

from __future__ import annotations

import pytest

from podium.core.errors import UsageError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Usage
from podium.core.run import Attempt, Round, Run, StepRecord, TurnRole
from podium.core.task import Task
from podium.core.workflow import Step, Workflow
from podium_lab.evolution.training import Trial, diagnose_trials

POOL = Pool((WorkerProfile(name="ann"), WorkerProfile(name="bob")))


async def never(answer: str) -> bool:
    raise AssertionError("nothing is graded here")


def trial(
    *turns: tuple[str, TurnRole], right: bool = True, fault: str = "", accepted: bool = False,
    kind: str = "one", tokens: int | None = 3, reply: str = "4",
) -> Trial:  # fmt: skip
    rounds = [
        turn(where, worker, role, tokens, reply) for where, (worker, role) in enumerate(turns)
    ]
    if accepted:
        rounds.append(Round(len(rounds), None, accepts_answer=True))
    run = Run(
        id="run_1", question="q", status="answered", pool=POOL, conductor="evolved",
        created_at="", rounds=tuple(rounds), answer="4",
    )  # fmt: skip
    return Trial(Task(id="1", question="q", grader=never, kind=kind), run, right, fault)


def turn(where: int, worker: str, role: TurnRole, tokens: int | None, reply: str) -> Round:
    step = Step(worker, "q")
    call = Attempt(worker, Usage(1, tokens, 0, 0, 0), 0.0, 0.0, 1.0)
    done = StepRecord(where, 0, worker, "q", (), "done", reply, None, 0.0, 1.0, (call,))
    return Round(where, Workflow((step,)), (done,), role=role)


def test_diagnostics_count_turns_by_worker_and_role() -> None:
    seen = diagnose_trials(
        [
            trial(("ann", "thinker"), ("bob", "worker"), ("bob", "verifier"), accepted=True),
            trial(("bob", "worker"), right=False),
        ],
        best=0.75,
        sigma=0.03,
    )
    assert (seen.accuracy, seen.turns, seen.accepted, seen.tokens) == (0.5, 2.0, 0.5, 6.0)
    assert seen.workers == {"bob": 0.75, "ann": 0.25}
    assert seen.roles == {"worker": 0.5, "thinker": 0.25, "verifier": 0.25}
    metrics = seen.as_metrics()
    assert (metrics["best_candidate"], metrics["sigma"], metrics["rollouts"]) == (0.75, 0.03, 2)
    assert (metrics["worker/bob"], metrics["role/worker"]) == (0.75, 0.5)
    assert "best 0.750  turns 2.00  worker 50% thinker 25% verifier 25%" in str(seen)


def test_a_verifier_accepts_in_the_last_turn_that_there_is() -> None:
    turns: tuple[tuple[str, TurnRole], ...] = (("ann", "worker"), ("bob", "verifier"))
    ended = [trial(*turns, reply=reply) for reply in ("ACCEPT", "REVISE")]
    assert diagnose_trials([*ended, trial(*turns, reply="ACCEPT", accepted=True)]).accepted == 2 / 3


def test_accuracy_is_reported_by_kind() -> None:
    seen = diagnose_trials(
        [trial(("ann", "worker")), trial(("ann", "worker"), right=False, kind="two")]
    )
    assert seen.accuracy_by_kind == {"one": 1.0, "two": 0.0}
    assert "best" not in str(seen)


def test_a_workers_fault_is_neither_right_nor_wrong() -> None:
    seen = diagnose_trials(
        [trial(("ann", "worker")), trial(("ann", "worker"), fault="no such model")]
    )
    assert (seen.accuracy, seen.dropped_share, seen.main_drop_reason) == (1.0, 0.5, "no such model")
    lost = diagnose_trials([trial(("ann", "worker"), fault="no such model")])
    assert (lost.accuracy, lost.samples) == (None, ())
    assert "accuracy" not in lost.as_metrics()


def test_unreported_tokens_are_unknown() -> None:
    seen = diagnose_trials([trial(("ann", "worker")), trial(("ann", "worker"), tokens=None)])
    assert seen.tokens is None


def test_samples_are_of_right_runs_and_of_wrong_ones() -> None:
    wrong = trial(("ann", "thinker"), ("bob", "worker"), right=False)
    seen = diagnose_trials([wrong, *[trial(("ann", "worker"))] * 5])
    assert [sample.right for sample in seen.samples] == [True, True, False]
    assert seen.samples[-1].text == "ann as thinker: 4\nbob as worker: 4"


def test_no_runs_show_nothing() -> None:
    with pytest.raises(UsageError, match="at least one"):
        diagnose_trials([])
