"""The table of real workers: what follows from the samples, and that a committed one does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from podium.cli import main
from podium.core.errors import UsageError
from podium.core.run import Round
from podium.evals.log import EvalLogWriter
from podium.evals.results import StrategyRow
from podium.evals.sample import Sample
from support.rollouts import run_of

pytest.importorskip("numpy")

from podium_lab.evals.real_table import RealTable, picture, read_rows, read_samples, write_samples

RESULTS = Path(__file__).parents[3] / "results"
FIXTURE = Path(__file__).parent / "data" / "real-fixture.json"
"""Made-up samples of two made-up suites: no measurement."""

RUN = run_of(Round(0, None, accepts_answer=True))
SUITES = {"sums": 40, "words": 30}

Right = Callable[[str, int], bool]
OUTCOMES: dict[str, Right] = {
    "single:ann": lambda suite, n: n % 2 == 0 if suite == "sums" else n % 5 == 0,
    "single:bob": lambda suite, n: n % 10 == 0 if suite == "sums" else n % 3 != 0,
    "program": lambda suite, n: n % 4 < 2,
    "conductor": lambda suite, n: n % 10 != 0 if suite == "sums" else n % 3 != 0,
    "recursion": lambda suite, n: n % 10 != 0 if suite == "sums" else n % 3 != 0,
}


def sample(suite: str, strategy: str, number: int) -> Sample:
    steps = 1 + (strategy == "conductor" and number % 2)
    return Sample(
        task=f"{suite}/{number}",
        kind=suite,
        skills=None,
        right=OUTCOMES[strategy](suite, number),
        valid=True,
        workers=("ann", "bob")[:steps],
        shape="",
        worker_tokens=100 * steps,
        orchestration_tokens=10,
        seconds=0.0,
        calls=steps,
    )


def rows() -> dict[str, dict[str, StrategyRow]]:
    return {
        name: {
            suite: StrategyRow(name, tuple(sample(suite, name, n) for n in range(count)))
            for suite, count in SUITES.items()
        }
        for name in OUTCOMES
    }


def test_derived_rows_follow_from_the_workers_alone() -> None:
    document = RealTable(rows()).document()
    assert document["suites"] == SUITES
    table = document["rows"]
    assert document["best_worker"] == "bob"
    assert table["best-single"]["mean"] == pytest.approx((0.1 + 2 / 3) / 2, abs=1e-6)
    assert (table["best-per-suite"]["sums"], table["best-per-suite"]["words"]) == (0.5, 0.666667)
    assert table["oracle"]["sums"] == 0.5  # bob is right where ann is
    assert table["oracle"]["words"] == pytest.approx(22 / 30, abs=1e-6)
    assert table["conductor"]["worker_tokens"] == 150.0
    assert table["conductor"]["interval"][0] < table["conductor"]["mean"]


def test_differences_are_paired() -> None:
    table = RealTable(rows())
    same = table.difference("recursion", "conductor")
    assert (same.low, same.value, same.high) == (0.0, 0.0, 0.0)
    lead = table.difference("conductor", "best-single", "sums")
    assert lead.value == pytest.approx(0.8)
    assert 0.5 < lead.low < 0.8 < lead.high <= 1.0


def test_bars_compare_the_conductor_with_the_best_of_each_kind() -> None:
    document = RealTable(rows()).document()
    requirements = {found["name"]: found for found in document["requirements"]}
    assert requirements["conductor - best-single"]["met"] is True
    assert requirements["conductor - program"]["limit"] == 0.02
    assert requirements["worker tokens of conductor over program"] == {
        "name": "worker tokens of conductor over program",
        "reached": 1.5,
        "limit": 1.0,
        "met": False,
    }
    assert requirements["recursion - conductor, words"]["met"] is True


def test_plan_statistics_are_reported_by_suite() -> None:
    plans = RealTable(rows()).document()["conductor"]
    assert plans["one_step"] == {"sums": 0.5, "words": 0.5}
    assert plans["steps"] == {"1": 35, "2": 35}
    assert plans["worker_shares"] == {"ann": 0.666667, "bob": 0.333333}


def test_a_table_needs_workers_alone() -> None:
    with pytest.raises(UsageError, match="best-single"):
        RealTable({name: row for name, row in rows().items() if "single" not in name})


@pytest.mark.parametrize("file", [FIXTURE, *RESULTS.glob("real.json")], ids=lambda path: path.stem)
def test_a_committed_table_follows_from_its_samples(file: Path) -> None:
    written = json.loads(file.read_text("utf-8"))
    samples = read_samples(file.with_name(f"{file.stem}-samples.json.gz"))
    assert RealTable(samples).document() == written


def test_the_fixture_is_the_made_up_one(tmp_path: Path) -> None:
    write_samples(rows(), tmp_path / "samples.gz")
    fixture = read_samples(FIXTURE.with_name("real-fixture-samples.json.gz"))
    assert read_samples(tmp_path / "samples.gz") == fixture


def test_evaluations_become_a_table_a_picture_and_samples(tmp_path: Path) -> None:
    for suite, count in SUITES.items():
        with EvalLogWriter(tmp_path / suite) as log:
            (tmp_path / suite / "evaluation.json").write_text(json.dumps({"suite": suite}))
            for name in OUTCOMES:
                for number in range(count):
                    log.write_sample(
                        name,
                        sample(suite, name, number),
                        run_of(Round(0, None, accepts_answer=True)),
                    )
    directories = [tmp_path / suite for suite in SUITES]
    assert set(read_rows(directories)) == set(OUTCOMES)
    target = tmp_path / "real.json"
    assert main(["lab", "reality-table", *map(str, directories), "--file", str(target)]) == 0
    written = json.loads(target.read_text("utf-8"))
    assert written == RealTable(rows()).document()
    assert RealTable(read_samples(tmp_path / "real-samples.json.gz")).document() == written
    drawn = (tmp_path / "real.svg").read_text("utf-8")
    assert drawn == picture(written)
    assert drawn.count("<rect") == len(written["rows"])
    with pytest.raises(UsageError, match="on sums again"):
        read_rows([*directories, directories[0]])


def test_tables_of_other_suites_are_put_together_by_their_samples(tmp_path: Path) -> None:
    paths = []
    for suite in SUITES:
        paths.append(tmp_path / f"{suite}.json.gz")
        write_samples({name: {suite: row[suite]} for name, row in rows().items()}, paths[-1])
    assert RealTable(read_rows(paths)).document() == RealTable(rows()).document()
