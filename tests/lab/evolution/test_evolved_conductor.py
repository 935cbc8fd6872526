"""Runs that an evolved conductor leads, through the runner and the engine as they are."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

import numpy as np

from podium.core.errors import RequestRefused
from podium.core.events import Event, StepDelta
from podium.core.pool import WorkerProfile
from podium.core.request import ResponseOptions, Tool
from podium.core.run import Run, TurnRole, dump, load
from podium.engine.guardrails import Guardrail, GuardrailInput, Pass, Verdict
from podium.engine.requests import replay_request
from podium.engine.runner import Options, Runner
from podium.workers import ScriptedWorker
from podium_lab.evolution.coordinator import EvolvedConductor
from support.evolved import Reading, coordinator

QUESTION = "What is 6 times 7?"


async def led(
    *choices: tuple[str, TurnRole],
    ann: ScriptedWorker | str = "42",
    bob: ScriptedWorker | str = "ACCEPT",
    rounds: int = 5,
    reading: Reading | None = None,
    **options: object,
) -> Run:
    workers = [
        worker if isinstance(worker, ScriptedWorker) else ScriptedWorker(name, worker)
        for name, worker in (("ann", ann), ("bob", bob))
    ]
    conductor = EvolvedConductor(coordinator(), reading or Reading(*choices))
    return await Runner(conductor, workers).run(
        QUESTION,
        options=Options(rounds=rounds, **options),  # type: ignore[arg-type]
    )


def turns(run: Run) -> list[tuple[str, str]]:
    return [(step.worker, run.rounds[step.round].role or "") for step in run.steps]


async def test_the_coordinator_picks_worker_and_role_and_the_verifier_ends_the_run() -> None:
    run = await led(("bob", "thinker"), ("ann", "worker"), ("bob", "verifier"))
    assert turns(run) == [("bob", "thinker"), ("ann", "worker"), ("bob", "verifier")]
    assert run.rounds[-1].accepts_answer
    assert (run.status, run.answer) == ("answered", "42")
    assert run.conductor == f"evolved({coordinator().fingerprint})"
    assert run.rounds[0].plan_text.startswith("bob as thinker\nann 12%, bob 88%\n")


async def test_a_verifier_that_revises_has_the_work_repeated() -> None:
    run = await led(
        ("ann", "worker"),
        ("bob", "verifier"),
        ("ann", "worker"),
        ann=ScriptedWorker("ann", ["41", "42"]),
        bob=ScriptedWorker("bob", ["REVISE\nIt is one more.", "ACCEPT"]),
        rounds=3,
    )
    assert (run.answer, len(run.rounds), run.rounds[-1].accepts_answer) == ("42", 3, False)


async def test_the_answer_is_the_latest_workers_output_whatever_the_last_turn() -> None:
    run = await led(("ann", "worker"), ("bob", "thinker"), bob="Try again.", rounds=3)
    assert [role for _, role in turns(run)] == ["worker", "thinker", "thinker"]
    assert (run.status, run.answer, run.final_reply.finish) == ("answered", "42", "stop")
    assert load(dump(run)) == run


async def test_a_worker_with_another_model_than_in_training_is_not_chosen() -> None:
    trained = coordinator(models=("small", "large"))
    workers = [
        ScriptedWorker(WorkerProfile(name="ann", model="small"), "42"),
        ScriptedWorker(WorkerProfile(name="bob", model="larger"), "43"),
    ]
    conductor = EvolvedConductor(trained, Reading(("bob", "worker")))
    run = await Runner(conductor, workers).run(QUESTION, options=Options(rounds=1))
    assert (run.answer, [step.worker for step in run.steps]) == ("42", ["ann"])


async def test_the_frozen_model_reads_the_raw_transcript() -> None:
    reading = Reading(("ann", "worker"), ("bob", "verifier"))
    await led(reading=reading, bob="REVISE", rounds=3)
    assert reading.transcripts == [
        f"user: {QUESTION}\n",
        f"user: {QUESTION}\nworker: 42\n",
        f"user: {QUESTION}\nworker: 42\nverifier: REVISE\n",
    ]


async def test_a_turn_sees_the_question_and_all_earlier_outputs() -> None:
    ann = ScriptedWorker("ann", ["Multiply.", "41", "42"])
    run = await led(
        ("ann", "thinker"), ("ann", "worker"), ("bob", "verifier"), ann=ann, bob="REVISE", rounds=3
    )
    prompt = run.steps[2].prompt
    assert QUESTION in prompt
    assert '<reply step="thinker of turn 1">\nMultiply.\n</reply>' in prompt
    assert '<reply step="worker of turn 2">\n41\n</reply>' in prompt


async def test_the_first_worker_sees_only_the_question() -> None:
    run = await led(("ann", "worker"), rounds=1)
    assert run.steps[0].prompt == QUESTION


async def test_only_a_workers_turn_gets_the_response_options() -> None:
    ann = ScriptedWorker("ann", "42")
    run = await led(
        ("ann", "thinker"),
        ("ann", "worker"),
        ann=ann,
        rounds=2,
        response_options=ResponseOptions(max_tokens=7),
    )
    values = ["goes to the user as the answer" in step.prompt for step in run.steps]
    assert values == [False, True]
    assert [request.max_tokens for request in ann.requests] == [None, 7]


async def test_only_a_workers_words_are_streamed() -> None:
    events: list[Event] = []
    conductor = EvolvedConductor(coordinator(), Reading(("ann", "thinker"), ("ann", "worker")))
    workers = [ScriptedWorker(name, f"{name} says so") for name in ("ann", "bob")]
    await Runner(conductor, workers).run(
        QUESTION, options=Options(rounds=2), emit=events.append, stream=True
    )
    assert {event.round for event in events if isinstance(event, StepDelta)} == {1}


async def test_a_thinker_may_suggest_the_next_role() -> None:
    run = await led(
        ("ann", "worker"),
        ("bob", "thinker"),
        ("bob", "worker"),
        bob=ScriptedWorker("bob", ["Somebody must check.\n**NEXT: VERIFIER**", "ACCEPT"]),
    )
    assert turns(run) == [("ann", "worker"), ("bob", "thinker"), ("bob", "verifier")]
    assert run.rounds[2].plan_text.endswith("the thinker suggested it")


async def test_no_verifier_comes_before_a_worker() -> None:
    run = await led(("bob", "verifier"), ("bob", "verifier"), bob="ACCEPT", rounds=2)
    assert turns(run)[0][1] != "verifier"
    assert run.answer == "ACCEPT"  # of the last turn, which is a worker's


async def test_the_last_turn_is_a_workers_where_there_was_none() -> None:
    run = await led(("ann", "thinker"), ann=ScriptedWorker("ann", ["Hm.", "Hm.", "42"]), rounds=3)
    assert [role for _, role in turns(run)] == ["thinker", "thinker", "worker"]
    assert (run.status, run.answer) == ("answered", "42")


async def test_a_worker_that_failed_is_passed_over() -> None:
    broken = ScriptedWorker("ann", RequestRefused("no"))
    run = await led(("ann", "worker"), ("ann", "worker"), ann=broken, bob="42", rounds=2)
    assert turns(run) == [("ann", "worker"), ("bob", "worker")]
    assert (run.status, run.answer) == ("answered", "42")


async def test_a_worker_that_a_run_excludes_is_not_chosen() -> None:
    run = await led(("ann", "worker"), bob="42", rounds=1, exclude=frozenset({"ann"}))
    assert turns(run) == [("bob", "worker")]


async def test_a_run_without_any_worker_to_choose_fails_with_a_reason() -> None:
    conductor = EvolvedConductor(coordinator(), Reading(("ann", "worker")))
    run = await Runner(conductor, [ScriptedWorker("cat", "42")]).run(QUESTION)
    assert run.status == "failed"
    assert run.error == (
        "the coordinator chooses among ann, bob, and this run may use none of them; exclude fewer "
        "workers"
    )


async def test_a_pool_in_another_order_is_matched_by_name() -> None:
    conductor = EvolvedConductor(coordinator(), Reading(("bob", "worker")))
    workers = [ScriptedWorker("bob", "bob's"), ScriptedWorker("ann", "ann's")]
    assert (await Runner(conductor, workers).run(QUESTION)).answer == "bob's"


async def test_choices_are_drawn_where_there_is_a_generator() -> None:
    conductor = EvolvedConductor(
        coordinator(), Reading(("ann", "worker")), generator=np.random.default_rng(1)
    )
    workers = [ScriptedWorker("ann", "ann"), ScriptedWorker("bob", "bob")]
    drawn = {(await Runner(conductor, workers).run(QUESTION)).answer for _ in range(40)}
    assert drawn == {"ann", "bob"}


async def test_a_run_that_was_cut_off_continues_with_its_turn() -> None:
    whole = await led(("ann", "worker"), ("bob", "verifier"))
    cut = Run(
        **{
            **{name: getattr(whole, name) for name in ("id", "question", "pool", "conductor")},
            "created_at": whole.created_at,
            "status": "interrupted",
            "max_rounds": 5,
            "rounds": whole.rounds[:1],
        }
    )
    reading = Reading(("bob", "verifier"))
    conductor = EvolvedConductor(coordinator(), reading)
    ann = ScriptedWorker("ann", "not again")
    run = await Runner(conductor, [ann, ScriptedWorker("bob", "ACCEPT")]).resume(load(dump(cut)))
    assert (ann.calls, run.answer, run.rounds[1].role) == (0, "42", "verifier")
    assert run.rounds[-1].accepts_answer


async def test_a_worker_that_does_not_see_the_question_gets_it_in_its_subtask() -> None:
    conductor = EvolvedConductor(
        coordinator(), Reading(("ann", "thinker"), ("ann", "worker"), ("bob", "verifier"))
    )
    workers = [ScriptedWorker("ann", "42"), ScriptedWorker("bob", "ACCEPT")]
    runner = Runner(conductor, workers)
    runner.pool = type(runner.pool)(runner.pool.workers, share_question=False)
    run = await runner.run(QUESTION, options=Options(rounds=3))
    subtasks = [step.subtask for step in run.steps]
    assert subtasks[0].endswith(f"The question is:\n{QUESTION}")
    assert subtasks[1] == QUESTION
    assert subtasks[2].endswith(f"The question is:\n{QUESTION}")


async def test_without_roles_every_turn_is_a_workers() -> None:
    reading = Reading(("ann", "worker"))
    conductor = EvolvedConductor(coordinator(roles=(), width=5), reading)
    workers = [ScriptedWorker("ann", ["41", "42"]), ScriptedWorker("bob", "no")]
    run = await Runner(conductor, workers).run(QUESTION, options=Options(rounds=2))
    assert ([role for _, role in turns(run)], run.answer) == (["worker", "worker"], "42")


async def test_request_requirements_apply_to_workers_alone() -> None:
    tools = (Tool("look", "Looks it up", {"type": "object"}),)
    able = WorkerProfile(name="bob", capabilities=frozenset({"tools", "json"}))
    workers = [ScriptedWorker("ann", "Hm."), ScriptedWorker(able, '{"it": 42}')]
    conductor = EvolvedConductor(coordinator(), Reading(("ann", "thinker"), ("ann", "worker")))
    response_options = ResponseOptions(schema={"type": "object"}, tools=tools, tool_choice="none")
    run = await Runner(conductor, workers).run(
        QUESTION, options=Options(rounds=2, response_options=response_options)
    )
    assert turns(run) == [("ann", "thinker"), ("bob", "worker")]
    assert run.answer == '{"it": 42}'
    asked = [replay_request(run, run.rounds[step.round], step) for step in run.steps]
    assert [request.schema if request else None for request in asked] == [
        None,
        response_options.schema,
    ]


async def test_guardrails_look_at_an_answer_with_every_earlier_turn_as_its_source() -> None:
    sources: list[list[str]] = []

    def look(checked: GuardrailInput) -> Verdict:
        sources.append([source.step for source in checked.sources])
        return Pass()

    conductor = EvolvedConductor(
        coordinator(), Reading(("bob", "thinker"), ("bob", "thinker"), ("ann", "worker"))
    )
    workers = [ScriptedWorker("ann", "42"), ScriptedWorker("bob", "Hm.")]
    guardrail = Guardrail("seen", look, ("answer",))
    run = await Runner(conductor, workers, guardrails=[guardrail]).run(
        QUESTION, options=Options(rounds=3)
    )
    assert (run.answer, sources) == ("42", [["thinker of turn 1", "thinker of turn 2"]])


async def test_a_preview_is_the_first_turn_of_the_run_that_would_follow() -> None:
    conductor = EvolvedConductor(coordinator(), Reading(("ann", "thinker")))
    runner = Runner(conductor, [ScriptedWorker(name, "42") for name in ("ann", "bob")])
    roles = [
        (await runner.plan(QUESTION, options=Options(rounds=rounds))).role for rounds in (1, 5)
    ]
    assert roles == ["worker", "thinker"]
