"""Training examples: messages and replies, as text, as tokens and in batches.

Plan templates give a conductor's warm start over a pool file: the form of plans and their variety.
A template is a list of steps whose workers are letters: different letters are different models,
drawn again for each question, and the reward decides which model is good at what. `tool` is a
worker that runs programs. Some examples are second rounds: a first round's answer, right in half of
them, is accepted if it is right, and followed by another plan if not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from podium._util.lab import lab_extra
from podium._util.tables import Table
from podium.conductors import plan
from podium.core.conductor import PlanningContext
from podium.core.errors import ConfigError
from podium.core.pool import Pool
from podium.core.run import Round, StepRecord
from podium.core.task import Task
from podium.core.workflow import Condition, Step, Workflow
from podium.train.exercises import draw_exercises, load_task_split, recipe_prompt
from podium.train.recipe import Recipe, read_tables
from podium.train.worker_set import recipe_pool

if TYPE_CHECKING:
    from podium.workers.local.pretrained import Pretrained
    from podium_lab.etudes import Split

CONDUCTOR: Final = "conductor"
"""The name of an only adapter."""

Messages = list[dict[str, str]]

BATCHES_SORTED_TOGETHER: Final = 16
"""Batches sorted by length at a time: enough for little padding, few enough to stay random."""

UNLABELLED: Final = -100
"""The label that torch ignores."""


class TextExample(NamedTuple):
    """An example as text; `masked_spans` are character ranges of the reply that get no labels.

    An example that is not whole has only the beginning of a reply.
    """

    messages: Messages
    reply: str
    masked_spans: tuple[tuple[int, int], ...] = ()
    is_whole: bool = True


class _FileMessage(BaseModel):
    """A message of a user's file."""

    role: Literal["system", "user", "assistant"]
    content: str


class _FileExample(BaseModel):
    """A line of a user's file."""

    prompt: str | Annotated[list[_FileMessage], Field(min_length=1)]
    reply: str


class TokenExample(NamedTuple):
    """An example as tokens for one adapter; `labels` are the reply's, or `UNLABELLED`."""

    prompt: list[int]
    reply: list[int]
    labels: list[int]
    adapter: int
    is_whole: bool = True

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.reply)


def load_examples(recipe: Recipe, split: Split, count: int) -> dict[str, list[TextExample]]:
    sft = recipe.sft
    assert sft is not None, "only learning by example has examples"
    if sft.dataset == "templates":
        return template_examples(recipe, split, count)
    if sft.dataset != "file":
        with lab_extra():
            from podium_lab.etudes.training import etude_examples
        return etude_examples(recipe, sft.dataset, split, count)
    assert recipe.data.file is not None, "checked as it was read"
    examples = file_examples(Path(recipe.data.file.path))[: recipe.data.file.limit]
    kept_apart = min(recipe.run.eval_tasks, len(examples) // 10) if recipe.run.eval_every else 0
    test, train = examples[:kept_apart], examples[kept_apart:]
    return {CONDUCTOR: test or train[:count] if split == "test" else train}


def file_examples(path: Path) -> list[TextExample]:
    """Read JSON lines with `prompt` (a text, or messages) and `reply`."""
    lines = enumerate(path.read_text("utf-8").split("\n"), start=1)
    examples = [_parse_example(path, number, line) for number, line in lines if line.strip()]
    if not examples:
        raise ConfigError(f"{path} holds no examples; write one a line, as JSON")
    return examples


def _parse_example(path: Path, number: int, line: str) -> TextExample:
    try:
        entry = _FileExample.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f'{path}, line {number}: expected {{"prompt": …, "reply": …}}, where the prompt is a '
            f"text, or messages with role and content: {where} {first['msg']}"
        ) from error
    prompt = entry.prompt
    if isinstance(prompt, str):
        return TextExample([{"role": "user", "content": prompt}], entry.reply)
    return TextExample([message.model_dump() for message in prompt], entry.reply)


def encode(
    pretrained: Pretrained, written: Sequence[TextExample], adapter: int
) -> list[TokenExample]:
    """Encode the examples; every whole reply ends its turn."""
    tokenizer = pretrained.tokenizer
    prompts = tokenizer.apply_chat_template(
        [example.messages for example in written], tokenize=False, add_generation_prompt=True
    )
    prompt_ids = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    replied = tokenizer(
        [example.reply for example in written],
        add_special_tokens=False,
        return_offsets_mapping=True,
    )
    examples = []
    for one, prompt, reply, offsets in zip(
        written, prompt_ids, replied["input_ids"], replied["offset_mapping"], strict=True
    ):
        labels = [
            token if _is_labelled(position, one.masked_spans) else UNLABELLED
            for token, position in zip(reply, offsets, strict=True)
        ]
        end = [pretrained.turn_end] if one.is_whole else []
        examples.append(TokenExample(prompt, reply + end, labels + end, adapter, one.is_whole))
    return examples


def _is_labelled(position: tuple[int, int], masked_spans: Sequence[tuple[int, int]]) -> bool:
    return not any(begin < position[1] and position[0] < end for begin, end in masked_spans)


