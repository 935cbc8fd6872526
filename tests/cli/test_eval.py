from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli.support import MakePool, Podium, Vendor
from podium.etudes import ROLES
from podium.evals import cluster
from podium.evals.cluster import Opening, Replies
from podium.evals.ensemble import Ensemble, opened
from podium.evals.performing import Performer
from podium.files import exclusive

RULES = '[conductor]\nkind = "rules"\n'


@pytest.fixture
def role_pool(make_pool: MakePool) -> Path:
    """A pool in which every worker says its own role."""
    return make_pool({role: role for role in ROLES}, head=RULES)


def test_one_strategy_over_perfect_workers_is_one_json_object(podium: Podium) -> None:
    ended = podium(
        *("eval", "run", "etudes", "--oracle", "--strategy", "ideal"),
        *("--limit", "8", "--seed", "7", "--json"),
    )
    assert ended.code == 0
    document = ended.json
    assert (document["suite"], document["n"], document["seed"]) == ("etudes", 8, 7)
    (row,) = document["rows"]
    assert (row["strategy"], row["accuracy"]) == ("ideal", 1.0)
    assert ended.err.splitlines()[0] == "podium: ideal: 8 tasks measured"


def test_several_strategies_are_one_table(podium: Podium, role_pool: Path) -> None:
    ended = podium(
        *("eval", "run", "etudes", "--pool", role_pool, "--limit", "4"),
        *("--strategy", "conductor,best-single,majority"),
    )
    assert ended.code == 0
    names = [line.split("|")[1].strip() for line in ended.out.splitlines() if line[0] == "|"]
    assert names == ["strategy", "-----------", "conductor", "best-single", "majority"]
    assert "an optimistic choice" in ended.out


def test_an_evaluation_leaves_no_runs_in_the_store_but_replies_in_the_cache(
    podium: Podium, role_pool: Path, home: Path
) -> None:
    podium("eval", "run", "etudes", "--pool", role_pool, "--limit", "2")
    left = [path.relative_to(home) for path in home.rglob("*") if path.is_file()]
    assert left == [Path("cache", "evaluations", "replies.sqlite3")]
    assert podium("runs", "list", "--json").json == []


def test_a_fresh_evaluation_leaves_nothing_at_all(
    podium: Podium, role_pool: Path, home: Path
) -> None:
    command = ("eval", "run", "etudes", "--pool", role_pool, "--limit", "2", "--fresh")
    for _ in range(2):
        assert "calls to workers: 2\n" in podium(*command).err
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_the_same_command_again_asks_no_worker_anything(podium: Podium) -> None:
    command = (
        *("eval", "run", "etudes", "--oracle", "--limit", "10", "--seed", "7", "--json"),
        *("--strategy", "ideal,best-single,moa,reflection,majority,random"),
    )
    first, second = podium(*command), podium(*command)
    assert "calls to workers" in first.err
    assert "no worker was asked" in second.err
    tables = [first.json, second.json]
    for row in (row for table in tables for row in table["rows"]):
        row.pop("seconds")  # what a kept reply would have taken is not known
    assert tables[0] == tables[1]


def test_the_variant_of_the_test_set_is_told_with_the_result(podium: Podium) -> None:
    ended = podium(
        *("eval", "run", "etudes", "--oracle", "--strategy", "ideal", "--limit", "4", "--json"),
        *("--shapes", "chain-5", "--pool-order", "shuffled", "--drop-one", "--flaky", "0.1"),
    )
    assert ended.json["variant"] == {
        "shapes": ["chain-5"],
        "pool_order": "shuffled",
        "drop_one": True,
        "flaky": 0.1,
    }
    assert list(ended.json["rows"][0]["by_kind"]) == ["chain-5"]


