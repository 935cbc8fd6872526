"""The whole measurement, from the command on, with a router over words, which needs no weights."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from podium.bench.cli import app
from podium.bench.router import Decisions, RouterFigures


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
    assert set(document["decisions"]) == {"everyday", "a long question"}
    assert document["decisions"]["everyday"]["count"] == 20
    assert 0 < document["decision_p50_ms"] <= document["decision_p95_ms"]
    assert set(document["ttft_ms"]) == {"upstream", "unrouted", "routed"}
    assert "decision, everyday" in printed


def test_what_is_added_is_counted_from_the_workers_own_first_token() -> None:
    figures = RouterFigures(
        decisions={"everyday": Decisions([0.001, 0.002, 0.009], 0.006)},
        first_tokens={"upstream": [0.001, 0.002, 0.003], "routed": [0.010, 0.012, 0.020]},
        load_average=0.0,
    )
    assert figures.added_ms == pytest.approx(10.0)
    assert figures.decisions["everyday"].p50_ms == pytest.approx(2.0)
    assert figures.decisions["everyday"].cpu_ms == pytest.approx(2.0)
