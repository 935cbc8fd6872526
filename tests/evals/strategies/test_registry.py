from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evals.support import case_of, setup_of
from podium.core.errors import ConfigError, UsageError
from podium.evals.evaluation import Evaluation
from podium.evals.strategies.registry import check_strategy, expand_candidates, strategy_checksums
from podium.workers.scripted import ScriptedWorker

WORKERS = [ScriptedWorker("ann", "42"), ScriptedWorker("ben", "41")]
SETUP = setup_of(WORKERS)
CASES = [case_of("six times seven?", "42", WORKERS)]

OWN = """
from podium.evals.strategies.conducting import CallRecorder
from podium.core.request import Request, user


async def answer(case, context):
    recorder = CallRecorder("mine", case, context)
    request = Request((user(case.task.question),))
    return recorder.run(await recorder.ask("ann", request, "answer"))
"""


async def best_alone() -> str:
    return "ann"


async def test_a_function_of_ones_own_is_a_strategy_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    evaluation = Evaluation(SETUP, CASES, seed=0, concurrency=1)
    row = await evaluation.row(f"{path}:answer")
    assert row.accuracy.value == 1
    assert row.samples[0].workers == ("ann",)


@pytest.mark.parametrize("name", ["best-of-3", "majority-7", "best-of-3:ben", "rules", "moa-3"])
def test_these_are_strategies(name: str) -> None:
    check_strategy(name, SETUP, CASES)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("best-of-0", "did you mean 'best-of-5'"),
        ("best-of-3:cid", "names no worker of this pool"),
        ("moa-4", "did you mean 'moa-3'"),
        ("router", "has to be trained first"),
        ("no_such_module:answer", "cannot import"),
        ("nowhere.py:answer", "no such file"),
    ],
)
def test_these_are_refused_before_anyone_is_asked(
    name: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # it grows where a module is looked for
    with pytest.raises(UsageError, match=reason):
        check_strategy(name, SETUP, CASES)


def test_a_router_without_its_file_is_an_error_that_says_how_to_train_one(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    with pytest.raises(ConfigError, match="podium train router"):
        check_strategy(f"router:{tmp_path / 'none.json'}", SETUP, CASES)


async def test_draws_and_mixtures_are_those_of_the_best_single_worker() -> None:
    assert await expand_candidates("best-of-3", SETUP, best_alone) == ["best-of-3:ann"]
    assert await expand_candidates("majority-3:ben", SETUP, best_alone) == []
    assert await expand_candidates("moa-3", SETUP, best_alone) == [
        "moa-3:drawn/system",
        "moa-3:drawn/message",
        "moa-3:ann/system",
        "moa-3:ann/message",
    ]


async def test_a_row_says_that_its_worker_was_chosen_on_these_tasks() -> None:
    evaluation = Evaluation(SETUP, CASES, seed=0, concurrency=1)
    row = await evaluation.row("best-of-2")
    assert row.note == (
        "best-of-2:ann, whose worker is the best alone on these very tasks: an optimistic choice"
    )


async def test_names_become_the_strategies_that_they_say() -> None:
    evaluation = Evaluation(SETUP, CASES, seed=0, concurrency=1)
    for name, calls in (("best-of-3:ann", 3), ("majority-4:ben", 4), ("rules", 1), ("moa-3", 5)):
        assert (await evaluation.row(name)).samples[0].calls == calls


def test_a_strategy_in_a_file_is_known_by_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "of_ones_own.py"
    names = ["conductor", "single:ann", "sys:exit"]
    names += [f"{path}:answer", f"router:{path}", "of_ones_own:answer"]
    path.write_text("one = 1")
    before = strategy_checksums(names)
    path.write_text("another = 2")
    assert list(before) == names[3:]
    assert all(strategy_checksums(names)[name] != before[name] for name in before)
