from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podium.conductors.prompt import Prompt
from podium.core.errors import ConfigError
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Tool, assistant, system, user
from podium.core.run import GuardrailCheck, Run
from podium.core.task import JudgedRun
from podium.server.access.keys import make_key
from podium.store import Feedback, RunStore, correction_task, open_store
from podium.store.keys import Rules
from podium.tasks import TaskRecord, read_records, save_suite
from podium.train import run_data as use
from podium.train.examples import file_examples
from podium.train.run_data import RunDataset, judged_runs
from support.runs_on_record import NOON, kept_run, round_of, step_record


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RunStore]:
    opened = await open_store(tmp_path / "runs.db")
    yield opened
    await opened.close()


async def judge(store: RunStore, run: Run, score: float = 1.0, **more: Any) -> None:
    await store.finish(run)
    given = Feedback(run_id=run.id, score=score, given_at=NOON, **more)
    await store.feedback.save(given)


async def found_in(store: RunStore) -> tuple[list[JudgedRun], Counter[str]]:
    left_out = Counter[str]()
    return [judged async for judged in judged_runs(store, left_out)], left_out


def judged(run: Run, reward: float = 1.0, **more: Any) -> JudgedRun:
    return JudgedRun(**{"run": run, "reward": reward, "source": "feedback", **more})


def taken(*given: JudgedRun) -> RunDataset:
    dataset = RunDataset()
    for item in given:
        dataset.take(item)
    return dataset


async def test_only_runs_that_were_judged_are_learned_from(store: RunStore) -> None:
    await store.finish(kept_run(0))
    await judge(store, kept_run(1), 0.25)
    await judge(store, kept_run(2), grader="exact", task="{}")
    (thumb, graded), left_out = await found_in(store)
    assert (thumb.run.id, thumb.reward, thumb.source) == (kept_run(1).id, 0.25, "feedback")
    assert (graded.source, graded.task) == ("grader:exact", "{}")
    assert not left_out


async def test_revoked_keys_still_exclude_their_runs_from_training(
    store: RunStore,
) -> None:
    keys = {
        name: make_key(name, rules).key
        for name, rules in {
            "open": Rules(),
            "closed": Rules(training=False),
            "wary": Rules(exclude=frozenset({"anthropic"})),
        }.items()
    }
    for key in keys.values():
        await store.keys.add(key)
    await store.keys.revoke(keys["closed"].id)
    for number, owner in enumerate([*(key.id for key in keys.values()), "key_unknown"]):
        await judge(store, kept_run(number, owner=owner))
    found, left_out = await found_in(store)
    assert [(item.run.owner, item.has_exclusions) for item in found] == [
        (keys["open"].id, False),
        (keys["wary"].id, True),
    ]
    assert left_out == {use.TRAINING_DISABLED: 1, use.UNKNOWN_KEY: 1}


async def test_changed_key_rules_apply_to_earlier_runs(store: RunStore) -> None:
    key = make_key("Ada", Rules()).key
    await store.keys.add(key)
    await judge(store, kept_run(owner=key.id))
    for allowed in (False, True):
        await store.keys.change(replace(key, rules=Rules(training=allowed)))
        found, left_out = await found_in(store)
        assert (len(found), left_out[use.TRAINING_DISABLED]) == (int(allowed), int(not allowed))


REDACTED = GuardrailCheck(guardrail="pii", stage="reply", action="redacted", step=0)
NOTED = GuardrailCheck(guardrail="pii", stage="reply", action="noted", step=0)


async def test_runs_that_failed_or_lost_words_to_a_guardrail_are_left_out(store: RunStore) -> None:
    await judge(store, kept_run(0, status="failed", answer=None), 0.0)
    await judge(
        store, kept_run(1, guardrail_checks=(replace(REDACTED, stage="question", step=None),))
    )
    await judge(
        store, kept_run(2, rounds=(round_of(step_record(0, guardrail_checks=(REDACTED,))),))
    )
    await judge(store, kept_run(3, rounds=(round_of(step_record(0, guardrail_checks=(NOTED,))),)))
    found, left_out = await found_in(store)
    assert [item.run.id for item in found] == [kept_run(3).id]
    assert left_out == {use.UNANSWERED: 1, use.REDACTED: 2}