def test_samples_and_summary_are_written_where_asked(
    podium: Podium, role_pool: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    ended = podium(
        *("eval", "run", "etudes", "--pool", role_pool, "--limit", "3", "--json"),
        *("--output", output),
    )
    assert json.loads((output / "summary.json").read_text("utf-8")) == ended.json
    assert len((output / "conductor.jsonl").read_text("utf-8").splitlines()) == 3
    other = podium("eval", "run", "etudes", "--pool", role_pool, "--output", output)
    assert other.code == 2
    assert "its limit is 3, and this one's is 100; name a new directory" in other.complaint


def test_an_evaluation_goes_on_in_its_directory_with_further_strategies_and_repeats(
    podium: Podium, role_pool: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    command = ("eval", "run", "etudes", "--pool", role_pool, "--limit", "3", "--output", output)
    podium(*command, "--strategy", "single:words")
    lines = (output / "single-words.jsonl").read_text("utf-8")
    ended = podium(*command, "--strategy", "single:words,single:lists", "--repeats", "2", "--json")
    assert ended.code == 0
    assert (output / "single-words.jsonl").read_text("utf-8").startswith(lines)
    assert [row["samples"] for row in ended.json["rows"]] == [6, 6]
    assert (ended.json["n"], ended.json["repeats"]) == (3, 2)


def test_a_worker_that_does_not_answer_is_named_and_counted_and_the_rest_is_finished(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    task = {"question": "6 x 7?", "answer": "42", "grader": "number"}
    tasks.write_text("".join(f"{json.dumps(task)}\n" for _ in range(3)), "utf-8")
    vendor.status = 400
    pool = vendor.pool("ann", directory=tmp_path)
    output = tmp_path / "out"
    command = ("eval", "run", tasks, "--pool", pool, "--json", "--output", output)
    ended = podium(*command, "--strategy", "single:ann")
    assert ended.code == 0
    (problem,) = ended.json["problems"]
    assert (problem["strategy"], problem["at_fault"], problem["count"]) == ("single:ann", "ann", 3)
    assert ended.json["rows"][0]["faults"] == 3
    assert "single:ann: ann failed in 3 samples, first with: worker" in ended.err
    vendor.status = 200
    vendor.replies["ann"] = "42"
    asked = len(vendor.asked)
    assert podium(*command, "--strategy", "single:ann").json["rows"][0]["accuracy"] == 0.0
    assert len(vendor.asked) == asked
    again = podium(*command, "--strategy", "single:ann", "--retry-faults")
    assert again.json["rows"][0]["accuracy"] == 1.0
    assert again.json["problems"] == []


def test_a_cap_on_money_needs_everybodys_price(podium: Podium, tmp_path: Path) -> None:
    pool, tasks = tmp_path / "unpriced.toml", tmp_path / "tasks.csv"
    worker = 'name = "ann"\nprovider = "openai-compatible"\nbase_url = "http://127.0.0.1:1/v1"\n'
    pool.write_text(f"{RULES}[[worker]]\n{worker}", "utf-8")
    tasks.write_text("question,answer,grader\n6 x 7?,42,number\n", "utf-8")
    ended = podium("eval", "run", tasks, "--pool", pool, "--budget-usd", "1")
    assert ended.code == 2
    assert "the budget caps money, but no price is known for ann" in ended.complaint


async def test_two_evaluations_do_not_write_to_one_directory(
    start: Callable[..., subprocess.Popen[str]], role_pool: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    async with exclusive(output / ".lock"):
        process = start("eval", "run", "etudes", "--pool", role_pool, "--output", output)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert (
        err
        == f"podium: another evaluation is writing to {output}; wait for it, or name another one\n"
    )


def test_lines_that_are_no_tasks_are_named_and_counted_and_the_rest_is_measured(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    good = {"id": "one", "question": "6 x 7?", "answer": "42", "grader": "number"}
    lines = [good, {**good, "id": "two", "answer": ""}, good]
    tasks.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    ended = podium("eval", "run", tasks, "--pool", make_pool(head=RULES), "--json")
    assert ended.code == 0
    assert ended.json["rows"][0]["n"] == 1
    assert [line["where"].rpartition(", ")[2] for line in ended.json["left_out"]] == [
        "line 2",
        "line 3",
    ]
    assert "line 3: the id 'one' was already used" in ended.err


def test_a_worker_of_the_pool_is_the_judge_where_a_task_has_one_decide(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    task = {"question": "Why?", "answer": "It rains.", "grader": "judge"}
    tasks.write_text(json.dumps(task), "utf-8")
    pool = make_pool({"ann": "It is raining.", "ben": "<verdict>right</verdict>"}, head=RULES)
    command = ("eval", "run", tasks, "--pool", pool, "--json", "--strategy", "single:ann")
    ended = podium(*command, "--judge", "ben")
    assert ended.code == 0, ended.err
    assert "calls to workers: 2\n" in ended.err
    ended = podium(*command, "--judge", "bne")
    assert "the judge 'bne' is no worker of this pool; did you mean 'ben'?" in ended.complaint


def test_at_its_cap_an_evaluation_stops_and_says_so_and_a_higher_one_goes_on(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    """A reply of the vendor costs 10 x 1 + 5 x 2 dollars a million."""
    tasks = tmp_path / "tasks.jsonl"
    task = {"question": "6 x 7?", "answer": "42", "grader": "number"}
    lines = [json.dumps({**task, "question": f"{n} x 7?"}) for n in range(9)]
    tasks.write_text("\n".join(lines), "utf-8")
    pool = vendor.pool("ann", directory=tmp_path)
    command = (
        *("eval", "run", tasks, "--pool", pool, "--strategy", "single:ann", "--json"),
        *("--output", tmp_path / "out", "--concurrency", "2"),
    )
    ended = podium(*command, "--budget-usd", "0.0001")
    assert ended.code == 3
    assert ended.json["rows"] == []
    assert ended.json["stopped"]["unfinished"] == {"single:ann": 5}
    assert "stopped before the cap of 0.0001 USD, 0.0001 spent: single:ann has 5" in ended.err
    ended = podium(*command, "--budget-usd", "1")
    assert (ended.code, len(vendor.asked)) == (0, 9)


def test_a_file_says_all_of_it_and_the_command_line_has_the_last_word(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    make_pool({"ann": "42", "ben": "41"}, head=RULES)
    tasks = tmp_path / "tasks.csv"
    tasks.write_text("question,answer,grader\n6 x 7?,42,number\n2 + 2?,4,number\n", "utf-8")
    file = tmp_path / "mine.toml"
    file.write_text(
        'suite = "tasks.csv"\npool = "pool.toml"\noutput = "measured"\nrepeats = 2\n'
        'strategies = ["single:ann", "best-single"]\nlimit = 1\nseed = 3\n',
        "utf-8",
    )
    ended = podium("eval", "run", file, "--json")
    assert ended.code == 0, ended.err
    assert (ended.json["n"], ended.json["seed"], ended.json["repeats"]) == (1, 3, 2)
    assert [row["strategy"] for row in ended.json["rows"]] == ["single:ann", "best-single"]
    assert (tmp_path / "measured" / "summary.json").is_file()
    ended = podium(
        *("eval", "run", file, "--json", "--strategy", "single:ben", "--repeats", "1"),
        *("--limit", "2", "--output", tmp_path / "other"),
    )
    assert [row["n"] for row in ended.json["rows"]] == [2]
    assert ended.json["rows"][0]["accuracy"] == 0.0


def test_two_evaluations_are_compared_task_by_task(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    task = {"question": "6 x 7?", "answer": "42", "grader": "number"}
    tasks.write_text("".join(f"{json.dumps(task)}\n" for _ in range(4)), "utf-8")
    for name, reply in (("right", "42"), ("wrong", "41")):
        pool = make_pool({"solver": reply}, head=RULES)
        podium("eval", "run", tasks, "--pool", pool, "--output", tmp_path / name)
    pair = ("eval", "compare", tmp_path / "right", tmp_path / "wrong")
    ended = podium(*pair, "--json")
    assert ended.code == 0
    assert ended.json["difference"]["value"] == -1.0
    ended = podium(*pair, "--within", "0.02")
    assert ended.code == 1
    assert "| difference" in ended.out
    assert "4 tasks; the second alone is right in 0, the first alone in 4; p = 0.125" in ended.out
    assert podium(*pair, "--within", "1").code == 0


def test_with_a_cache_the_same_command_asks_nobody_again(podium: Podium, tmp_path: Path) -> None:
    """Scripted workers say another thing each time, unless they are not asked."""
    pool = tmp_path / "changing.toml"
    workers = (
        f'[[worker]]\nname = "{role}"\nprovider = "scripted"\n'
        f"options = {{ reply = {json.dumps([f'{role} {n}' for n in range(9)])} }}\n"
        for role in ROLES
    )
    pool.write_text(RULES + "".join(workers), "utf-8")
    cache, outputs = tmp_path / "replies.sqlite3", []
    for number in range(2):
        output = tmp_path / str(number)
        podium(
            *("eval", "run", "etudes", "--pool", pool, "--limit", "3", "--cache", cache),
            *("--strategy", "moa", "--output", output, "--concurrency", "1"),
        )
        lines = (output / "moa-drawn-system.jsonl").read_text("utf-8").splitlines()
        outputs.append([json.loads(line)["run"]["answer"] for line in lines])
    assert outputs[0] == outputs[1]
    assert any(answer.endswith(" 3") for answer in outputs[0])


def test_a_pool_without_the_roles_is_refused_before_anything_is_asked(
    podium: Podium, make_pool: MakePool
) -> None:
    ended = podium("eval", "run", "etudes", "--pool", make_pool())
    assert ended.code == 2
    assert "needs a worker named 'arithmetic'" in ended.complaint


def test_everyday_questions_are_graded_by_their_plans_and_nobody_answers_them(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    """The rules give the whole question to the best of the pool, which is the first one here."""
    output = tmp_path / "out"
    pool = make_pool({"generalist": "never asked", "words": "never asked"}, head=RULES)
    ended = podium("eval", "run", "everyday", "--pool", pool, "--json", "--output", output)
    assert ended.code == 0, ended.err
    (row,) = ended.json["rows"]
    assert (row["n"], row["faults"]) == (100, 0)
    assert list(row["by_kind"]) == ["everyday"]
    lines = (output / "conductor.jsonl").read_text("utf-8").splitlines()
    runs = [json.loads(line)["run"] for line in lines]
    assert all(run["rounds"][0]["steps"] == [] for run in runs)
    whole = [len(run["rounds"][0]["workflow"]["steps"]) == 1 for run in runs]
    assert row["accuracy"] == sum(whole) / 100 > 0


def test_everyday_questions_need_a_generalist(podium: Podium, make_pool: MakePool) -> None:
    ended = podium("eval", "run", "everyday", "--pool", make_pool())
    assert ended.code == 2
    assert "'everyday' needs a worker named 'generalist'" in ended.complaint


@pytest.mark.parametrize("strategy", ["moa", "recursion", "single:words"])
def test_a_task_that_grades_plans_needs_a_strategy_that_plans(
    podium: Podium, role_pool: Path, strategy: str
) -> None:
    ended = podium("eval", "run", "everyday", "--pool", role_pool, "--strategy", strategy)
    assert ended.code == 2
    assert f"these tasks grade plans, and '{strategy}' writes none" in ended.complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("etude",), "there is no suite 'etude'"),
        (("etudes", "--strategy", "idael"), "did you mean 'ideal'?"),
        (("etudes", "--strategy", ","), "no strategy is named"),
        (("etudes", "--shapes", "circle"), "no étude has the shape 'circle'"),
        (("etudes", "--untrained", "nobody"), "'nobody' is neither a kind"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    podium: Podium, role_pool: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    ended = podium("eval", "run", *arguments, "--pool", role_pool)
    assert ended.code == 2
    assert complaint in ended.complaint


def test_a_file_of_ones_own_tasks_is_a_suite(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(
        json.dumps({"question": "6 x 7?", "answer": "42", "grader": "number"}), "utf-8"
    )
    ended = podium("eval", "run", tasks, "--pool", make_pool(head=RULES), "--json")
    assert ended.code == 0
    assert ended.json["rows"][0]["accuracy"] == 1.0


def test_the_table_of_the_etudes_is_made_by_one_command(
    podium: Podium, tmp_path: Path, make_pool: MakePool
) -> None:
    plan = 'model_id = [0]\nsubtasks = ["Do it."]\naccess_list = [[]]'
    pool = make_pool({"planner": plan}, head='[conductor]\nmodel = "planner"\n')
    training = tmp_path / "run"
    training.mkdir()
    (training / "summary.json").write_text('{"seconds": 120}', "utf-8")
    (training / "metrics.jsonl").write_text('{"seconds": 60, "rollouts": 12000}\n', "utf-8")
    ended = podium(
        *("eval", "etudes-table", "--oracle", "--pool", pool, "--limit", "5", "--seed", "7"),
        *("-o", tmp_path / "results" / "etudes.json", "--training", training),
    )
    assert ended.code == 0, ended.err
    document = json.loads((tmp_path / "results" / "etudes.json").read_text("utf-8"))
    assert (document["n"], document["seed"], document["pool"]) == (5, 7, "pool.toml")
    assert document["ceiling"]["value"] == 1.0
    assert (document["train_minutes"], document["rollouts_per_second"]) == (2.0, 200.0)
    assert str(tmp_path) not in json.dumps(document)
    assert "| ideal plans on the same workers: at least 0.95" in ended.out


def test_what_an_evaluation_itself_costs_can_be_measured(podium: Podium) -> None:
    ended = podium("eval", "overhead", "--questions", "20", "--workers", "3", "--json")
    assert ended.json["calls"] == 60
    assert ended.json["evaluation_seconds"] > ended.json["bare_seconds"] > 0
    assert ended.code == (0 if ended.json["met"] else 1)


def test_a_strategy_that_learns_is_fitted_and_then_measured_by_its_file(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    pytest.importorskip("numpy")
    tasks = tmp_path / "tasks.jsonl"
    lines = [
        {"question": f"What is {n} x 7?", "answer": "42", "grader": "number"} for n in range(8)
    ]
    tasks.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    pool = make_pool({"wrong": "41", "right": "42"}, head=RULES)
    ended = podium("eval", "fit", "constant", tasks, "--pool", pool)
    assert ended.code == 0, ended.err
    assert "measure it with --strategy constant:fitted/constant.json" in ended.out
    ended = podium(
        *("eval", "run", tasks, "--pool", pool, "--json"),
        *("--strategy", "constant:fitted/constant.json"),
    )
    assert ended.json["rows"][0]["accuracy"] == 1.0
    ended = podium("eval", "folds", tasks, "--pool", pool, "--strategy", "constant", "--count", "4")
    assert ended.code == 0, ended.err
    assert "| constant " in ended.out
    assert "no worker was asked anything" in ended.err


def test_a_cluster_is_given_everything_that_the_table_depends_on(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[str] = []

    class Elsewhere(Performer):
        seats = 2

        def __init__(self, ensemble: Ensemble, seed: int) -> None:
            super().__init__(ensemble, seed=seed)
            self.asked = ensemble.asked

    @asynccontextmanager
    async def spread(address: str, opening: Opening, replies: Replies) -> AsyncIterator[Elsewhere]:
        addresses.append(address)
        async with opened(opening.settings, {}, oracle=opening.oracle) as ensemble:
            yield Elsewhere(ensemble.made_flaky(opening.flaky, opening.seed), opening.seed)

    monkeypatch.setattr(cluster, "spread", spread)
    command = (
        *("eval", "run", "etudes", "--oracle", "--limit", "6", "--seed", "3", "--flaky", "0.4"),
        *("--strategy", "ideal,random", "--json"),
    )
    here, there = podium(*command), podium(*command, "--ray", "10.0.0.1:6379")
    assert there.code == 0, there.err
    assert addresses == ["10.0.0.1:6379"]
    tables = [here.json, there.json]
    for row in (row for table in tables for row in table["rows"]):
        row.pop("seconds")
    assert tables[0] == tables[1]
    assert tables[0]["rows"][0]["accuracy"] < 1.0
    assert "calls to workers: " in there.err


def test_a_judge_is_not_asked_from_other_machines(podium: Podium, role_pool: Path) -> None:
    command = ("eval", "run", "etudes", "--pool", role_pool, "--judge", "words", "--ray", "auto")
    assert "judges and recorded workers are on this machine alone" in podium(*command).complaint
