"""The words with which a model is asked to conduct.

The words themselves are text files (`prompt_files`); this module fills them in, with worked
examples (`examples`) where they are wanted, and asks nobody. Texts that users and workers wrote
are put between tags that no text inside can close, and each file is filled in one pass, so that
nothing inside such a text is ever taken for a part of the prompt. Every prompt is a pure function
of the situation: the same question gives the same words, which is what replay and caches need.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from podium.conductors import plan
from podium.conductors.prompt_parts import (
    Example,
    all_or_nothing,
    compact_examples,
    examples,
    filled,
    model_list,
    on_one_line,
    prompt_text,
    short_model_list,
)
from podium.core.conductor import PlanningContext
from podium.core.errors import MalformedPlan, UsageError
from podium.core.pool import Pool
from podium.core.request import Message, assistant, system, user
from podium.core.requirements import is_capable
from podium.core.run import Round, StepRecord
from podium.core.tags import unused_suffix
from podium.core.workflow import Workflow

Length = Literal["full", "compact", "trained"]
"""`full` is the paper's structure; `compact` is for models so small that they follow examples
rather than instructions, and cannot word a subtask; `trained` is for models that were trained to
plan with just these words, and need neither."""

Form = Literal["lists", "json", "grammar"]
"""How the plan is to be written: free thinking and then the three lists; a JSON object that a
schema holds to its form; or the three lists alone, which a grammar holds to theirs."""

AccessForm = Literal["index", "binary"]
"""What a step may be given to read: chosen steps, or everything before it or nothing at all, as
in the paper."""

TAGS: Final = ("question", "conversation", "answer", "objection")
_TURN: Final = re.compile(r"^(?=[ \t]?(?:system|user|assistant|tool)[ \t]*:)", re.IGNORECASE | re.M)

EMPTY_REPLY: Final = "(no text)"
"""Stands for an empty reply when it is quoted back: providers refuse an empty turn."""

LONGEST_LINE: Final = 200
"""How many characters of a step's reply a trained model is shown."""


class Limits(NamedTuple):
    """How many characters of other people's text a prompt of each length may carry."""

    answer: int
    conversation: int


