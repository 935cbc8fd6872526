"""A run as HTML for notebooks: the answer, the graph of each plan, the steps and the cost.

Everything that a person or a model wrote is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from podium.core.run import Round, Run, StepRecord
    from podium.core.workflow import Workflow

WIDTH, HEIGHT, GAP = 140, 36, 44
MAX_SHOWN: Final = 400
"""The most characters of a subtask or reply that are shown."""

_FILL: Final[Mapping[str, str]] = {"done": "#d8f0dc", "failed": "#f8d7da", "waiting": "#fff3cd"}


def render_run(run: Run) -> str:
    """Return the run as HTML."""
    usage, cost = run.usage.total_tokens, run.cost_usd
    facts = [
        run.status,
        f"conductor {run.conductor}",
        "cost unknown" if cost is None else f"${cost:,.6f}".rstrip("0").rstrip("."),
        "tokens unknown" if usage is None else f"{usage:,} tokens",
        f"{run.spent.seconds:.1f} s",
    ]
    shown = run.answer if run.answer is not None else run.error or ""
    rounds = "".join(part for round_ in run.rounds for part in _render_round(round_))
    return (
        f"<div><p><b>{escape(run.question)}</b></p>"
        f'<p style="white-space:pre-wrap">{escape(shown)}</p>'
        f"<p><small>{escape(' · '.join(facts))}</small></p>{rounds}</div>"
    )


def _render_round(round_: Round) -> Iterator[str]:
    if round_.workflow is None:
        return
    records = {step.index: step for step in round_.steps}
    yield _draw_graph(round_.workflow, records)
    yield "<table><tr><th>step</th><th>worker</th><th>subtask</th><th>reply</th><th>cost</th></tr>"
    for index, step in enumerate(round_.workflow.steps):
        record = records.get(index)
        reply = "" if record is None else record.reply or record.error or record.status
        cost = None if record is None else record.cost_usd
        cells = (str(index), step.worker, step.subtask, reply, "" if cost is None else f"${cost:g}")
        yield "<tr>" + "".join(f"<td>{escape(_shorten(cell))}</td>" for cell in cells) + "</tr>"
    yield "</table>"


def _draw_graph(workflow: Workflow, records: Mapping[int, StepRecord]) -> str:
    """Return the plan as SVG: a column for each depth, a line for each result that is read."""
    depths: list[int] = []
    places: list[tuple[int, int]] = []
    for index in range(len(workflow)):
        depths.append(1 + max((depths[n] for n in workflow.waits_for(index)), default=-1))
        row = depths[:-1].count(depths[-1])
        places.append((depths[-1] * (WIDTH + GAP), row * (HEIGHT + 12)))
    lines = "".join(
        f'<line x1="{places[n][0] + WIDTH}" y1="{places[n][1] + HEIGHT // 2}" '
        f'x2="{x}" y2="{y + HEIGHT // 2}" stroke="#888"/>'
        for index, (x, y) in enumerate(places)
        for n in workflow.waits_for(index)
    )
    boxes = "".join(
        f'<g transform="translate({x},{y})"><title>{escape(step.subtask)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" stroke="#888" fill="{_fill(record)}"/>'
        f'<text x="8" y="{HEIGHT // 2 + 4}" font-size="12" fill="#222">'
        f"{escape(f'{index} {step.worker}'[:20])}</text></g>"
        for index, (step, (x, y)) in enumerate(zip(workflow.steps, places, strict=True))
        for record in (records.get(index),)
    )
    width = max(x for x, _ in places) + WIDTH + 2
    height = max(y for _, y in places) + HEIGHT + 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="-1 -1 {width} {height}" role="img" aria-label="the plan">{lines}{boxes}</svg>'
    )


def _fill(record: StepRecord | None) -> str:
    return _FILL.get("" if record is None else record.status, "#eee")


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