async def test_an_unreadable_run_affects_no_other(store: RunStore, tmp_path: Path) -> None:
    import sqlite3

    for number in range(2):
        await judge(store, kept_run(number))
    with sqlite3.connect(tmp_path / "runs.db") as database:
        database.execute("UPDATE runs SET document = '{}' WHERE id = ?", [kept_run(0).id])
    database.close()
    found, left_out = await found_in(store)
    assert ([item.run.id for item in found], left_out) == ([kept_run(1).id], {use.UNREADABLE: 1})


def test_one_step_teaches_the_router_and_several_the_conductor_alone() -> None:
    several = kept_run(1, rounds=(round_of(step_record(0), step_record(1)),), answer="42")
    dataset = taken(judged(kept_run(0)), judged(several))
    assert [outcome.question for outcome in dataset.outcomes] == ["Question 0?"]
    assert dataset.unused["outcomes"] == {use.SEVERAL_STEPS: 1}
    assert "Question 1?" in [task.question for task in dataset.tasks]
    assert len(dataset.plans) == 2


TOOL = Tool(name="search", description="", parameters={})


def test_a_question_that_does_not_stand_by_itself_is_no_outcome_and_no_task() -> None:
    chat = kept_run(0, history=(user("Hello"), assistant("Hi")))
    tools = kept_run(1, response_options=replace(DEFAULT_RESPONSE_OPTIONS, tools=(TOOL,)))
    messages = kept_run(2, history=(system("Answer briefly."),))
    dataset = taken(judged(chat), judged(tools), judged(messages))
    assert [outcome.question for outcome in dataset.outcomes] == ["Question 2?"]
    assert dataset.unused["outcomes"] == {use.NEEDS_CONTEXT: 2}
    assert dataset.unused["tasks"] == {use.NEEDS_CONTEXT: 3}


def test_excluded_questions_become_no_tasks() -> None:
    dataset = taken(judged(kept_run(0), has_exclusions=True))
    assert (dataset.tasks, dataset.unused["tasks"]) == ([], {use.WORKER_EXCLUDED: 1})
    assert len(dataset.outcomes) == 1


@pytest.mark.parametrize(
    ("answer", "reward", "reference"),
    [
        ("42", 1.0, "42"),
        ("After much thought: <answer>42</answer>, I think.", 0.75, "42"),
        ("42", 0.5, None),
        ("It depends on what you take for an answer, and on many other things.", 1.0, None),
        ("four\ntwo", 1.0, None),
        ("The capital of Japan is Tokyo.", 1.0, None),
        ("It is Tokyo.", 1.0, None),
        ("the capital is Tokyo", 1.0, None),
        ("Tokyo.", 1.0, "Tokyo."),
        ("It is <answer>the city of Tokyo, Japan.</answer>", 1.0, "the city of Tokyo, Japan."),
    ],
)
def test_a_short_answer_that_was_thought_good_is_what_others_are_graded_by(
    answer: str, reward: float, reference: str | None
) -> None:
    dataset = taken(judged(kept_run(answer=answer), reward))
    assert [task.answer for task in dataset.tasks] == ([] if reference is None else [reference])
    assert dataset.unused["tasks"][use.NO_REFERENCE] == (reference is None)


def test_a_graders_task_is_one_whether_or_not_the_run_was_right(tmp_path: Path) -> None:
    given = TaskRecord(
        id="t", question="Question 0?", answer="7", grader="number", parameters={"tolerance": 0.1}
    )
    task = json.dumps(given.to_json())
    dataset = taken(judged(kept_run(answer="8"), 0.0, task=task, source="grader:number"))
    save_suite(tmp_path / "tasks.jsonl", dataset.tasks)
    (read,) = read_records(tmp_path / "tasks.jsonl")
    assert read == replace(given, id=kept_run().id, kind=use.RUN_TASK_KIND)


@pytest.mark.parametrize("kept", ["short", "contains"])
async def test_feedback_with_an_answer_makes_a_task_that_its_run_solves(
    kept: str,
) -> None:
    task = correction_task("Question 0?", "Tokyo").replace(
        "contains", kept
    )  # as it once was written
    answer = "The capital of Japan is Tokyo."
    (record,) = taken(judged(kept_run(answer=answer), task=task)).tasks
    grader = record.to_task().grader
    assert [await grader(item) for item in (answer, "Kyoto")] == [True, False]


