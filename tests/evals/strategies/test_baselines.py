from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from evals.support import case_of, context_of
from podium.core.budget import Budget
from podium.core.errors import Unavailable
from podium.core.request import Request
from podium.engine.runner import Options
from podium.evals.strategies.conducting import (
    MAX_REVISIONS,
    PLACEMENTS,
    RANDOM_WORKER,
    TEMPERATURE,
    Placement,
    best_of_n,
    majority_vote,
    mixture_of_agents,
    normalise_answer,
    self_consistency,
    self_reflection,
    single_worker,
)
from podium.workers.scripted import ScriptedWorker
from podium_lab.etudes.values import UNSURE
from support.harness import FakeWorker

mixture = mixture_of_agents(RANDOM_WORKER, "system")
QUESTION = "What is six times seven?"


async def test_single_calls_one_worker_with_the_bare_question() -> None:
    workers = [ScriptedWorker("chosen", "42"), ScriptedWorker("other", "41")]
    run = await single_worker("chosen")(case_of(QUESTION, "42", workers), context_of(workers))
    assert (run.answer, run.status, run.conductor) == ("42", "answered", "single:chosen")
    assert [message.text for message in workers[0].requests[0].messages] == [QUESTION]
    assert workers[1].calls == 0
    assert [(step.worker, step.reply) for step in run.steps] == [("chosen", "42")]


async def test_a_worker_that_fails_leaves_a_failed_run_with_the_reason() -> None:
    workers = [ScriptedWorker("chosen", Unavailable("gone fishing"))]
    run = await single_worker("chosen")(case_of(QUESTION, "42", workers), context_of(workers))
    assert (run.answer, run.status, run.error) == (None, "failed", "gone fishing")
    assert [step.status for step in run.steps] == ["failed"]


async def test_calls_keep_to_the_budget_of_a_run() -> None:
    workers = [ScriptedWorker(name, "42") for name in "abc"]
    tight = replace(context_of(workers), options=Options(budget=Budget(calls=2)))
    run = await majority_vote(case_of(QUESTION, "42", workers), tight)
    assert sum(worker.calls for worker in workers) == 2
    assert run.answer == "42"
    assert run.error is not None
    assert "the cap on calls is 2" in run.error


async def test_a_call_ends_when_the_time_of_the_run_is_over() -> None:
    fake = FakeWorker("slow")
    fake.gate = asyncio.Event()
    context = replace(context_of([fake]), options=Options(budget=Budget(seconds=0.01)))
    run = await single_worker("slow")(case_of(QUESTION, "42", [fake]), context)
    assert run.answer is None
    assert run.error == "the run's budget is spent: the cap on seconds is 0.01"


async def test_the_most_frequent_answer_wins_however_it_is_written() -> None:
    replies = ["41", "Forty two.", "43", " forty  TWO ", "**forty two**"]
    workers = [ScriptedWorker(f"w{n}", reply) for n, reply in enumerate(replies)]
    run = await majority_vote(case_of(QUESTION, "", workers), context_of(workers))
    assert run.answer == "Forty two."


async def test_an_unsure_answer_does_not_vote() -> None:
    workers = [ScriptedWorker(f"w{n}", reply) for n, reply in enumerate([UNSURE, UNSURE, "42"])]
    run = await majority_vote(case_of(QUESTION, "42", workers), context_of(workers))
    assert run.answer == "42"


async def test_without_any_vote_the_answer_is_unsure() -> None:
    workers = [ScriptedWorker(f"w{n}", UNSURE) for n in range(2)]
    run = await majority_vote(case_of(QUESTION, "42", workers), context_of(workers))
    assert run.answer == UNSURE


async def test_of_equally_frequent_answers_the_first_workers_counts() -> None:
    workers = [ScriptedWorker(f"w{n}", reply) for n, reply in enumerate(["a", "b", "b", "a"])]
    run = await majority_vote(case_of(QUESTION, "", workers), context_of(workers))
    assert run.answer == "a"


