"""Runs to read: a question, what was expected, what came, and every step on the way.

Everything here was written by models or users, and is text to be read, never markup.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from podium.core.roles import roles
from podium.core.run import Round, Run, StepRecord
from podium.core.workflow import Access, Step
from podium.evals.page.markup import Markup, element
from podium.evals.page.numbers import amount, seconds, usd
from podium.evals.sample import Sample

LONGEST: Final = 4_000
"""So many letters of a text are shown; of the rest, how many there are."""

LONGEST_TITLE: Final = 160
DEEPEST: Final = 3
"""Runs within runs are shown so deep."""


def long_text(words: str) -> Markup:
    """A text with its line breaks, cut off where it is too long for a page."""
    if not words:
        return element("p", "nothing", class_="nothing")
    rest = len(words) - LONGEST
    if rest <= 0:
        return element("pre", words)
    return element(
        "pre", words[:LONGEST], element("span", f"\n… {rest:,} letters more", class_="more")
    )


def title_of(question: str) -> str:
    """The beginning of a question, in one line."""
    line = " ".join(question.split())
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1]}…"


def verdict(words: Literal["right", "wrong", "gained", "lost"]) -> Markup:
    """How something came out."""
    return element("span", words, class_=f"verdict {words}")


def run_to_read(sample: Sample, run: Run) -> Markup:
    """A sample with its whole run."""
    parts = [
        _labelled("Question", long_text(run.question)),
        element(
            "div",
            _labelled("Expected", long_text(sample.expected)) if sample.expected else "",
            _labelled("ApiResult", long_text(run.answer or "")),
            class_="pair",
        ),
    ]
    if sample.fault is not None:
        whose = f" ({sample.at_fault})" if sample.at_fault else ""
        parts.append(_labelled(f"What failed{whose}", long_text(sample.fault)))
    if sample.judge is not None:
        parts.append(element("p", f"The grade is the opinion of {sample.judge}.", class_="aside"))
    return element("div", *parts, *_rounds(run, 0), class_="run")


def _labelled(label: str, content: Markup) -> Markup:
    return element("section", element("h5", label), content)


def _rounds(run: Run, depth: int) -> Iterator[Markup]:
    found = iter(roles(run))
    for round_ in run.rounds:
        named = [next(found).value for _ in (round_.workflow.steps if round_.workflow else ())]
        yield _round(round_, named, len(run.rounds) > 1, depth)


def _round(round_: Round, named: list[str], is_one_of_many: bool, depth: int) -> Markup:
    shape = "accepted as it was" if round_.accepted else "no plan came of it"
    if round_.workflow is not None:
        count = len(round_.workflow)
        shape = f"{round_.workflow.shape.value}, {count} {'step' if count == 1 else 'steps'}"
    which = f"Round {round_.index + 1}: " if is_one_of_many else "Workflow: "
    parts = [element("h5", which, shape)]
    if round_.plan_text:
        summary = element("summary", "What the conductor wrote")
        parts.append(element("details", summary, long_text(round_.plan_text), class_="inner"))
    parts += [element("p", warning, class_="aside") for warning in round_.warnings]
    steps = [_step(step, named, depth) for step in round_.steps]
    done = {step.index for step in round_.steps}
    planned = round_.workflow.steps if round_.workflow is not None else ()
    steps += [
        _only_planned(step, named[index]) for index, step in enumerate(planned) if index not in done
    ]
    return element("section", *parts, element("ol", *steps, class_="steps", start=0))


def _step(step: StepRecord, named: list[str], depth: int) -> Markup:
    role = named[step.index] if step.index < len(named) else ""
    who = step.worker
    if step.answered_by and step.answered_by != step.worker:
        who = f"{step.worker}, in its place {step.answered_by}"
    took = (step.finished_ms - step.started_ms) / 1000
    facts = [
        f"reads {_access(step.access)}",
        f"{amount(step.usage.total_tokens)} tokens",
        usd(step.cost_usd),
        seconds(took),
    ]
    head = element(
        "p",
        element("b", who),
        element("span", role, class_="role") if role else "",
        element("span", step.status, class_="verdict wrong") if step.status != "done" else "",
        element("small", " · ".join(facts)),
        class_="who",
    )
    parts = [head, element("p", step.subtask, class_="subtask")]
    if step.error:
        parts.append(element("p", step.error, class_="error"))
    if step.reply:
        summary = element("summary", "Reply: ", element("q", title_of(step.reply)))
        parts.append(element("details", summary, long_text(step.reply), class_="inner"))
    if step.nested and depth < DEEPEST:
        inner = list(_rounds(step.nested[-1], depth + 1))
        summary = element("summary", "The run behind this step")
        parts.append(element("details", summary, *inner, class_="inner"))
    return element("li", *parts)


def _only_planned(step: Step, role: str) -> Markup:
    """A step that nobody carried out: where plans are graded, or where the run ended before."""
    head = element(
        "p",
        element("b", step.worker),
        element("span", role, class_="role"),
        element("small", f"reads {_access(step.access)} · not carried out"),
        class_="who",
    )
    return element("li", head, element("p", step.subtask, class_="subtask"))


def _access(access: Access) -> str:
    if access == "all":
        return "everything before it"
    return ", ".join(map(str, access)) or "nothing"