def test_a_judges_task_needs_an_answer_that_was_thought_good() -> None:
    task = json.dumps({"question": "Question 0?", "answer": "", "grader": "judge"})
    run, by = kept_run(answer="42"), "grader:judge sage"
    dataset = taken(judged(run, task=task, source=by))
    assert [(item.grader, item.answer) for item in dataset.tasks] == [("contains", "42")]
    assert not taken(judged(run, 0.0, task=task, source=by)).tasks


def test_a_task_that_cannot_be_read_names_its_run() -> None:
    with pytest.raises(ConfigError, match=f"{kept_run().id} was graded by cannot be read"):
        taken(judged(kept_run(), task="{}"))


def test_of_one_question_the_latest_judgement_makes_the_task() -> None:
    one, other = (kept_run(number, question="Why?", answer=str(number)) for number in range(2))
    early, late = "2026-01-01T00:00:00.000+00:00", "2026-01-02T00:00:00.000+00:00"
    for order in ([(one, late), (other, early)], [(other, early), (one, late)]):
        dataset = taken(*(judged(run, judged_at=moment) for run, moment in order))
        assert [task.answer for task in dataset.tasks] == ["0"]


EARLY, LATE, LATEST = (f"2026-01-0{day}T00:00:00.000+00:00" for day in (1, 2, 3))
CORRECTION = correction_task("Why?", "43")


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        ([(EARLY, 1.0, ""), (LATE, 0.0, "")], []),
        ([(LATE, 1.0, ""), (EARLY, 0.0, "")], ["42"]),
        ([(EARLY, 1.0, ""), (LATE, 0.0, ""), (LATEST, 1.0, "")], ["42"]),
        ([(EARLY, 1.0, ""), (LATE, 0.0, CORRECTION)], ["43"]),
        ([(EARLY, 0.0, CORRECTION), (LATE, 0.0, "")], ["43"]),
    ],
)
def test_an_answer_that_is_rejected_later_is_no_longer_right(
    words: list[tuple[str, float, str]], answers: list[str]
) -> None:
    given = [
        judged(kept_run(number, question="Why?", answer="42"), score, judged_at=at, task=task)
        for number, (at, score, task) in enumerate(words)
    ]
    for order in (given, given[::-1]):
        assert [task.answer for task in taken(*order).tasks] == answers


def test_praise_of_a_long_answer_takes_nothing_back() -> None:
    short = judged(kept_run(0, question="Why?", answer="42"), judged_at=EARLY)
    long = judged(kept_run(1, question="Why?", answer="Because " * 20), judged_at=LATE)
    assert [task.answer for task in taken(short, long).tasks] == ["42"]


@pytest.mark.parametrize("score", [0.0, 1.0])
@pytest.mark.parametrize("answer", ["It depends on many things, " * 3, "four\ntwo"])
def test_a_correction_that_others_cannot_be_compared_with_is_no_task(
    answer: str, score: float
) -> None:
    dataset = taken(
        judged(kept_run(answer="42"), score, task=correction_task("Question 0?", answer))
    )
    assert (dataset.tasks, dataset.unused["tasks"]) == ([], {use.NO_REFERENCE: 1})


def test_a_good_plan_is_an_example_that_a_conductor_can_be_taught(tmp_path: Path) -> None:
    run = kept_run(rounds=(round_of(step_record(0), step_record(1, access=(0,))),))
    replanned = kept_run(1, rounds=(round_of(step_record(0)), round_of(step_record(0), index=1)))
    dataset = RunDataset(Prompt(style="trained"))
    for item in (judged(run), judged(run, 0.5), judged(replanned)):
        dataset.take(item)
    assert dataset.unused["plans"] == {use.LOW_SCORE: 1, use.NO_PLAN: 1}
    file = tmp_path / "plans.jsonl"
    file.write_text("".join(json.dumps(item) for item in dataset.plans), "utf-8")
    (example,) = file_examples(file)
    assert [message["role"] for message in example.messages] == ["system", "user"]
    assert "Question 0?" in example.messages[-1]["content"]
    assert json.loads(example.reply)["steps"] == [
        {"subtask": "Do part 0", "worker": 0, "access": []},
        {"subtask": "Do part 1", "worker": 1, "access": [0]},
    ]
