"""A run written out as a whole: JSON that loads again, or a page for people."""

from __future__ import annotations

import json
import re

from podium.cli.text import clean, one_line
from podium.cli.wording import ending, plan_line, step_line, total
from podium.run import Run, dump


def as_json(run: Run) -> str:
    """All of the run, with its version; `podium.run.load` reads it back."""
    return json.dumps(dump(run), indent=2)


def as_markdown(run: Run) -> str:
    """The run as a page: question, answer, plans, and what every step was asked and replied."""
    parts = [f"# {_line(run.question)}", _line(f"{total(run)}, {run.created_at}")]
    if run.error is not None:
        parts.append(_line(f"Error: {run.error}"))
    parts += ["## Answer", _fenced(run.answer) if run.answer is not None else "There is none."]
    for round_ in run.rounds:
        parts.append(f"## {_line(plan_line(run, round_).capitalize())}")
        steps = round_.workflow.steps if round_.workflow else ()
        parts.append(
            "\n".join(f"- {_line(step_line(index, step))}" for index, step in enumerate(steps))
        )
        for record in round_.steps:
            parts.append(f"### Step {record.index}: {_line(record.worker)}")
            parts.append(_line(ending(record)))
            parts += ["Asked:", _fenced(record.prompt), "Replied:", _fenced(record.reply)]
    return "\n\n".join(part for part in parts if part)


def _line(text: str) -> str:
    """Text on one line, with what Markdown would obey made plain."""
    return re.sub(r"([\\`*_\[\]<>])", r"\\\1", one_line(text))


def _fenced(text: str) -> str:
    """Text as it is, inside a fence that nothing in it can close."""
    words = clean(text)
    longest = max((len(found) for found in re.findall("`+", words)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{words}\n{fence}"
