"""What a training writes down: lines that can be read again, once each, however it went."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from podium.core.pool import Pool, WorkerProfile
from podium.train import training_log as module
from podium.train.diagnostics import Rollout, StepDiagnostics, diagnose
from podium.train.recipe import Recipe
from podium.train.score import Score
from podium.train.training_log import TrainingLog
from support.recipes import GRPO, LESSONS, make_recipe

POOL = Pool((WorkerProfile(name="one"), WorkerProfile(name="two")))


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return make_recipe(tmp_path, GRPO)


def seen(reward: float = 1.0, rollouts: int = 4, text: str = "a plan") -> StepDiagnostics:
    score = Score(reward, right=reward == 1.0, question="q", text=text)
    return diagnose([Rollout(number, score, 5, POOL, "one") for number in range(rollouts)])


def lines(recipe: Recipe, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    text = (recipe.output / name).read_text("utf-8")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def summary(recipe: Recipe) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((recipe.output / "summary.json").read_text("utf-8"))
    return found


def listening() -> Console:
    return Console(file=io.StringIO(), width=40)


def heard(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


# ---- one stretch


def test_every_step_is_a_line_of_numbers_with_what_its_parts_took(
    recipe: Recipe, clock: Clock
) -> None:
    with TrainingLog(recipe) as training_log:
        training_log.step(seen(), seconds={"sampling": 2.0})
        clock.now += 4
        training_log.end_step(1)
        training_log.step(seen(0.5))
        clock.now += 2
        training_log.end_step(2)
    first, second = lines(recipe)
    assert (first["step"], first["seconds"], first["seconds/sampling"]) == (1, 4.0, 2.0)
    assert (first["reward"], first["accuracy"], first["rollouts"]) == (1.0, 1.0, 4.0)
    assert (second["step"], second["seconds"], second["reward"]) == (2, 2.0, 0.5)
    assert "seconds/sampling" not in second


def test_an_update_that_saw_no_new_rollouts_has_no_line(recipe: Recipe) -> None:
    with TrainingLog(recipe) as training_log:
        training_log.step(seen())
        training_log.end_step(1)
        training_log.end_step(2)
    assert [line["step"] for line in lines(recipe)] == [1]


def test_plans_are_kept_to_look_at(recipe: Recipe) -> None:
    with TrainingLog(recipe) as training_log:
        training_log.step(seen(text="one\u2028line"))
        training_log.end_step(3)
    samples = lines(recipe, "samples.jsonl")
    assert {sample["step"] for sample in samples} == {3}
    assert samples[0]["text"] == "one\u2028line"
    assert samples[0]["question"] == "q"


def test_a_measurement_is_a_line_of_its_own_and_its_time_is_no_steps(
    recipe: Recipe, clock: Clock
) -> None:
    with TrainingLog(recipe) as training_log:
        training_log.step(seen())
        training_log.end_step(1)
        clock.now += 60
        training_log.log_measurement(1, seen(0.5), everyday=0.75)
        training_log.step(seen())
        clock.now += 3
        training_log.end_step(2)
    _, measured, second = lines(recipe)
    assert (measured["step"], measured["held_out/accuracy"]) == (1, 0.0)
    assert measured["held_out/everyday"] == 0.75
    assert second["seconds"] == 3.0


def test_the_summary_says_how_far_it_came_and_how_fast(recipe: Recipe, clock: Clock) -> None:
    with TrainingLog(recipe) as training_log:
        for step in (1, 2):
            training_log.step(seen())
            clock.now += 30
            training_log.end_step(step)
        assert summary(recipe) == {
            "step": 2,
            "seconds": 60.0,
            "train_minutes": 1.0,
            "rollouts": 8,
            "rollouts_per_second": 0.1,
        }
        training_log.finish({"cache_hits": 3})
    assert (summary(recipe)["finished"], summary(recipe)["cache_hits"]) == (True, 3)


def test_sft_logs_its_loss_and_exact_matches(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, LESSONS)
    console = listening()
    with TrainingLog(recipe, console=console) as training_log:
        training_log.log_loss(10, 2.5)
        assert summary(recipe)["step"] == 10
    assert lines(recipe)[0]["loss"] == 2.5
    assert "step 10/10" in heard(console)


def test_results_of_later_rounds_are_reported(recipe: Recipe) -> None:
    console = listening()
    accepted = Score(1.0, right=True, was_right=True)
    with TrainingLog(recipe, console=console) as training_log:
        training_log.step(diagnose([Rollout(0, accepted, 5, POOL)]))
        training_log.end_step(1)
    assert "accepted right 1.00" in heard(console)
    assert lines(recipe)[0]["second_round/accepted_right"] == 1.0


def test_a_collapse_is_explained(recipe: Recipe) -> None:
    console = listening()
    malformed = Score(0.0, valid=False, text="[bold]no plan[/]", problem="no list")
    with TrainingLog(recipe, console=console) as training_log:
        training_log.step(diagnose([Rollout(n, malformed, 5, POOL) for n in range(32)]))
    assert "warning: only 0% of the texts are plans; warm the policy up" in heard(console)
    assert heard(console).count("\n") == 2  # one line for each warning, however narrow the window


def test_words_are_never_taken_for_markup(recipe: Recipe) -> None:
    console = listening()
    with TrainingLog(recipe, console=console) as training_log:
        training_log.warn("step 0 (one): [/red] refused [bold]")
    assert heard(console) == "warning: step 0 (one): [/red] refused [bold]\n"


# ---- several stretches


def first_stretch(recipe: Recipe, clock: Clock, steps: int) -> None:
    with TrainingLog(recipe) as training_log:
        for step in range(1, steps + 1):
            training_log.step(seen())
            clock.now += 60
            training_log.end_step(step)


def test_resuming_keeps_metrics_up_to_the_checkpoint_and_rewrites_the_rest(
    recipe: Recipe, clock: Clock
) -> None:
    first_stretch(recipe, clock, 5)
    with TrainingLog(recipe, after=3) as training_log:
        training_log.step(seen(0.5))
        training_log.end_step(4)
    assert [(line["step"], line["reward"]) for line in lines(recipe)] == [
        (1, 1.0),
        (2, 1.0),
        (3, 1.0),
        (4, 0.5),
    ]
    assert [sample["step"] for sample in lines(recipe, "samples.jsonl")][-1] == 4
    assert 5 not in {sample["step"] for sample in lines(recipe, "samples.jsonl")}


def test_time_and_rollouts_are_those_of_all_stretches(recipe: Recipe, clock: Clock) -> None:
    first_stretch(recipe, clock, 5)
    clock.now += 10_000  # no training runs meanwhile
    with TrainingLog(recipe, after=3) as training_log:
        assert training_log.seconds == 0.0
        training_log.step(seen())
        clock.now += 60
        training_log.end_step(4)
    assert summary(recipe)["train_minutes"] == 6.0
    assert summary(recipe)["rollouts"] == 24
    assert summary(recipe)["rollouts_per_second"] == round(24 / 360, 1)


def test_restarted_steps_forget_their_text(recipe: Recipe, clock: Clock) -> None:
    first_stretch(recipe, clock, 5)
    with TrainingLog(recipe) as training_log:
        training_log.step(seen())
        training_log.end_step(1)
    assert [line["step"] for line in lines(recipe)] == [1]
    assert summary(recipe)["rollouts"] == 4


@pytest.mark.parametrize(
    "broken",
    [
        '{"step": 3, "rew',
        "\0\0\0",
        '{"step": 3}garbage',
        "[3]",
        '{"step": "2"}',
        '{"step": null}',
        pytest.param("[" * 100_000, id="nested too deep"),
    ],
)
def test_a_line_that_a_kill_broke_off_is_left_out(
    recipe: Recipe, clock: Clock, broken: str
) -> None:
    first_stretch(recipe, clock, 2)
    with (recipe.output / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(broken)
    with TrainingLog(recipe, after=2) as training_log:
        training_log.step(seen())
        training_log.end_step(3)
    assert [line["step"] for line in lines(recipe)] == [1, 2, 3]


@pytest.mark.parametrize(
    "broken",
    [
        '{"seconds": ',
        "[]",
        '{"seconds": "1", "rollouts": null}',
        '{"seconds": NaN, "rollouts": Infinity}',
        pytest.param("[" * 100_000, id="nested too deep"),
    ],
)
def test_a_broken_summary_costs_no_more_than_its_numbers(
    recipe: Recipe, clock: Clock, broken: str
) -> None:
    first_stretch(recipe, clock, 2)
    (recipe.output / "summary.json").write_text(broken, "utf-8")
    with TrainingLog(recipe, after=2) as training_log:
        training_log.step(seen())
        training_log.end_step(3)
    assert summary(recipe)["rollouts"] == 4


def test_a_training_that_stopped_says_how_to_go_on(recipe: Recipe) -> None:
    console = listening()
    with TrainingLog(recipe, console=console) as training_log:
        training_log.log_stop(4)
    assert heard(console) == (
        "stopped after step 4 of 10, with a checkpoint; --resume continues from there\n"
    )
    assert "finished" not in summary(recipe)


# ---- several processes


def test_only_the_first_process_keeps_a_logbook(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    with TrainingLog(recipe) as training_log:
        training_log.step(seen())
        training_log.end_step(1)
        training_log.log_measurement(1, seen())
        training_log.warn("of nothing")
        training_log.finish({})
    assert not recipe.output.exists()
    assert capsys.readouterr().err == ""
