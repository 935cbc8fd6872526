"""The whole measurement, from the command on, with a router over words, which needs no weights."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.router import BAR, Decisions, RouterFigures, random_router
from podium.workers.local import weights

PAGE = (Path(__file__).parents[2] / "benchmarks" / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a short measurement prints."""
    pytest.importorskip("numpy")
    from support.routing import small_router

    file = tmp_path_factory.mktemp("router") / "router.json"
    small_router().save(file)
    result = CliRunner().invoke(app, ["router", "--quick", "--router", str(file)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def document(printed: str) -> Any:
    return json.loads(printed.splitlines()[-1])


def test_decisions_and_first_tokens_are_measured(document: Any, printed: str) -> None:
    assert set(document["decisions"]) == {"everyday", "a long question", "a huge question"}
    assert document["decisions"]["everyday"]["count"] == 20
    assert 0 < document["decision_p50_ms"] <= document["decision_p95_ms"]
    who = ("upstream", "unrouted", "routed")
    assert set(document["ttft_ms"]) == {*who, *(f"{name}, a long question" for name in who)}
    assert document["ttft_added_long_ms"] > 0
    assert "decisions: everyday: p50_ms" in printed


def test_what_is_added_is_counted_from_the_workers_own_first_token() -> None:
    figures = RouterFigures(
        decisions={"everyday": Decisions([0.001, 0.002, 0.009], 0.006)},
        first_tokens={
            "upstream": [0.001, 0.002, 0.003],
            "routed": [0.010, 0.012, 0.020],
            "upstream, a long question": [0.002],
            "routed, a long question": [0.022],
        },
        load_average=0.0,
    )
    assert figures.added_ms() == pytest.approx(10.0)
    assert figures.added_ms(", a long question") == pytest.approx(20.0)
    assert figures.decisions["everyday"].p50_ms == pytest.approx(2.0)
    assert figures.decisions["everyday"].cpu_ms == pytest.approx(2.0)


def told(figures: RouterFigures) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(figures.as_table())
    return captured.get()


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [([0.002] * 18 + [0.100] * 2, "met"), ([0.020] * 20, "MISSED")],
)
def test_the_bar_is_for_the_median_and_the_slowest_decisions_are_told_beside_it(
    seconds: list[float], verdict: str
) -> None:
    figures = RouterFigures(
        decisions={"everyday": Decisions(seconds, 0.1)}, first_tokens={}, load_average=4.0
    )
    table = told(figures)
    (median,) = [line for line in table.splitlines() if "decision_p50_ms" in line]
    (slowest,) = [line for line in table.splitlines() if "decision_p95_ms" in line]
    assert f"{BAR.sign} {BAR.limit:g}  {verdict}" in median
    assert f"{round(figures.decisions['everyday'].p95_ms, 2)}" in slowest
    assert BAR.sign not in slowest
    assert re.search(r"load_average \W+ 4\.0", table)


def test_the_page_has_the_bar_for_the_median_and_none_for_the_p95() -> None:
    rows = {row[3]: row[2] for line in PAGE.splitlines() if len(row := line.split("|")) == 5}
    assert rows[" `decision_p50_ms`, `decisions` "] == f" under {BAR.limit:g} ms "
    assert rows[" `decision_p95_ms`, `decisions` "].startswith(" none")


def test_a_router_that_is_made_to_be_measured_has_as_many_centres_as_there_can_be() -> None:
    if not weights.find("all-minilm-l6-v2").present:
        pytest.skip("the weights of all-minilm-l6-v2 are not here")
    from podium.conductors.routing.encoders import ScoringEncoder
    from podium.conductors.routing.scores import BUCKETS, MAX_CENTRES

    encoder = random_router(("one", "two")).encoder
    assert isinstance(encoder, ScoringEncoder)
    assert encoder.near.centres.shape[1] == MAX_CENTRES
    words = f"the {len(encoder.words.buckets):,} buckets of words that the everyday questions have"
    assert f"{words}, of {BUCKETS:,} that there can be" in " ".join(PAGE.split())