async def test_a_mixture_shows_every_response_to_one_aggregator() -> None:
    def says(name: str) -> ScriptedWorker:
        return ScriptedWorker(
            name, lambda request: "put together" if len(request.messages) > 1 else f"by {name}"
        )

    workers = [says(name) for name in ("ann", "ben", "cid")]
    run = await mixture(case_of(QUESTION, "", workers), context_of(workers))
    assert run.answer == "put together"
    assert sum(worker.calls for worker in workers) == 4
    (last,) = [request for worker in workers for request in worker.requests if _is_second(request)]
    instruction, question = last.messages
    assert "1. by ann\n2. by ben\n3. by cid" in instruction.text
    assert question.text == QUESTION
    assert run.steps[-1].access == (0, 1, 2)


@pytest.mark.parametrize("placement", PLACEMENTS)
async def test_an_aggregator_by_name_reads_everything_in_either_form(placement: Placement) -> None:
    workers = [ScriptedWorker(name, f"by {name}") for name in ("ann", "ben")]
    case = case_of(QUESTION, "", workers)
    run = await mixture_of_agents("ben", placement)(case, context_of(workers))
    assert run.steps[-1].worker == "ben"
    last = workers[1].requests[-1]
    assert [message.role for message in last.messages] == (
        ["user"] if placement == "message" else ["system", "user"]
    )
    assert "1. by ann\n2. by ben" in last.text
    assert last.messages[-1].text.endswith(QUESTION)


async def test_without_a_system_message_all_attempts_are_in_one_message() -> None:
    worker = ScriptedWorker("ann", ["41", "42", "42"])
    await self_reflection("ann", "message")(case_of(QUESTION, "42", [worker]), context_of([worker]))
    (shown,) = worker.requests[-1].messages
    assert "1. 41\n2. 42" in shown.text
    assert shown.text.endswith(QUESTION)


async def test_the_aggregator_changes_with_the_task_and_not_with_the_repetition() -> None:
    workers = [ScriptedWorker(name, "42") for name in ("ann", "ben", "cid")]

    async def aggregators(seed: int) -> list[str]:
        runs = [
            await mixture(case_of(f"{n}?", "", workers), context_of(workers, seed))
            for n in range(20)
        ]
        return [run.steps[-1].worker for run in runs]

    first = await aggregators(1)
    assert set(first) == {"ann", "ben", "cid"}
    assert await aggregators(1) == first
    assert await aggregators(2) != first


async def test_of_three_layers_the_second_answers_again_and_the_third_puts_together() -> None:
    def says(request: Request) -> str:
        return (
            "again"
            if "1. first" in request.text
            else "last"
            if "again" in request.text
            else "first"
        )

    workers = [ScriptedWorker(name, says) for name in ("ann", "ben")]
    case = case_of(QUESTION, "", workers)
    run = await mixture_of_agents("ben", "system", layers=3)(case, context_of(workers))
    assert [step.reply for step in run.steps] == ["first", "first", "again", "again", "last"]
    assert [step.access for step in run.steps] == [(), (), (0, 1), (0, 1), (2, 3)]
    assert (run.answer, run.conductor) == ("last", "moa-3")
    asked = [request for worker in workers for request in worker.requests]
    assert {(request.temperature, request.max_tokens) for request in asked} == {(TEMPERATURE, 2048)}


async def test_a_layer_in_which_everyone_fails_leaves_the_responses_of_the_one_before() -> None:
    def says(request: Request) -> str | Unavailable:
        if len(request.messages) == 1:
            return "first"
        return "put together" if worker.calls > 2 else Unavailable("busy")

    worker = ScriptedWorker("ann", says)
    case = case_of(QUESTION, "", [worker])
    run = await mixture_of_agents("ann", "system", layers=3)(case, context_of([worker]))
    assert run.answer == "put together"
    assert "1. first" in worker.requests[-1].text


async def test_draws_of_one_worker_differ_in_their_seed_and_the_most_frequent_counts() -> None:
    worker = ScriptedWorker("ann", ["41", "42", "43", "42", "40"])
    run = await self_consistency("ann", 5)(case_of(QUESTION, "42", [worker]), context_of([worker]))
    assert (run.answer, run.conductor) == ("42", "majority-5:ann")
    assert [request.seed for request in worker.requests] == [0, 1, 2, 3, 4]
    assert {request.temperature for request in worker.requests} == {TEMPERATURE}


