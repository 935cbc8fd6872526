from __future__ import annotations

from evals.samples import sample
from podium.evals.results import COLUMNS, StrategyRow, rows_table


def test_money_and_calls_of_a_task_are_reported_and_unknown_is_a_dash() -> None:
    known = StrategyRow(
        "a", (sample(True, cost_usd=0.00123, calls=2), sample(False, cost_usd=0.00123))
    )
    vague = StrategyRow("b", (sample(True, worker_tokens=None),))
    head, _, *lines = rows_table([("a", known), ("b", vague)]).splitlines()
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    assert tuple(columns) == COLUMNS
    first, second = (
        dict(zip(columns, map(str.strip, line.strip("|").split("|")), strict=True))
        for line in lines
    )
    assert (first["USD"], first["calls"], first["accuracy"]) == ("0.0012", "1.00", "0.500")
    assert (second["USD"], second["worker tokens"], second["valid"]) == ("–", "–", "1.000")