LIMITS: Final[dict[Length, Limits]] = {
    "full": Limits(answer=16_000, conversation=8_000),
    "compact": Limits(answer=1_500, conversation=600),
    "trained": Limits(answer=1_500, conversation=600),
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """How to ask for a plan: which words, which form, with or without worked examples, and which
    access is taught.

    A trained model writes the bare lists, with a grammar or without, and is shown no examples.
    """

    length: Length = "full"
    form: Form = "lists"
    few_shot: bool = True
    access: AccessForm = "index"

    def __post_init__(self) -> None:
        if self.length == "trained" and self.form == "json":
            raise UsageError(
                "a model that was trained to plan needs no schema; take the form lists or "
                "grammar, or another prompt"
            )

    @property
    def order(self) -> plan.Order:
        """What stands together in a plan."""
        return "step-by-step" if self.length == "trained" else "lists"

    def messages(self, context: PlanningContext) -> tuple[Message, ...]:
        """The conversation that asks for the next round's plan."""
        mark = _mark(context)
        opening = self._opening(context, mark)
        previous = _previous_round(context)
        if previous is None or previous.workflow is None:
            return opening
        return (
            *opening,
            assistant(self._said(previous, previous.workflow, context.pool)),
            user(
                self._revision(context, previous, previous.workflow, mark)
                + _objection(context, mark)
            ),
        )

    def reask(self, text: str, problem: MalformedPlan) -> tuple[Message, ...]:
        """The turns that ask for a corrected plan: what was written, and the parser's words."""
        written = _end_of(text, LIMITS[self.length].answer)
        return (
            assistant(written if written.strip() else EMPTY_REPLY),
            user(filled("reask.txt", problem=str(problem), output=self._output)),
        )

    def opener(self, context: PlanningContext) -> str:
        """How a reply should begin, for models that continue a reply which was begun."""
        if self.length == "trained":
            return ""
        return prompt_text("opener_again.txt" if context.rounds else "opener.txt")

    @property
    def files(self) -> tuple[str, ...]:
        """The prompt files that this prompt may use, by name."""
        shared = {"conversation.txt", "images.txt", "objection.txt", "reask.txt"}
        return tuple(sorted({*self._own_files, *shared, self._output_file, self._access_file}))

    @property
    def _own_files(self) -> tuple[str, ...]:
        if self.length == "trained":
            ends = ("", "_answered", "_failed", "_unanswered")
            return tuple(f"trained{end}.txt" for end in ends)
        own: tuple[str, ...] = ("answer.txt", "no_answer.txt", self._acceptance_file)
        if self.form == "lists":
            own += ("opener.txt", "opener_again.txt")
        if self.length == "compact":
            own += ("compact.txt", "compact_revise.txt")
            return (*own, "compact_examples.txt") if self.few_shot else own
        own += ("full.txt", "question_shared.txt", "question_withheld.txt", "revise.txt")
        own += ("system.txt",)
        if self.few_shot:
            own += ("example.txt", "examples.toml", "examples.txt")
            own += ("examples_shared.txt", "examples_withheld.txt")
        return own

    @property
    def hash(self) -> str:
        """A fingerprint of the words: any change in a file that is used changes it."""
        digest = hashlib.sha256()
        for name in self.files:
            digest.update(f"{name}\0{prompt_text(name)}\0".encode())
        return digest.hexdigest()[:16]

    @property
    def _output_file(self) -> str:
        return f"output_{'trained' if self.length == 'trained' else self.form}.txt"

    @property
    def _output(self) -> str:
        """What the reply must look like."""
        entries = self._access_words["entries"]
        return filled(
            self._output_file, entries=entries["json" if self.form == "json" else "lists"]
        )

    @property
    def _access_file(self) -> str:
        return f"access_{self.access}.toml"

    @property
    def _access_words(self) -> dict[str, Any]:
        return tomllib.loads(prompt_text(self._access_file))

    @property
    def _acceptance_file(self) -> str:
        return "accept_json.txt" if self.form == "json" else "accept_lists.txt"

    def _opening(self, context: PlanningContext, mark: str) -> tuple[Message, ...]:
        if self.length == "compact":
            return self._compact(context, mark)
        if self.length == "trained":
            return self._trained(context, mark)
        return (system(prompt_text("system.txt")), user(self._question(context, mark)))

    def _question(self, context: PlanningContext, mark: str) -> str:
        asked = filled(
            "full.txt",
            question=context.question,
            mark=mark,
            models=model_list(context.pool),
            max_steps=str(context.max_steps),
            conversation=self._conversation(context.history, mark),
            visibility=prompt_text(f"question_{_seen(context.pool)}.txt"),
            access=self._access_words["rule"],
            output=self._output,
            examples=self._examples(context),
        )
        return asked + _images(context)

    def _compact(self, context: PlanningContext, mark: str) -> tuple[Message, ...]:
        """The whole task as a conversation that the model only has to go on with."""
        turns = [system(filled("compact.txt", models=model_list(context.pool)))]
        if self.few_shot:
            for question, workflow in compact_examples(context):
                said = self._written(self._taught(workflow), context.pool, "")
                turns += (user(question), assistant(said))
        conversation = self._conversation(context.history, mark)
        return (*turns, user(conversation + context.question + _images(context)))

    def _trained(self, context: PlanningContext, mark: str) -> tuple[Message, ...]:
        conversation = self._conversation(context.history, mark)
        return (
            system(filled("trained.txt", models=short_model_list(context.pool))),
            user(conversation + context.question + _images(context)),
        )

    def _conversation(self, history: tuple[Message, ...], mark: str) -> str:
        turns = _last_turns(history, LIMITS[self.length].conversation)
        return filled("conversation.txt", turns=turns, mark=mark) + "\n\n" if turns else ""

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
        return filled("examples.txt", visibility=visibility, examples="\n\n".join(shown)) + "\n\n"

    def _example(self, number: int, example: Example, pool: Pool) -> str:
        return filled(
            "example.txt",
            number=str(number),
            models=model_list(pool),
            question=example.question,
            reply=self._written(self._taught(example.workflow), pool, example.reasoning),
        )

    def _taught(self, workflow: Workflow) -> Workflow:
        """The workflow of an example, with access such as this prompt asks for."""
        return workflow if self.access == "index" else all_or_nothing(workflow)

    def _written(self, workflow: Workflow, pool: Pool, reasoning: str) -> str:
        """The plan as a model writes it in this prompt's form."""
        if self.form == "json":
            document = plan.workflow_document(workflow, pool)
            return json.dumps({"reasoning": reasoning, **document}, ensure_ascii=False)
        lists = plan.write(workflow, pool, order=self.order)
        return f"{reasoning}\n{lists}" if reasoning and self.form == "lists" else lists

    def _said(self, previous: Round, workflow: Workflow, pool: Pool) -> str:
        """What the conductor wrote for the previous round, or the bare plan where what it wrote
        was not the plan that was carried out."""
        text, is_later = previous.plan_text, previous.index > 0
        written = self._written(workflow, pool, "")
        if text == written:  # the usual case in training, where reading it would take longest
            return written
        try:
            parsed = plan.parse(text, pool, max_steps=len(workflow), may_accept=is_later)
        except MalformedPlan:
            return written
        if parsed.workflow != workflow:
            return written
        return _end_of(text, LIMITS[self.length].answer)

    def _revision(
        self, context: PlanningContext, previous: Round, workflow: Workflow, mark: str
    ) -> str:
        if self.length == "trained":
            file = "trained_unanswered.txt" if context.answer is None else "trained_answered.txt"
            return filled(file, steps="\n".join(_replies(previous, len(workflow))))
        shared = {
            "result": self._result(context, mark),
            "acceptance": prompt_text(self._acceptance_file),
        }
        if self.length == "compact":
            return filled("compact_revise.txt", **shared)
        return filled(
            "revise.txt",
            steps="\n".join(_fate(step, context.pool) for step in previous.steps),
            max_steps=str(context.max_steps),
            access=self._access_words["again"],
            **shared,
        )

    def _result(self, context: PlanningContext, mark: str) -> str:
        if context.answer is None:
            return prompt_text("no_answer.txt")
        answer = _end_of(context.answer, LIMITS[self.length].answer)
        return filled("answer.txt", answer=answer, mark=mark)


def _images(context: PlanningContext) -> str:
    """What there is to see and who can see it; nothing where there are no images, so that such a
    question is asked in the words that conductors were trained with."""
    if not context.images:
        return ""
    seeing = [
        str(index)
        for index, worker in enumerate(context.pool)
        if is_capable(worker, frozenset({"vision"}), context.pool)
    ]
    told = filled("images.txt", count=str(len(context.images)), models=", ".join(seeing) or "none")
    return f"\n\n{told}"


def _objection(context: PlanningContext, mark: str) -> str:
    """Why a guardrail wants another plan, where one does. A verifier may have worded it after a
    worker's reply, so it is data like that."""
    if not context.objection:
        return ""
    reason = on_one_line(context.objection)
    return "\n\n" + filled("objection.txt", reason=reason, mark=mark)


def _seen(pool: Pool) -> Literal["shared", "withheld"]:
    return "shared" if pool.share_question else "withheld"


def _previous_round(context: PlanningContext) -> Round | None:
    """The last round that carried a workflow out, if there was one."""
    return next((r for r in reversed(context.rounds) if r.workflow is not None), None)


def _fate(step: StepRecord, pool: Pool) -> str:
    return f"step {step.index} (model {pool.index(step.worker)}): {step.status}"


def _replies(round_: Round, length: int) -> Iterator[str]:
    """What each step of a round came to, one line each: no reply can pass for another line."""
    replies = {step.index: step.reply for step in round_.steps if step.status == "done"}
    for index in range(length):
        if index in replies:
            line = _end_of(on_one_line(replies[index]), LONGEST_LINE) or EMPTY_REPLY
        else:
            line = prompt_text("trained_failed.txt")
        yield f"{index}: {line}"


def _last_turns(history: Iterable[Message], limit: int) -> str:
    """The conversation's last turns, as many characters of them as the limit allows."""
    turns = [f"{turn.role}: {_one_turn(turn.text)}" for turn in history if turn.text.strip()]
    return _end_of("\n".join(turns), limit)


def _one_turn(text: str) -> str:
    """The text of a turn, in which no line can pass for the beginning of another: in a nested run
    it may be the reply of a worker outside."""
    return _TURN.sub("  ", text) if ":" in text else text


def _end_of(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"[…]{text[-limit:]}"


def _mark(context: PlanningContext) -> str:
    """A suffix for the tags of this prompt, such that no text inside can close them."""
    turns = [turn.text for turn in context.history]
    replies = [step.reply for round_ in context.rounds for step in round_.steps]
    return unused_suffix(TAGS, [context.question, *turns, *replies, context.objection])
