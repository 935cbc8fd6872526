"""The prompt that asks a model for a plan, filled in from the text files in `prompts/`.

Texts of users and workers stand between tags that no text inside can close. A prompt is a pure
function of its context, as replay and caches need. It begins with what all questions share, the
instructions and the pool, so that providers and llama.cpp read it from their prompt caches.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from string import Template
from typing import Any, Final, Literal, NamedTuple

from podium.conductors import plan
from podium.core.conductor import PlanningContext
from podium.core.errors import MalformedPlan, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile, is_capable
from podium.core.request import Message, assistant, system, user
from podium.core.run import Round, StepRecord
from podium.core.tags import unused_suffix
from podium.core.workflow import Shape, Step, Workflow


def fill_in(name: str, **values: str) -> str:
    """Fill in the placeholders of a prompt file, in one pass."""
    return Template(prompt_text(name)).substitute(values)


@cache
def prompt_text(name: str) -> str:
    return resources.files(__package__).joinpath("prompts", name).read_text("utf-8").strip()


PLANNING_CAPABILITIES: Final = ("vision", "tools", "long_context", "reasoning")
"""Capabilities that a conductor is shown; the others concern only the wire."""


def model_list(pool: Pool) -> str:
    """List the pool for a model that follows instructions: names, descriptions, traits."""
    return "\n".join(_line(index, worker, pool.mask_names) for index, worker in enumerate(pool))


def short_model_list(pool: Pool) -> str:
    """List the pool for a model that was trained to plan: descriptions, and names if not masked.

    The id comes last: a small model finds it again by the description before it.
    """
    return "\n".join(_short_line(i, worker, pool.mask_names) for i, worker in enumerate(pool))


def _short_line(index: int, worker: WorkerProfile, masked: bool) -> str:
    parts = ["" if masked else worker.name, on_one_line(worker.description)]
    return f"{' — '.join(filter(None, parts))} = {index}".removeprefix(" = ")


def _line(index: int, worker: WorkerProfile, masked: bool) -> str:
    description = on_one_line(worker.description)
    if masked:
        return f"Model id {index}: {description}" if description else f"Model id {index}"
    named = f"{index}: {worker.name} — {description}" if description else f"{index}: {worker.name}"
    traits = _capability_words(worker)
    return f"{named} [{', '.join(traits)}]" if traits else named


def _capability_words(worker: WorkerProfile) -> list[str]:
    traits = [c.replace("_", " ") for c in PLANNING_CAPABILITIES if c in worker.capabilities]
    if worker.provider == CONDUCTOR_PROVIDER:
        traits.append("leads a team of its own")
    if worker.price is not None:
        traits.append(_price_band(worker.price.output))
    return traits


def _price_band(dollars: float) -> str:
    """Return a price band, from the price of a million output tokens."""
    if dollars == 0:
        return "free"
    return "cheap" if dollars < 2 else "medium price" if dollars < 12 else "expensive"


def on_one_line(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Example:
    """A question and a good plan for it, over a pool of its own."""

    shape: Shape
    question: str
    reasoning: str
    pool: Pool
    workflow: Workflow


@cache
def examples() -> tuple[Example, ...]:
    document = tomllib.loads(prompt_text("examples.toml"))
    return tuple(
        Example(
            shape=Shape(entry["shape"]),
            question=entry["question"],
            reasoning=entry["reasoning"],
            pool=Pool(tuple(WorkerProfile(**worker) for worker in entry["workers"])),
            workflow=plan.read_workflow({"steps": entry["steps"]}),
        )
        for entry in document["example"]
    )


def compact_examples(context: PlanningContext) -> Iterator[tuple[str, Workflow]]:
    """Yield a checked answer and a single one; the last example weighs most."""
    checked, alone = prompt_text("compact_examples.txt").splitlines()
    first, last = context.pool.names[0], context.pool.names[-1]
    if context.max_steps > 1 and first != last:
        yield checked, Workflow((Step(first, checked), Step(last, checked, (0,))))
    yield alone, Workflow((Step(first, alone),))


def with_binary_access(workflow: Workflow) -> Workflow:
    """Return the workflow with binary access: a step reads everything before it, or nothing."""
    return Workflow(
        tuple(replace(step, access="all" if step.access else ()) for step in workflow.steps)
    )


PromptStyle = Literal["full", "compact", "trained"]
"""`full` is the paper's structure; `compact` is for models too small to word a subtask; `trained`
is for models that were trained to plan with this prompt."""

PlanFormat = Literal["lists", "json", "grammar"]
"""Reasoning and then the three lists; JSON step by step; or the three lists under a grammar."""

AccessForm = Literal["index", "binary"]
"""The access of a step: chosen steps, or all or nothing as in the paper."""

TAGS: Final = ("question", "conversation", "answer", "objection")
_TURN: Final = re.compile(r"^(?=[ \t]?(?:system|user|assistant|tool)[ \t]*:)", re.IGNORECASE | re.M)

EMPTY_REPLY: Final = "(no text)"
"""Stands for an empty reply that is quoted back: providers refuse an empty turn."""

LONGEST_LINE: Final = 200
"""Characters of a step's reply that a trained model is shown."""


