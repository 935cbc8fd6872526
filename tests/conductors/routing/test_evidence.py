from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import ConfigError

np = pytest.importorskip("numpy")

from podium.conductors.routing import KnownWorker
from podium.conductors.routing.router import read_log
from podium.train.router import read_router_recipe


def line(question: str, worker: str, reward: float, **more: Any) -> dict[str, Any]:
    model = f"{worker}-model"
    return {"question": question, "worker": worker, "model": model, "reward": reward} | more


LINES = [
    line("one", "small", 1, cost=0.1),
    line("one", "large", 0.5, cost=1.0),
    line("one", "large", 1.0, cost=2.0),
    line("two", "small", 0.0, cost=None),
]


def written(directory: Path, *lines: object) -> Path:
    path = directory / "log.jsonl"
    path.write_text("".join(f"{json.dumps(item)}\n" for item in lines))
    return path


def test_lines_of_the_same_question_and_worker_are_averaged(tmp_path: Path) -> None:
    evidence = read_log([written(tmp_path, *LINES)]).reward_matrix()
    assert evidence.questions == ("one", "two")
    assert evidence.rewards[0].tolist() == [1.0, 0.75]


def test_unmeasured_figures_are_no_numbers(tmp_path: Path) -> None:
    evidence = read_log([written(tmp_path, *LINES)]).reward_matrix()
    assert np.isnan(evidence.rewards).tolist() == [[False, False], [False, True]]


def test_worker_cost_is_the_mean_of_the_lines_that_state_it(tmp_path: Path) -> None:
    workers = read_log([written(tmp_path, *LINES)]).reward_matrix().workers
    assert workers == (
        KnownWorker("small", "small-model", 0.1),
        KnownWorker("large", "large-model", 1.5),
    )


def test_costs_of_the_recipe_stand_in_for_those_of_the_log(tmp_path: Path) -> None:
    lines = [line("one", "small", 1), line("one", "large", 1, cost=9.0)]
    evidence = read_log([written(tmp_path, *lines)]).reward_matrix({"small": 0.2, "large": 3.0})
    assert [worker.cost for worker in evidence.workers] == [0.2, 3.0]


def test_a_worker_of_unknown_cost_is_named(tmp_path: Path) -> None:
    log = read_log([written(tmp_path, line("one", "small", 1), line("one", "large", 1, cost=9.0))])
    with pytest.raises(ConfigError, match="what small costs.*say it in the recipe"):
        log.reward_matrix()


def test_costs_can_be_given_as_the_error_advises(tmp_path: Path) -> None:
    log = written(tmp_path, line("one", "small", 1), line("one", "large", 1, cost=9.0))
    with pytest.raises(ConfigError) as refused:
        read_log([log]).reward_matrix()
    advised = re.search(r"(usd = .*) under (\[costs\])", str(refused.value))
    assert advised is not None
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"[router]\nlogs = ['log.jsonl']\n{advised[2]}\n{advised[1]}\n")
    costs = read_router_recipe(recipe).costs.usd
    assert [known.cost for known in read_log([log]).reward_matrix(costs).workers] == [0.002, 9.0]


def test_a_question_may_have_breaks_that_are_no_end_of_a_line(tmp_path: Path) -> None:
    question = "one\u2028two\x85three"
    path = tmp_path / "log.jsonl"
    lines = [line(question, worker, 1, cost=1.0) for worker in ("small", "large")]
    path.write_text("".join(f"{json.dumps(item, ensure_ascii=False)}\r\n" for item in lines))
    assert read_log([path]).reward_matrix().questions == (question,)


def test_not_every_line_needs_to_say_the_model(tmp_path: Path) -> None:
    lines = [
        line("one", "small", 1, cost=0.1, model=None),
        line("two", "small", 1, cost=0.1),
        line("one", "large", 1, cost=1.0, model=""),
    ]
    workers = read_log([written(tmp_path, *lines)]).reward_matrix().workers
    assert [known.model for known in workers] == ["small-model", ""]


def test_a_cost_for_an_unknown_worker_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="given for huge, and the log has only small, large"):
        read_log([written(tmp_path, *LINES)]).reward_matrix({"huge": 1.0})


def test_a_worker_with_two_models_is_named(tmp_path: Path) -> None:
    log = read_log([written(tmp_path, *LINES, line("two", "large", 1, model="newer"))])
    with pytest.raises(ConfigError, match="large stands in the log with 2 models"):
        log.reward_matrix()


def test_an_empty_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log\.jsonl: there is no line to learn from"):
        read_log([written(tmp_path)])


def test_a_log_of_one_worker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="all 2 lines are of small"):
        read_log([written(tmp_path, line("one", "small", 1), line("two", "small", 0))])
    with pytest.raises(ConfigError, match="its only line is of small"):
        read_log([written(tmp_path, line("one", "small", 1))])


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*log\.jsonl"):
        read_log([tmp_path / "log.jsonl"])


def test_a_truncated_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = written(tmp_path, *LINES)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(ConfigError, match=rf"{path}, line 4: expected a whole JSON .*cut off"):
        read_log([path])
    path.write_bytes(whole + '{"question": "é'.encode()[:-1])
    with pytest.raises(ConfigError, match=rf"{path}, line 5: not UTF-8 .*cut off"):
        read_log([path])


def test_a_line_that_is_nested_too_deep_is_named_by_its_number(tmp_path: Path) -> None:
    path = written(tmp_path, *LINES)
    path.write_text(path.read_text() + "[" * 200_000)
    with pytest.raises(ConfigError, match=rf"{path}, line 5: nested deeper than can be read"):
        read_log([path])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "expected an object, not list"),
        (line(" ", "small", 1), "expected a text in 'question'"),
        (line("one", "", 1), "expected a text in 'worker'"),
        (line("one", "small", 1.5), "expected a number between 0 and 1 in 'reward', not 1.5"),
        (line("one", "small", float("nan")), "in 'reward', not nan"),
        (line("one", "small", 1, cost=-1), "expected a number from 0 up in 'cost', not -1"),
        (line("one", "small", 1, cost="dear"), "in 'cost', not 'dear'"),
        (line("one", "small", 1, cost=float("inf")), "in 'cost', not inf"),
        (line("one", "small", 1, cost=10**400), r"in 'cost', not 10{39}$"),
    ],
)
def test_an_invalid_line_is_named_by_its_number(
    tmp_path: Path, wrong: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"line 2: .*{message}"):
        read_log([written(tmp_path, LINES[0], wrong)])