async def test_another_repeat_makes_other_draws() -> None:
    worker = ScriptedWorker("ann", "42")
    again = replace(context_of([worker]), repeat=2)
    await self_consistency("ann", 3)(case_of(QUESTION, "42", [worker]), again)
    assert [request.seed for request in worker.requests] == [6, 7, 8]


async def test_tagged_answers_are_voted_on() -> None:
    replies = ["First, … <answer>42</answer>", "<answer>41</answer>", "So: <answer> 42 </answer>"]
    worker = ScriptedWorker("ann", replies)
    run = await self_consistency("ann", 3)(case_of(QUESTION, "42", [worker]), context_of([worker]))
    assert run.answer == replies[0]


@pytest.mark.parametrize(
    ("choice", "answer"), [("2", "42"), ("Number 3.", "43"), ("none", "41"), ("7", "41")]
)
async def test_the_worker_itself_chooses_the_best_of_its_answers(choice: str, answer: str) -> None:
    worker = ScriptedWorker("ann", ["41", "42", "43", choice])
    run = await best_of_n("ann", 3)(case_of(QUESTION, "42", [worker]), context_of([worker]))
    assert run.answer == answer
    assert "1. 41\n2. 42\n3. 43" in worker.requests[-1].text
    assert worker.calls == 4


async def test_nothing_is_chosen_where_all_answers_are_the_same() -> None:
    worker = ScriptedWorker("ann", "42")
    run = await best_of_n("ann", 3)(case_of(QUESTION, "42", [worker]), context_of([worker]))
    assert (run.answer, worker.calls) == ("42", 3)


async def test_a_worker_without_answers_has_no_best_answer() -> None:
    worker = ScriptedWorker("ann", Unavailable("gone"))
    run = await best_of_n("ann", 2)(case_of(QUESTION, "42", [worker]), context_of([worker]))
    assert (run.answer, run.status) == (None, "failed")


async def test_a_mixture_continues_without_a_proposer_that_fails() -> None:
    workers = [ScriptedWorker("ann", Unavailable("gone")), ScriptedWorker("ben", "42")]
    cases = [case_of(f"{n}?", "", workers) for n in range(8)]
    runs = [await mixture(case, context_of(workers)) for case in cases]
    answered = [run for run in runs if run.steps[-1].worker == "ben"]
    assert answered
    assert all(run.answer == "42" and run.error == "gone" for run in answered)
    shown = [request.messages[0].text for request in workers[1].requests if _is_second(request)]
    assert all("1. 42" in text and "2." not in text for text in shown)


async def test_reflection_ends_once_the_worker_repeats_itself() -> None:
    worker = ScriptedWorker("ann", ["41", "42", "42.", "never asked"])
    run = await self_reflection("ann", "system")(
        case_of(QUESTION, "42", [worker]), context_of([worker])
    )
    assert run.answer == "42."
    assert worker.calls == 3


async def test_reflection_revises_five_times_at_most_with_all_attempts_before_its_eyes() -> None:
    worker = ScriptedWorker("ann", [f"try {n}" for n in range(20)])
    run = await self_reflection("ann", "system")(
        case_of(QUESTION, "42", [worker]), context_of([worker])
    )
    assert worker.calls == 1 + MAX_REVISIONS == 6
    assert run.answer == "try 5"
    first, *revisions = worker.requests
    assert [message.text for message in first.messages] == [QUESTION]
    for count, request in enumerate(revisions, start=1):
        shown = "\n".join(f"{n + 1}. try {n}" for n in range(count))
        assert request.messages[0].text.endswith(shown)
        assert request.messages[1].text == QUESTION


async def test_reflection_keeps_its_last_attempt_where_a_revision_fails() -> None:
    worker = ScriptedWorker("ann", ["41", Unavailable("gone")])
    run = await self_reflection("ann", "system")(
        case_of(QUESTION, "42", [worker]), context_of([worker])
    )
    assert (run.answer, run.error) == ("41", "gone")


def test_votes_are_counted_without_case_space_and_wrapping() -> None:
    assert normalise_answer(" **The  Moon**. ") == normalise_answer("the moon") == "the moon"
    assert normalise_answer("-5") != normalise_answer("5")


def _is_second(request: Request) -> bool:
    return len(request.messages) == 2