def batches(
    groups: Sequence[Sequence[TokenExample]],
    rows: int,
    steps: int,
    seed: int,
    max_tokens: int | None = None,
) -> Iterator[list[TokenExample]]:
    """Yield batches of `rows` examples of every group, of about one length.

    A batch of more than `max_tokens`, padding included, is split.
    """
    rng = Random(seed)  # noqa: S311 - repeatable, not secret
    streams = [_endless(group, rng) for group in groups]
    made = 0
    while made < steps:
        shelves = [
            sorted(islice(stream, rows * BATCHES_SORTED_TOGETHER), key=lambda one: one.length)
            for stream in streams
        ]
        for position in rng.sample(range(BATCHES_SORTED_TOGETHER), BATCHES_SORTED_TOGETHER):
            batch = [shelf[position * rows : (position + 1) * rows] for shelf in shelves]
            for part in islice(_in_bounds(batch, max_tokens), steps - made):
                yield [example for group in part for example in group]
                made += 1


def _in_bounds(
    batch: list[list[TokenExample]], max_tokens: int | None
) -> Iterator[list[list[TokenExample]]]:
    """Yield the batch, or its halves or quarters where it has too many tokens."""
    rows = len(batch[0])
    width = max(example.length for group in batch for example in group)
    if max_tokens is None or rows % 2 or len(batch) * rows * width <= max_tokens:
        yield batch
        return
    for half in (slice(rows // 2), slice(rows // 2, rows)):
        yield from _in_bounds([group[half] for group in batch], max_tokens)


def _endless(group: Sequence[TokenExample], rng: Random) -> Iterator[TokenExample]:
    while True:
        yield from rng.sample(group, len(group))


TOOL: Final = "tool"
TOOL_PROVIDERS: Final = ("python",)


class TemplateStep(Table):
    """A step of a template; its subtask is one of several texts."""

    worker: str
    subtask: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    access: Literal["all"] | Annotated[tuple[int, ...], Field(strict=False)] = ()
    condition: str | None = Field(default=None, alias="if")


class Template(Table):
    """A kind of plan, and how often it is drawn beside the others."""

    share: Annotated[float, Field(gt=0)] = 1.0
    steps: Annotated[tuple[TemplateStep, ...], Field(min_length=1, strict=False)]


class TemplatesFile(Table):
    """The templates of a warm start."""

    later_round_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    plan: Annotated[tuple[Template, ...], Field(min_length=1, strict=False)]


def template_examples(
    recipe: Recipe, split: Literal["train", "test"], count: int
) -> dict[str, list[TextExample]]:
    """Make `count` examples over the tasks of that split; the seed decides which."""
    assert recipe.sft is not None
    assert recipe.sft.templates is not None
    file = read_tables(TemplatesFile, Path(recipe.sft.templates), ())
    problems = load_task_split(recipe)
    records = problems.train if split == "train" else problems.held_out
    if not records:
        raise ConfigError("no task is held out to measure by; write run.eval_every = 0")
    rng = Random(f"{recipe.run.seed}/{split}/templates")  # noqa: S311 - repeatable, not secret
    tasks = [record.to_task() for record in records]
    return {CONDUCTOR: list(islice(_examples(recipe, file, tasks, rng), count))}


def _examples(
    recipe: Recipe, file: TemplatesFile, tasks: Sequence[Task], rng: Random
) -> Iterator[TextExample]:
    prompt = recipe_prompt(recipe)
    for task, context, _ in draw_exercises(recipe, tasks, recipe_pool(recipe), rng):
        wanted: Workflow | None = draw_plan(file.plan, context.pool, rng)
        if rng.random() < file.later_round_share:
            is_right = rng.random() < 0.5
            answer = task.answer if is_right else rng.choice(tasks).answer
            context = after_round(context, draw_plan(file.plan, context.pool, rng), answer)
            wanted = None if is_right else wanted
        reply = (
            plan.write_acceptance(prompt.order)
            if wanted is None
            else plan.write(wanted, context.pool, order=prompt.order)
        )
        yield TextExample(prompt.chat(context), reply)


def draw_plan(templates: Sequence[Template], pool: Pool, rng: Random) -> Workflow:
    tools = [worker.name for worker in pool if worker.provider in TOOL_PROVIDERS]
    models = [name for name in pool.names if name not in tools]
    fitting = []
    for template in templates:
        letters = {step.worker for step in template.steps}
        if (not letters & {TOOL} or tools) and len(letters - {TOOL}) <= len(models):
            fitting.append(template)
    if not fitting:
        raise ConfigError(f"no plan template suits a pool of {', '.join(pool.names)}")
    (template,) = rng.choices(fitting, [one.share for one in fitting])
    names = sorted({step.worker for step in template.steps} - {TOOL})
    chosen = dict(zip(names, rng.sample(models, len(names)), strict=True))
    if tools:
        chosen[TOOL] = rng.choice(tools)
    return Workflow(
        tuple(
            Step(
                chosen[step.worker],
                rng.choice(step.subtask),
                step.access,
                None if step.condition is None else Condition.parse(step.condition),
            )
            for step in template.steps
        )
    )


def after_round(context: PlanningContext, workflow: Workflow, answer: str) -> PlanningContext:
    reply = f"<answer>{answer}</answer>"
    steps = tuple(
        StepRecord(
            *(0, index, step.worker, step.subtask, step.access),
            *("done", reply, None, 0.0, 0.0),
            answered_by=step.worker,
        )
        for index, step in enumerate(workflow.steps)
    )
    return replace(context, rounds=(Round(0, workflow, steps),))
