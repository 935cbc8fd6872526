"""A run as HTML for notebooks: answer, cost, and each plan with the steps that its steps read.

Everything that a person or a model wrote is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from podium.core.run import Round, Run

MAX_SHOWN: Final = 400
"""The most characters of a subtask or reply that are shown."""


def render_run(run: Run) -> str:
    """Return the run as HTML."""
    usage = run.usage.total_tokens
    facts = (
        run.status,
        f"conductor {run.conductor}",
        _format_cost(run.cost_usd) or "cost unknown",
        "tokens unknown" if usage is None else f"{usage:,} tokens",
        f"{run.spent.seconds:.1f} s",
    )
    answer = run.answer if run.answer is not None else run.error or ""
    return (
        f"<div><p><b>{escape(run.question)}</b></p>"
        f'<p style="white-space:pre-wrap">{escape(answer)}</p>'
        f"<p><small>{escape(' · '.join(facts))}</small></p>"
        f"{''.join(map(_render_plan, run.rounds))}</div>"
    )


def _render_plan(round_: Round) -> str:
    if round_.workflow is None:
        return ""
    records = {record.index: record for record in round_.steps}
    rows = _render_row("th", ("step", "after", "worker", "subtask", "reply", "cost"))
    for index, step in enumerate(round_.workflow.steps):
        record = records.get(index)
        after = ", ".join(map(str, round_.workflow.waits_for(index)))
        reply = "" if record is None else record.reply or record.error or record.status
        cost = "" if record is None else _format_cost(record.cost_usd)
        rows += _render_row("td", (str(index), after, step.worker, step.subtask, reply, cost))
    return f"<table>{rows}</table>"


def _render_row(tag: str, cells: Iterable[str]) -> str:
    shown = (cell if len(cell) <= MAX_SHOWN else f"{cell[: MAX_SHOWN - 1]}…" for cell in cells)
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in shown) + "</tr>"


def _format_cost(usd: float | None) -> str:
    return "" if usd is None else f"${usd:,.6f}".rstrip("0").rstrip(".")
