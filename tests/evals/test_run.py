from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from evals.support import setup_of
from podium.conductors import ModelConductor
from podium.core.errors import ConfigError, UsageError
from podium.core.request import Price
from podium.evals.log import EvalLogWriter, write_json
from podium.evals.results import notes, rows_table
from podium.evals.run import EvalReport, EvalSpec, run_eval
from podium.evals.sample import CountedWorker
from podium.workers.scripted import ScriptedWorker
from podium_lab.etudes.workers import oracle_workers


async def test_a_report_has_a_row_for_each_strategy_in_the_order_asked() -> None:
    wanted = EvalSpec(strategies=("random", "best-single", "ideal"), limit=8, seed=3)
    report = await run_eval(setup_of(oracle_workers()), wanted)
    document = json.loads(json.dumps(report.document()))
    assert (document["suite"], document["n"], document["seed"]) == ("etudes", 8, 3)
    assert [row["strategy"] for row in document["rows"]] == ["random", "best-single", "ideal"]
    _, best, ideal = document["rows"]
    assert ideal["accuracy"] == 1.0
    assert ideal["against_best_single"]["value"] == pytest.approx(1.0 - best["accuracy"])


async def test_the_same_seed_gives_the_same_report_whatever_the_concurrency() -> None:
    documents = [
        (
            await run_eval(
                setup_of(oracle_workers()),
                EvalSpec(strategies=("random", "moa"), limit=10, seed=5, concurrency=concurrency),
            )
        ).document()
        for concurrency in (1, 7)
    ]
    for document in documents:
        for row in document["rows"]:
            assert row.pop("seconds")["p50"] > 0
    assert documents[0] == documents[1]


async def test_a_file_of_ones_own_is_a_suite_over_the_pool_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    tasks = [
        {"question": "2 + 2?", "answer": "4", "grader": "number"},
        {"question": "3 + 3?", "answer": "6", "grader": "number"},
    ]
    file.write_text("\n".join(map(json.dumps, tasks)), "utf-8")
    workers = [ScriptedWorker("four", "4"), ScriptedWorker("five", "5")]
    wanted = EvalSpec(suite=str(file), strategies=("best-single", "majority"), limit=9)
    report = await run_eval(setup_of(workers), wanted)
    best, _ = report.rows
    assert best.note.startswith("single:four")
    assert best.accuracy.value == 0.5


async def test_a_suite_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no suite 'etude'"):
        await run_eval(setup_of(oracle_workers()), EvalSpec(suite="etude"))


def test_no_strategy_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="no strategy given"):
        EvalSpec(strategies=())


async def test_a_report_can_be_read_as_text() -> None:
    wanted = EvalSpec(strategies=("ideal", "best-single"), limit=4)
    rows = [(r.strategy, r) for r in (await run_eval(setup_of(oracle_workers()), wanted)).rows]
    header, _, ideal, _ = rows_table(rows).splitlines()
    columns, cells = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in (header, ideal)
    )
    assert columns[0] == "strategy"
    assert cells[:3] == ["ideal", "1.000", "0.510 to 1.000"]
    assert cells[columns.index("orchestration tokens")] == "0"
    (note,) = notes(rows)
    assert note.startswith("best-single: single:")


async def test_samples_of_another_grader_are_not_reused(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    workers = [ScriptedWorker("ann", "7"), ScriptedWorker("ben", "8")]
    wanted = EvalSpec(suite=str(file), strategies=("single:ann",), limit=None, judge="ann")

    def written(grader: str) -> None:
        file.write_text(json.dumps({"question": "6?", "answer": "7.0", "grader": grader}), "utf-8")

    async def measured(wanted: EvalSpec) -> float:
        with EvalLogWriter(tmp_path / "samples") as files:
            report = await run_eval(setup_of(workers), wanted, log=files)
        return report.rows[0].accuracy.value

    written("exact")
    assert await measured(wanted) == await measured(wanted) == 0.0
    with pytest.raises(UsageError, match="its judge is ann, expected ben; name a new"):
        await measured(replace(wanted, judge="ben"))
    written("number")
    with pytest.raises(UsageError, match="holds another evaluation: its file is"):
        await measured(wanted)


async def test_a_cap_needs_the_price_of_a_planner_that_was_not_trained_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"question": "6?", "answer": "7", "grader": "exact"}), "utf-8")
    free = Price(input=0, output=0)
    baseline = ModelConductor(ScriptedWorker("planner", "no plan"))
    setup = replace(
        setup_of([ScriptedWorker("ann", "7", price=free)]), baseline_conductors={"full": baseline}
    )
    wanted = EvalSpec(suite=str(file), strategies=("single:ann",), limit=None, cap_usd=1.0)
    assert (await run_eval(setup, wanted)).rows[0].accuracy.value == 1.0
    with pytest.raises(UsageError, match="planner"):
        await run_eval(setup, replace(wanted, strategies=("baseline-conductor",)))


