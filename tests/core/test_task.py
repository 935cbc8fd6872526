from __future__ import annotations

from dataclasses import replace

from podium.core.run import Round
from podium.core.task import JudgedRun, worker_outcome
from support.runs_on_record import attempt, kept_run, round_of, step_record


def test_single_worker_runs_are_that_workers_outcome() -> None:
    calls = (attempt("solver", error="busy", cost=9.0), attempt("solver", cost=0.25))
    run = kept_run(rounds=(round_of(step_record(0, attempts=calls)),))
    outcome = worker_outcome(JudgedRun(run=run, reward=0.5, source="feedback"))
    assert outcome is not None
    assert outcome.to_json() == {
        "question": "Question 0?",
        "worker": "solver",
        "model": "solver",
        "reward": 0.5,
        "cost": 0.25,
        "output_tokens": 10,
        "source": "feedback",
    }


def test_an_answer_that_the_conductor_accepted_is_still_one_workers() -> None:
    run = kept_run(rounds=(round_of(step_record(0)), Round(1, None, accepts_answer=True)))
    assert worker_outcome(JudgedRun(run=run, reward=1.0, source="feedback")) is not None


def test_the_reward_goes_to_the_fallback_that_answered() -> None:
    calls = (attempt("solver", error="away"), attempt("local", cost=None))
    run = kept_run(rounds=(round_of(step_record(0, attempts=calls, answered_by="local")),))
    outcome = worker_outcome(JudgedRun(run=run, reward=1.0, source="feedback"))
    assert outcome is not None
    assert (outcome.worker, outcome.cost) == ("local", None)


def test_rewards_of_several_steps_belong_to_no_single_worker() -> None:
    alone = step_record(0)
    several = (
        (round_of(step_record(0), step_record(1)),),
        (round_of(alone), round_of(alone, index=1)),
        (round_of(alone, planned=2),),
        (round_of(replace(alone, nested=(kept_run(1),))),),
        (),
    )
    for rounds in several:
        assert (
            worker_outcome(JudgedRun(run=kept_run(rounds=rounds), reward=1, source="feedback"))
            is None
        )