class TextLimits(NamedTuple):
    """Characters of answers and conversations in a prompt."""

    answer: int
    conversation: int


TEXT_LIMITS: Final[dict[PromptStyle, TextLimits]] = {
    "full": TextLimits(answer=16_000, conversation=8_000),
    "compact": TextLimits(answer=1_500, conversation=600),
    "trained": TextLimits(answer=1_500, conversation=600),
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt's style, plan format, examples and access.

    A trained model writes the bare lists, with a grammar or without, and is shown no examples.
    """

    style: PromptStyle = "full"
    plan_format: PlanFormat = "lists"
    few_shot: bool = True
    access: AccessForm = "index"

    def __post_init__(self) -> None:
        if self.style == "trained" and self.plan_format == "json":
            raise UsageError(
                "a model that was trained to plan needs no schema; take the format lists or "
                "grammar, or another prompt"
            )

    @property
    def layout(self) -> plan.PlanLayout:
        return "step-by-step" if self.style == "trained" or self.plan_format == "json" else "lists"

    def messages(self, context: PlanningContext) -> tuple[Message, ...]:
        """Return the messages that ask for the next round's plan."""
        mark = _mark(context)
        opening = self._opening_messages(context, mark)
        previous = next((r for r in reversed(context.rounds) if r.workflow is not None), None)
        if previous is None or previous.workflow is None:
            return opening
        return (
            *opening,
            assistant(self._previous_plan_text(previous, previous.workflow, context.pool)),
            user(
                self._revision(context, previous, previous.workflow, mark)
                + _guardrail_note(context, mark)
            ),
        )

    def chat(self, context: PlanningContext) -> list[dict[str, str]]:
        """Return the messages as a chat template takes them."""
        return [{"role": one.role, "content": one.text} for one in self.messages(context)]

    def reask(self, text: str, problem: MalformedPlan) -> tuple[Message, ...]:
        written = _end_of(text, TEXT_LIMITS[self.style].answer)
        return (
            assistant(written if written.strip() else EMPTY_REPLY),
            user(fill_in("reask.txt", problem=str(problem), output=self._output)),
        )

    def opener(self, context: PlanningContext) -> str:
        """Return the beginning of a reply, for models that continue a prefilled one."""
        if self.plan_format == "lists":
            name = "opener_again.txt" if context.rounds else "opener.txt"
            return "" if self.style == "trained" else prompt_text(name)
        return plan.forced_opening(self.layout, may_accept=context.answer is not None)

    @property
    def files(self) -> tuple[str, ...]:
        shared = {"conversation.txt", "images.txt", "objection.txt", "reask.txt"}
        return tuple(sorted({*self._own_files, *shared, self._output_file, self._access_file}))

    @property
    def _own_files(self) -> tuple[str, ...]:
        if self.style == "trained":
            ends = ("", "_answered", "_failed", "_unanswered")
            return tuple(f"trained{end}.txt" for end in ends)
        own: tuple[str, ...] = ("answer.txt", "no_answer.txt", self._acceptance_file)
        if self.plan_format == "lists":
            own += ("opener.txt", "opener_again.txt")
        if self.style == "compact":
            own += ("compact.txt", "compact_revise.txt")
            return (*own, "compact_examples.txt") if self.few_shot else own
        own += ("full.txt", "full_question.txt", "question_shared.txt", "question_withheld.txt")
        own += ("revise.txt",)
        if self.few_shot:
            own += ("example.txt", "examples.toml", "examples.txt")
            own += ("examples_shared.txt", "examples_withheld.txt")
        return own

    @property
    def hash(self) -> str:
        digest = hashlib.sha256()
        for name in self.files:
            digest.update(f"{name}\0{prompt_text(name)}\0".encode())
        return digest.hexdigest()[:16]

    @property
    def _output_file(self) -> str:
        return f"output_{'trained' if self.style == 'trained' else self.plan_format}.txt"

    @property
    def _output(self) -> str:
        entries = self._access_words["entries"]
        return fill_in(
            self._output_file, entries=entries["json" if self.plan_format == "json" else "lists"]
        )

    @property
    def _access_file(self) -> str:
        return f"access_{self.access}.toml"

    @property
    def _access_words(self) -> dict[str, Any]:
        return tomllib.loads(prompt_text(self._access_file))

    @property
    def _acceptance_file(self) -> str:
        return "accept_json.txt" if self.plan_format == "json" else "accept_lists.txt"

    def _opening_messages(self, context: PlanningContext, mark: str) -> tuple[Message, ...]:
        if self.style == "compact":
            return self._compact_messages(context, mark)
        if self.style == "trained":
            return self._trained_messages(context, mark)
        instructions = fill_in(
            "full.txt",
            models=model_list(context.pool),
            visibility=prompt_text(f"question_{_seen(context.pool)}.txt"),
            access=self._access_words["rule"],
            output=self._output,
            examples=self._examples(context),
        )
        question = fill_in(
            "full_question.txt",
            question=context.question,
            mark=mark,
            max_steps=str(context.max_steps),
            conversation=self._conversation(context.history, mark),
        )
        return (system(instructions), user(question + _images(context)))

    def _compact_messages(self, context: PlanningContext, mark: str) -> tuple[Message, ...]:
        """Return the task as a conversation that the model only has to continue."""
        turns = [system(fill_in("compact.txt", models=model_list(context.pool)))]
        if self.few_shot:
            for question, workflow in compact_examples(context):
                said = self._write_plan(self._with_prompt_access(workflow), context.pool, "")
                turns += (user(question), assistant(said))
        conversation = self._conversation(context.history, mark)
        return (*turns, user(conversation + context.question + _images(context)))

    def _trained_messages(self, context: PlanningContext, mark: str) -> tuple[Message, ...]:
        conversation = self._conversation(context.history, mark)
        return (
            system(fill_in("trained.txt", models=short_model_list(context.pool))),
            user(conversation + context.question + _images(context)),
        )

    def _conversation(self, history: tuple[Message, ...], mark: str) -> str:
        turns = _last_turns(history, TEXT_LIMITS[self.style].conversation)
        return fill_in("conversation.txt", turns=turns, mark=mark) + "\n\n" if turns else ""

    def _examples(self, context: PlanningContext) -> str:
        fitting = [e for e in examples() if len(e.workflow) <= context.max_steps]
        if not self.few_shot or not fitting:
            return ""
        masked = context.pool.mask_names
        shown = [
            self._example(number, example, replace(example.pool, mask_names=masked))
            for number, example in enumerate(fitting, start=1)
        ]
        visibility = prompt_text(f"examples_{_seen(context.pool)}.txt")
        return fill_in("examples.txt", visibility=visibility, examples="\n\n".join(shown)) + "\n\n"

    def _example(self, number: int, example: Example, pool: Pool) -> str:
        return fill_in(
            "example.txt",
            number=str(number),
            models=model_list(pool),
            question=example.question,
            reply=self._write_plan(
                self._with_prompt_access(example.workflow), pool, example.reasoning
            ),
        )

    def _with_prompt_access(self, workflow: Workflow) -> Workflow:
        return workflow if self.access == "index" else with_binary_access(workflow)

    def _write_plan(self, workflow: Workflow, pool: Pool, reasoning: str) -> str:
        if self.plan_format == "json":
            return json.dumps(plan.workflow_document(workflow, pool), ensure_ascii=False)
        lists = plan.write(workflow, pool, layout=self.layout)
        return f"{reasoning}\n{lists}" if reasoning and self.plan_format == "lists" else lists

    def _previous_plan_text(self, previous: Round, workflow: Workflow, pool: Pool) -> str:
        """Return the previous round's plan text, or the bare plan where another was executed."""
        text, is_later = previous.plan_text, previous.index > 0
        written = self._write_plan(workflow, pool, "")
        if text == written:  # the usual case in training, where reading it would take longest
            return written
        try:
            parsed = plan.parse(text, pool, max_steps=len(workflow), may_accept=is_later)
        except MalformedPlan:
            return written
        if parsed.workflow != workflow:
            return written
        return _end_of(text, TEXT_LIMITS[self.style].answer)

    def _revision(
        self, context: PlanningContext, previous: Round, workflow: Workflow, mark: str
    ) -> str:
        if self.style == "trained":
            file = "trained_unanswered.txt" if context.answer is None else "trained_answered.txt"
            return fill_in(file, steps="\n".join(_replies(previous, len(workflow))))
        shared = {
            "result": self._result(context, mark),
            "acceptance": prompt_text(self._acceptance_file),
        }
        if self.style == "compact":
            return fill_in("compact_revise.txt", **shared)
        return fill_in(
            "revise.txt",
            steps="\n".join(_step_status(step, context.pool) for step in previous.steps),
            max_steps=str(context.max_steps),
            access=self._access_words["again"],
            **shared,
        )

    def _result(self, context: PlanningContext, mark: str) -> str:
        if context.answer is None:
            return prompt_text("no_answer.txt")
        answer = _end_of(context.answer, TEXT_LIMITS[self.style].answer)
        return fill_in("answer.txt", answer=answer, mark=mark)


def _images(context: PlanningContext) -> str:
    """Return the note on images and the workers that can see them.

    It is empty without images, so that such a prompt equals those of the training.
    """
    if not context.images:
        return ""
    seeing = [
        str(index)
        for index, worker in enumerate(context.pool)
        if is_capable(worker, frozenset({"vision"}), context.pool)
    ]
    note = fill_in("images.txt", count=str(len(context.images)), models=", ".join(seeing) or "none")
    return f"\n\n{note}"


def _guardrail_note(context: PlanningContext, mark: str) -> str:
    """Return a guardrail's objection, if any, between tags: it may quote a worker's reply."""
    if not context.replan_reason:
        return ""
    reason = on_one_line(context.replan_reason)
    return "\n\n" + fill_in("objection.txt", reason=reason, mark=mark)


def _seen(pool: Pool) -> Literal["shared", "withheld"]:
    return "shared" if pool.share_question else "withheld"


def _step_status(step: StepRecord, pool: Pool) -> str:
    return f"step {step.index} (model {pool.index(step.worker)}): {step.status}"


def _replies(round_: Round, length: int) -> Iterator[str]:
    """Yield one line for each step's reply; no reply can pass for another line."""
    replies = {step.index: step.reply for step in round_.steps if step.status == "done"}
    for index in range(length):
        if index in replies:
            line = _end_of(on_one_line(replies[index]), LONGEST_LINE) or EMPTY_REPLY
        else:
            line = prompt_text("trained_failed.txt")
        yield f"{index}: {line}"


def _last_turns(history: Iterable[Message], limit: int) -> str:
    turns = [f"{turn.role}: {_one_turn(turn.text)}" for turn in history if turn.text.strip()]
    return _end_of("\n".join(turns), limit)


def _one_turn(text: str) -> str:
    """Indent lines that look like a turn: in a nested run they may be a worker's reply."""
    return _TURN.sub("  ", text) if ":" in text else text


def _end_of(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"[…]{text[-limit:]}"


def _mark(context: PlanningContext) -> str:
    """Return a suffix for this prompt's tags, such that no text inside can close them."""
    turns = [turn.text for turn in context.history]
    replies = [step.reply for round_ in context.rounds for step in round_.steps]
    return unused_suffix(TAGS, [context.question, *turns, *replies, context.replan_reason])
