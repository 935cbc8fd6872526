"""Learning by example: specialists from their lessons, a conductor from its openings and from
decisions.

One run may teach several adapters side by side over one base model, each from examples of its
own: a batch holds as many rows of each, and what one adapter learns never touches another. Or it
teaches a whole model, all of whose parameters change. The loop itself is transformers' Trainer,
so it runs on many devices through accelerate and goes on from a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

from podium._util.files import replace_directory
from podium.conductors.routing.arrays import normalize_seed
from podium.core.errors import ConfigError
from podium.train.examples import UNLABELLED, TokenExample, batches, encode, load_examples
from podium.train.preflight import check_adapters
from podium.train.recipe import Recipe
from podium.train.runtime import (
    explain_out_of_space,
    is_main_process,
    last_checkpoint,
    process_count,
    process_index,
    wait_for_everyone,
)
from podium.train.trainer_setup import (
    StopAfterMinutes,
    autocast_dtype,
    parameter_dtype,
    silence,
    trainer_arguments,
)
from podium.train.training_log import TrainingLog
from podium.workers.local import pretrained
from podium.workers.local.decoding import Decoder, Sampling
from podium.workers.local.lora import EQUAL_PARTS, NO_ADAPTER, AdapterStack, LoraShape
from podium.workers.local.pretrained import Pretrained, nothing_drawn


@dataclass(frozen=True, slots=True)
class Mistake:
    """A prompt, what should have followed, and what did."""

    prompt: str
    wanted: str
    said: str


@dataclass(frozen=True, slots=True)
class SftEval:
    """Exact-match accuracy of an adapter on its examples, and the failures."""

    adapter: str
    accuracy: float
    mistakes: tuple[Mistake, ...]


def evaluate_examples(
    pretrained: Pretrained,
    stack: AdapterStack | None,
    examples: Mapping[str, Sequence[TokenExample]],
    *,
    rows: int = 1024,
) -> list[SftEval]:
    """Ask every adapter for the replies to its examples, and compare."""
    decoder = Decoder(
        pretrained.model,
        end_tokens=pretrained.end_tokens,
        padding=pretrained.tokenizer.pad_token_id,
        adapters=stack,
    )
    asked = [(name, example) for name, group in examples.items() for example in group]
    asked.sort(key=lambda pair: pair[1].length)
    mistakes: dict[str, list[Mistake]] = {name: [] for name in examples}
    was_training = pretrained.model.training
    pretrained.model.eval()
    for start in range(0, len(asked), rows):
        part = asked[start : start + rows]
        completions = decoder.complete(
            [example.prompt for _, example in part],
            [Sampling(len(example.reply) + 8) for _, example in part],
            choices=[example.adapter for _, example in part] if stack is not None else None,
        )
        for (name, example), completion in zip(part, completions, strict=True):
            compared = None if example.is_whole else len(example.reply)
            replies = (example.reply, completion.tokens[:compared])
            wanted, said = (_words(pretrained, tokens) for tokens in replies)
            if said != wanted:
                prompt = pretrained.tokenizer.decode(example.prompt)
                mistakes[name].append(Mistake(prompt, wanted, said))
    pretrained.model.train(was_training)
    return [
        SftEval(name, 1 - len(mistakes[name]) / len(group), tuple(mistakes[name]))
        for name, group in examples.items()
    ]


def _words(pretrained: Pretrained, tokens: Any) -> str:
    return pretrained.decode(tokens).strip()


STACK_FILE: Final = "adapters.pt"
MODEL: Final = "model"
"""The directory below the output in which a whole model lies that was trained."""


class MultiAdapterModel(nn.Module):
    """A model under its adapters, or without any, whose output is the loss on the replies alone.

    Logits are computed only where there are labels: a vocabulary's worth for every token of
    every prompt would be most of the memory.
    """

    def __init__(self, model: Any, stack: AdapterStack | None) -> None:
        super().__init__()
        self.model = model
        self.stack = stack
        self._adapters = len(stack.names) if stack is not None else 0

    def forward(self, input_ids: Tensor, labels: Tensor, adapter: Tensor) -> dict[str, Tensor]:
        """The sum over adapters of each one's mean loss a token, over all processes. Rows are
        padded on the right, where no token before can see it, so no mask is needed."""
        with self.stack.using(EQUAL_PARTS) if self.stack is not None else nullcontext():
            output = self.model.model(input_ids=input_ids, use_cache=False)
        hidden = output.last_hidden_state[:, :-1]
        targets = labels[:, 1:]
        is_target = targets != UNLABELLED
        logits = self.model.lm_head(hidden[is_target]).float()
        losses = nn.functional.cross_entropy(logits, targets[is_target], reduction="none")
        owner = adapter[:, None].expand_as(targets)[is_target]
        count = torch.zeros(self._adapters + 1, device=losses.device)
        count = count.index_add(0, owner, torch.ones_like(losses))
        if distributed.is_initialized():
            distributed.all_reduce(count)
            count /= distributed.get_world_size()  # of gradients, the mean is taken
        return {"loss": (losses / count[owner]).sum()}


class MultiAdapterTrainer(Trainer):
    """Trainer whose batches hold the rows of every adapter, and whose checkpoints hold no more
    than what is trained."""

    def __init__(
        self,
        taught: MultiAdapterModel,
        plan: Sequence[list[TokenExample]],
        padding: int,
        **rest: Any,
    ):
        super().__init__(model=taught, **rest)
        self._taught = taught
        self._plan = plan
        self._padding = padding

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The batches as planned, of which this process has its share already."""
        return DataLoader(
            self._plan,  # type: ignore[arg-type]
            batch_size=1,
            collate_fn=lambda batches: collate(batches[0], self._padding),
            num_workers=2 if torch.cuda.is_available() else 0,
        )

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        directory = Path(output_dir or self.args.output_dir or ".")
        directory.mkdir(parents=True, exist_ok=True)
        matrices = [matrix.detach().cpu() for matrix in trained_by(self._taught)]
        unfinished = directory / f"{STACK_FILE}.partial"
        torch.save(matrices, unfinished)
        unfinished.replace(directory / STACK_FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        saved = torch.load(Path(resume_from_checkpoint) / STACK_FILE, weights_only=True)
        with torch.no_grad():
            for matrix, value in zip(trained_by(self._taught), saved, strict=True):
                matrix.copy_(value)


def trained_by(taught: MultiAdapterModel) -> list[nn.Parameter]:
    """The parameters that change."""
    if taught.stack is not None:
        return taught.stack.parameters()
    return list(taught.model.parameters())


class ClipPerAdapter(TrainerCallback):
    """Bounds the gradient of each adapter by its own norm, so that they stay independent."""

    def __init__(self, stack: AdapterStack, bound: float) -> None:
        self._stack = stack
        self._bound = bound

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Scale what is too large."""
        gradients = [p.grad for p in self._stack.parameters() if p.grad is not None]
        squares = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients])
        scale = (self._bound / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale[:, None, None])


def collate(rows: Sequence[TokenExample], padding: int) -> dict[str, Tensor]:
    """A batch, padded on the right; only replies have labels."""
    width = max(row.length for row in rows)
    tokens = torch.full((len(rows), width), padding)
    labels = torch.full((len(rows), width), UNLABELLED)
    for position, row in enumerate(rows):
        end, begin = row.length, len(row.prompt)
        tokens[position, :end] = torch.tensor([*row.prompt, *row.reply])
        labels[position, begin:end] = torch.tensor(row.labels)
    adapter = torch.tensor([row.adapter for row in rows])
    return {"input_ids": tokens, "labels": labels, "adapter": adapter}


def train(recipe: Recipe, *, resume: bool = False) -> None:
    """Teach what the recipe names, and write it below the output: adapters by their names, or
    the whole model."""
    with explain_out_of_space(recipe.output, fewer="sft.micro_batch or sft.max_tokens"):
        _train(recipe, resume=resume)


def _train(recipe: Recipe, *, resume: bool) -> None:
    sft = recipe.sft
    assert sft is not None, "checked as it was read"
    parts = _parts_of_a_step(recipe)
    arguments = _arguments(recipe, parts)
    wait_for_everyone()  # the main process has checked the output before anything is written
    written = load_examples(recipe, "train", sft.examples)
    tested = load_examples(recipe, "test", recipe.run.eval_tasks) if recipe.run.eval_every else {}
    torch.manual_seed(normalize_seed(recipe.run.seed))
    loaded = pretrained.load(recipe.model.base, dtype=parameter_dtype(recipe))
    stack = _stacked(recipe, loaded.model, tuple(written))
    if recipe.model.gradient_checkpointing:
        loaded.model.gradient_checkpointing_enable()
    position = stack.index if stack is not None else lambda name: NO_ADAPTER
    encoded = {name: encode(loaded, group, position(name)) for name, group in written.items()}
    test = {name: encode(loaded, group, position(name)) for name, group in tested.items()}
    rows, steps = sft.batch // parts, sft.steps * parts
    planned = batches(list(encoded.values()), rows, steps, recipe.run.seed, sft.max_tokens)
    plan = [own_share(batch, len(encoded)) for batch in planned]
    begun = last_checkpoint(recipe.output) if resume else None
    with TrainingLog(recipe, after=begun.step if begun else 0) as training_log:
        watchers = [
            _EachStep(recipe, training_log, lambda: evaluate_examples(loaded, stack, test)),
            StopAfterMinutes(recipe.run.minutes, training_log),
        ]
        trainer = MultiAdapterTrainer(
            MultiAdapterModel(loaded.model, stack),
            plan,
            loaded.tokenizer.pad_token_id,
            args=arguments,
            callbacks=[*_bounds(stack, sft.max_grad_norm), *watchers],
        )
        with silence(trainer):
            trainer.train(resume_from_checkpoint=str(begun.path) if begun else None)
        if trainer.state.global_step < sft.steps:
            training_log.stopped(trainer.state.global_step)
            return
        if is_main_process():
            _write(recipe, loaded, stack)
        training_log.finish({})


def _bounds(stack: AdapterStack | None, bound: float) -> list[TrainerCallback]:
    """Return the gradient clipping; 0 disables it."""
    return [ClipPerAdapter(stack, bound)] if stack is not None and bound else []


def own_share(batch: Sequence[TokenExample], adapters: int) -> list[TokenExample]:
    """The rows of a batch that are for this process: as many of each adapter as every other has."""
    rows = len(batch) // adapters
    share, left = divmod(rows, process_count())
    if left:
        raise ConfigError(
            f"{rows} rows of each adapter cannot be divided among {process_count()} processes; "
            f"change sft.batch or sft.micro_batch"
        )
    begin = share * process_index()
    return [
        row
        for position in range(0, len(batch), rows)
        for row in batch[position + begin : position + begin + share]
    ]


def _stacked(recipe: Recipe, model: Any, names: tuple[str, ...]) -> AdapterStack | None:
    """The adapters that are trained, over a base that stays as it is; or none, where all of the
    model is trained."""
    if recipe.model.lora is None:
        return None
    model.requires_grad_(False)
    begun = recipe.model.adapters
    if recipe.model.adapter is not None:
        begun = dict.fromkeys(names, recipe.model.adapter)
    if not begun:
        return AdapterStack.fresh(model, names, lora_shape(recipe))
    check_adapters(recipe)
    stack = AdapterStack(model, targets=lora_shape(recipe).targets)
    for name in names:
        stack.add(name, Path(begun[name]))
    return stack


def _write(recipe: Recipe, loaded: pretrained.Pretrained, stack: AdapterStack | None) -> None:
    if stack is None:
        with replace_directory(recipe.output / MODEL) as directory:
            with nothing_drawn():
                loaded.model.save_pretrained(directory)
            loaded.tokenizer.save_pretrained(directory)
        return
    for name in stack.names:
        stack.save(name, recipe.output / name, lora_shape(recipe), recipe.model.base)


def lora_shape(recipe: Recipe) -> LoraShape:
    """The size of the adapters that the recipe trains."""
    lora = recipe.model.lora
    assert lora is not None, "asked for where adapters are trained"
    if lora.dropout:
        raise ConfigError("model.lora.dropout is for podium train grpo; sft knows none: drop it")
    return LoraShape(lora.rank, lora.alpha, tuple(sorted(lora.targets)))


def _parts_of_a_step(recipe: Recipe) -> int:
    """In how many passes the rows of a step go through the model."""
    sft = recipe.sft
    assert sft is not None
    adapters = max(1, len(sft.adapters))
    if sft.micro_batch is None:
        return 1
    rows = max(1, sft.micro_batch // adapters)
    if sft.batch % rows:
        raise ConfigError(
            f"sft.micro_batch is {sft.micro_batch}, which is {rows} rows for each of {adapters}; "
            f"the batch of {sft.batch} cannot be divided by that"
        )
    return sft.batch // rows


class _EachStep(TrainerCallback):
    """Writes down the loss, and from time to time how well everything is recited."""

    def __init__(
        self, recipe: Recipe, training_log: TrainingLog, recitals: Callable[[], list[SftEval]]
    ) -> None:
        self._every = recipe.run.eval_every
        self._training_log = training_log
        self._recitals = recitals

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "loss" in (logs or {}):
            self._training_log.taught(state.global_step, float(logs["loss"]))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        is_last = state.global_step == state.max_steps
        is_due = self._every and (is_last or state.global_step % self._every == 0)
        if is_due and is_main_process():
            self._training_log.note(
                f"step {state.global_step}: everything is recited, which takes a while"
            )
            self._training_log.recited(state.global_step, self._recitals())


def _arguments(recipe: Recipe, parts: int) -> TrainingArguments:
    sft = recipe.sft
    assert sft is not None
    computed = (
        autocast_dtype(recipe) if recipe.model.lora is None else None
    )  # adapters see to it themselves
    return TrainingArguments(
        **trainer_arguments(recipe, sft),
        gradient_accumulation_steps=parts,
        max_grad_norm=sft.max_grad_norm if recipe.model.lora is None else 0.0,
        optim="adamw_torch_fused" if torch.cuda.is_available() else "adamw_torch",
        bf16=computed is torch.bfloat16,
        fp16=computed is torch.float16,
        logging_steps=min(10, sft.steps),
        label_names=["labels"],
    )
