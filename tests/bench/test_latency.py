"""The pure parts of `benchmarks latency`, over the plans that it measures."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

from benchmarks.cli import PLANS
from benchmarks.latency import POOL, first_call_share, measure_plans, read_plan, read_plans
from podium.conductors import ModelConductor
from podium.conductors.plan import write
from podium.core.errors import ConfigError
from podium.core.run import dump
from podium.engine.runner import Runner
from podium.workers.scripted import ScriptedWorker

STEPS = (
    '{"steps": [{"worker": "a", "subtask": "begin", "access": []}, '
    '{"worker": "b", "subtask": "go on", "access": [0]}, '
    '{"worker": "a", "subtask": "end", "access": [1]}]}'
)
LINE = {"form": "json", "plan": STEPS, "workers": ["a", "b"], "reply_tokens": [4, 50, 6]}


def write_lines(directory: Path, *lines: object) -> Path:
    path = directory / "plans.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_both_forms_hold_the_same_200_plans_of_three_steps() -> None:
    plans = read_plans(PLANS, 200)
    workflows = {form: [plan.workflow for plan in plans[form]] for form in plans}
    assert workflows["trained"] == workflows["json"]
    assert len({plan.text for plan in plans["trained"]}) == 200


def test_steps_begin_early_and_lists_late() -> None:
    plans = read_plans(PLANS, 200)
    share = {form: median(map(first_call_share, plans[form])) for form in plans}
    assert max(share.values()) <= 0.35
    lists = write(plans["json"][0].workflow, POOL)
    assert 0.35 < first_call_share(read_plan({"form": "lists", "plan": lists})) < 1


def test_tokens_that_a_line_lacks_are_estimated() -> None:
    bare = read_plan({"form": "json", "plan": STEPS, "workers": ["a", "b"]})
    assert (bare.tokens, bare.reply_tokens) == (-(-len(STEPS) // 4), (90, 90, 90))
    assert read_plan(LINE | {"plan_tokens": 70}).tokens == 70


async def test_a_recorded_run_is_a_line_too(tmp_path: Path) -> None:
    conductor = ModelConductor(ScriptedWorker("planner", [STEPS]))
    workers = [ScriptedWorker(name, lambda _: "a reply") for name in ("a", "b")]
    run = await Runner(conductor, workers).run("What holds?")
    (plans,) = read_plans(write_lines(tmp_path, {"run": dump(run)}), 9).values()
    assert plans[0].form == "model(planner)"
    assert plans[0].workflow == run.rounds[0].workflow
    replies = [call.usage.output_tokens for step in run.steps for call in step.attempts]
    assert plans[0].reply_tokens == tuple(replies)


def test_plans_of_other_lengths_are_left_out(tmp_path: Path) -> None:
    one = {"form": "json", "plan": '{"steps": [{"worker": 0, "subtask": "x", "access": []}]}'}
    assert len(read_plans(write_lines(tmp_path, one, LINE, LINE), 9)["json"]) == 2
    assert len(read_plans(write_lines(tmp_path, LINE, LINE), 1)["json"]) == 1
    with pytest.raises(ConfigError, match="no plan of 3 steps"):
        read_plans(write_lines(tmp_path, one), 9)


@pytest.mark.parametrize(
    "line",
    [
        [],
        {"form": "json"},
        {"form": "json", "plan": "I cannot plan"},
        LINE | {"reply_tokens": [1]},
        {"run": {}},
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: object) -> None:
    with pytest.raises(ConfigError, match=r"plans\.jsonl, line 2: .*benchmarks/README\.md"):
        read_plans(write_lines(tmp_path, LINE, line), 9)


async def test_replies_take_as_long_as_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.latency.first_token", lambda _: 0.0)
    monkeypatch.setattr("benchmarks.latency.TOKENS_A_SECOND", 600.0)
    plan = read_plan(LINE | {"plan_tokens": 60})
    found = await measure_plans([plan], 600.0)
    whole = (60 + 4 + 50 + 6) / 600
    assert whole <= found["conducted"].end < 2 * whole
    assert found["overlap"].end < found["conducted"].end
    assert found["direct"].end < found["overlap"].end