DOLLAR = Price(input=0, output=1_000_000)
"""For each word."""


class Sessions:
    """Sessions in one directory, on four tasks, of two workers whose answers are a dollar each."""

    def __init__(self, directory: Path) -> None:
        self.output = directory / "out"
        self._file = directory / "mine.jsonl"
        tasks = [{"question": f"{n}?", "answer": "a", "grader": "exact"} for n in range(4)]
        self._file.write_text("".join(f"{json.dumps(task)}\n" for task in tasks), "utf-8")

    async def run(
        self, strategies: str, cap_usd: float | None, *, retry_errors: bool = False
    ) -> EvalReport:
        workers = [ScriptedWorker(name, "a", price=DOLLAR) for name in ("ann", "ben")]
        counted = {item.profile.name: CountedWorker(item, Counter()) for item in workers}
        wanted = EvalSpec(
            suite=str(self._file),
            strategies=strategies.split(),
            limit=None,
            concurrency=2,
            cap_usd=cap_usd,
            retry_errors=retry_errors,
        )
        with EvalLogWriter(self.output) as files:
            setup = replace(setup_of(workers), workers=counted)
            return await run_eval(setup, wanted, log=files)

    def spoil(self, strategy: str) -> None:
        """As if the grader had failed on each sample, which was paid for."""
        path = self.output / f"{strategy.replace(':', '-')}.jsonl"
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        failed = [
            {**line, "error": "the grader raised", "error_source": "the grader"} for line in lines
        ]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in failed), "utf-8")


@pytest.mark.parametrize("strategies", ["single:ann", "single:ann single:ben"])
async def test_a_cap_covers_strategies_of_earlier_sittings_that_come_later_or_not_at_all(
    tmp_path: Path, strategies: str
) -> None:
    sessions = Sessions(tmp_path)
    assert (await sessions.run("single:ben", 5.0)).stop is None
    stop = (await sessions.run(strategies, 5.0)).stop
    assert stop is not None
    assert (stop.spent_usd, stop.unfinished) == (5.0, {"single:ann": 1})


async def test_a_cap_counts_what_is_known_once(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await sessions.run("single:ben", None)
    assert (await sessions.run("single:ben single:ann", 8.0)).stop is None


async def test_a_cap_covers_samples_that_are_measured_again(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await sessions.run("single:ben", 5.0)
    sessions.spoil("single:ben")
    stops = [(await sessions.run("single:ben", 5.0, retry_errors=True)).stop for _ in range(2)]
    assert [stop and stop.spent_usd for stop in stops] == [5.0, 5.0]
    begun = json.loads((sessions.output / "evaluation.json").read_text("utf-8"))
    assert begun["dropped_usd"] == 4.0
    assert (await sessions.run("single:ben", 8.0)).stop is None
    assert (await sessions.run("single:ben", 8.0, retry_errors=True)).stop is None


async def test_dropped_cost_must_be_a_number(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await sessions.run("single:ben", None)
    begun = json.loads((sessions.output / "evaluation.json").read_text("utf-8"))
    assert "dropped_usd" not in begun  # as an older Podium wrote it
    write_json(sessions.output / "evaluation.json", {**begun, "dropped_usd": "much"})
    with pytest.raises(UsageError, match="expected a number of USD as dropped_usd, not 'much'"):
        await sessions.run("single:ben", 8.0)
