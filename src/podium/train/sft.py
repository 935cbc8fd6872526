"""Supervised fine-tuning: one model, or several adapters side by side over one base.

Each adapter has examples of its own: a batch holds as many rows of each, and no adapter's gradient
touches another. The loop is transformers' Trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

from podium._util.files import replace_directory
from podium._util.lab import lab_extra
from podium.core.errors import ConfigError
from podium.train.examples import (
    CONDUCTOR,
    UNLABELLED,
    TextExample,
    TokenExample,
    batches,
    encode,
    file_examples,
)
from podium.train.preflight import check_adapters
from podium.train.recipe import Recipe
from podium.train.templates import template_examples
from podium.train.trainer_setup import (
    autocast_dtype,
    parameter_dtype,
    silence,
    stop_after_minutes,
    trainer_arguments,
)
from podium.train.training_log import (
    TrainingLog,
    explain_out_of_space,
    is_main_process,
    last_checkpoint,
    process_count,
    process_index,
    wait_for_everyone,
)
from podium.workers.local import pretrained
from podium.workers.local.decoding import Decoder, Sampling
from podium.workers.local.lora import EQUAL_PARTS, NO_ADAPTER, AdapterStack, LoraShape
from podium.workers.local.pretrained import Pretrained, silence_progress_bars

if TYPE_CHECKING:
    from podium_lab.etudes import Split


@dataclass(frozen=True, slots=True)
class Mistake:
    """A prompt, the expected reply, and the reply."""

    prompt: str
    expected: str
    reply: str


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
    """Generate the replies to each adapter's examples and compare them."""
    decoder = Decoder(
        pretrained.model,
        end_tokens=pretrained.end_tokens,
        padding=pretrained.tokenizer.pad_token_id,
        adapters=stack,
    )
    pairs = [(name, example) for name, group in examples.items() for example in group]
    pairs.sort(key=lambda pair: pair[1].length)
    mistakes: dict[str, list[Mistake]] = {name: [] for name in examples}
    was_training = pretrained.model.training
    pretrained.model.eval()
    for start in range(0, len(pairs), rows):
        part = pairs[start : start + rows]
        completions = decoder.complete(
            [example.prompt for _, example in part],
            [Sampling(len(example.reply) + 8) for _, example in part],
            adapter_indices=[example.adapter for _, example in part] if stack is not None else None,
        )
        for (name, example), completion in zip(part, completions, strict=True):
            compared = None if example.is_whole else len(example.reply)
            expected = pretrained.decode(example.reply).strip()
            reply = pretrained.decode(completion.tokens[:compared]).strip()
            if reply != expected:
                prompt = pretrained.tokenizer.decode(example.prompt)
                mistakes[name].append(Mistake(prompt, expected, reply))
    pretrained.model.train(was_training)
    return [
        SftEval(name, 1 - len(mistakes[name]) / len(group), tuple(mistakes[name]))
        for name, group in examples.items()
    ]


STACK_FILE: Final = "adapters.pt"
MODEL: Final = "model"


class MultiAdapterModel(nn.Module):
    """A model, with or without adapters, whose output is the loss.

    Logits are computed only where there are labels; those of prompts would take most of the memory.
    """

    def __init__(self, model: Any, stack: AdapterStack | None) -> None:
        super().__init__()
        self.model = model
        self.stack = stack
        self._adapters = len(stack.names) if stack is not None else 0

    @property
    def trained(self) -> list[nn.Parameter]:
        if self.stack is not None:
            return self.stack.parameters()
        return list(self.model.parameters())

    def forward(self, input_ids: Tensor, labels: Tensor, adapter: Tensor) -> dict[str, Tensor]:
        """Return the sum of the adapters' mean token losses over all processes.

        Rows are padded on the right, where no earlier token sees it, so no mask is needed.
        """
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
    """Trains all adapters in every batch; checkpoints hold only trained parameters."""

    def __init__(
        self,
        trained: MultiAdapterModel,
        plan: Sequence[list[TokenExample]],
        padding: int,
        **rest: Any,
    ):
        super().__init__(model=trained, **rest)
        self._trained_model = trained
        self._plan = plan
        self._padding = padding

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the planned batches, of which this process has its share already."""
        return DataLoader(
            self._plan,  # type: ignore[arg-type]
            batch_size=1,
            collate_fn=lambda batches: collate(batches[0], self._padding),
            num_workers=2 if torch.cuda.is_available() else 0,
        )

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        directory = Path(output_dir or self.args.output_dir or ".")
        directory.mkdir(parents=True, exist_ok=True)
        matrices = [matrix.detach().cpu() for matrix in self._trained_model.trained]
        unfinished = directory / f"{STACK_FILE}.partial"
        torch.save(matrices, unfinished)
        unfinished.replace(directory / STACK_FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        saved = torch.load(Path(resume_from_checkpoint) / STACK_FILE, weights_only=True)
        with torch.no_grad():
            for matrix, value in zip(self._trained_model.trained, saved, strict=True):
                matrix.copy_(value)


class ClipPerAdapter(TrainerCallback):
    """Clips the gradient of each adapter by its own norm, so that they stay independent."""

    def __init__(self, stack: AdapterStack, bound: float) -> None:
        self._stack = stack
        self._bound = bound

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        gradients = [p.grad for p in self._stack.parameters() if p.grad is not None]
        squares = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients])
        scale = (self._bound / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale[:, None, None])


def collate(rows: Sequence[TokenExample], padding: int) -> dict[str, Tensor]:
    width = max(row.length for row in rows)
    tokens = torch.full((len(rows), width), padding)
    labels = torch.full((len(rows), width), UNLABELLED)
    for position, row in enumerate(rows):
        end, begin = row.length, len(row.prompt)
        tokens[position, :end] = torch.tensor([*row.prompt, *row.reply])
        labels[position, begin:end] = torch.tensor(row.labels)
    adapter = torch.tensor([row.adapter for row in rows])
    return {"input_ids": tokens, "labels": labels, "adapter": adapter}


def load_examples(
    recipe: Recipe, split: Split, count: int, note: Callable[[str], None] = lambda line: None
) -> dict[str, list[TextExample]]:
    """Load the examples by adapter; `note` prints what takes long."""
    sft = recipe.sft
    assert sft is not None, "only learning by example has examples"
    if sft.dataset == "templates":
        return {CONDUCTOR: template_examples(recipe, split, count, note)}
    if sft.dataset != "file":
        with lab_extra():
            from podium_lab.etudes.training import etude_examples
        return etude_examples(recipe, sft.dataset, split, count)
    assert recipe.data.file is not None, "checked as it was read"
    examples = file_examples(Path(recipe.data.file.path))[: recipe.data.file.limit]
    kept_apart = min(recipe.run.eval_tasks, len(examples) // 10) if recipe.run.eval_every else 0
    test, train = examples[:kept_apart], examples[kept_apart:]
    return {CONDUCTOR: train if split == "train" else test or train[:count]}


def train(recipe: Recipe, *, resume: bool = False) -> None:
    with explain_out_of_space(recipe.output, memory_keys="sft.micro_batch or sft.max_pass_tokens"):
        _train(recipe, resume=resume)


def _train(recipe: Recipe, *, resume: bool) -> None:
    sft = recipe.sft
    assert sft is not None, "checked as it was read"
    parts = _accumulation_steps(recipe)
    arguments = _arguments(recipe, parts)
    wait_for_everyone()  # the main process has checked the output before anything is written
    begun = last_checkpoint(recipe.output) if resume else None
    with TrainingLog(recipe, after=begun.step if begun else 0) as training_log:
        written = load_examples(recipe, "train", sft.examples, training_log.note)
        tested = (
            load_examples(recipe, "test", recipe.run.eval_tasks) if recipe.run.eval_every else {}
        )
        torch.manual_seed(recipe.run.seed)
        loaded = pretrained.load(recipe.model.base, dtype=parameter_dtype(recipe))
        stack = _make_adapters(recipe, loaded.model, tuple(written))
        if recipe.model.gradient_checkpointing:
            loaded.model.gradient_checkpointing_enable()
        position = stack.index if stack is not None else lambda name: NO_ADAPTER
        encoded = {name: encode(loaded, group, position(name)) for name, group in written.items()}
        test = {name: encode(loaded, group, position(name)) for name, group in tested.items()}
        rows, steps = sft.batch // parts, sft.steps * parts
        planned = batches(list(encoded.values()), rows, steps, recipe.run.seed, sft.max_pass_tokens)
        plan = [process_share(batch, len(encoded)) for batch in planned]
        watcher = _SftCallback(recipe, training_log, lambda: evaluate_examples(loaded, stack, test))
        trainer = MultiAdapterTrainer(
            MultiAdapterModel(loaded.model, stack),
            plan,
            loaded.tokenizer.pad_token_id,
            args=arguments,
            callbacks=[*gradient_clipping(stack, sft.max_grad_norm), watcher],
        )
        with silence(trainer):
            trainer.train(resume_from_checkpoint=str(begun.path) if begun else None)
        if trainer.state.global_step < sft.steps:
            training_log.log_stop(trainer.state.global_step)
            return
        if is_main_process():
            _write(recipe, loaded, stack)
        training_log.finish({})


def gradient_clipping(stack: AdapterStack | None, bound: float) -> list[TrainerCallback]:
    """Return the callback that clips adapters' gradients; a bound of 0 disables it."""
    return [ClipPerAdapter(stack, bound)] if stack is not None and bound else []


def process_share(batch: Sequence[TokenExample], adapters: int) -> list[TokenExample]:
    """Return this process's rows of a batch, equally many of each adapter."""
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


def _make_adapters(recipe: Recipe, model: Any, names: tuple[str, ...]) -> AdapterStack | None:
    """Return the trained adapters over a frozen base; None if the whole model is trained."""
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
            with silence_progress_bars():
                loaded.model.save_pretrained(directory)
            loaded.tokenizer.save_pretrained(directory)
        return
    for name in stack.names:
        stack.save(name, recipe.output / name, lora_shape(recipe), recipe.model.base)


def lora_shape(recipe: Recipe) -> LoraShape:
    lora = recipe.model.lora
    assert lora is not None, "asked for where adapters are trained"
    if lora.dropout:
        raise ConfigError("model.lora.dropout is for podium train grpo; sft knows none: drop it")
    return LoraShape(lora.rank, lora.alpha, tuple(sorted(lora.targets)))


def _accumulation_steps(recipe: Recipe) -> int:
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


class _SftCallback(TrainerCallback):
    """Logs the loss, and the accuracy on held-out examples every `eval_every` steps."""

    def __init__(
        self, recipe: Recipe, training_log: TrainingLog, evaluate: Callable[[], list[SftEval]]
    ) -> None:
        self._recipe = recipe
        self._training_log = training_log
        self._evaluate = evaluate

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "loss" in (logs or {}):
            self._training_log.log_loss(state.global_step, float(logs["loss"]))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        every, is_last = self._recipe.run.eval_every, state.global_step == state.max_steps
        is_due = every and (is_last or state.global_step % every == 0)
        if is_due and is_main_process():
            self._training_log.note(f"step {state.global_step}: evaluating on held-out examples")
            self._training_log.log_evaluation(state.global_step, self._evaluate())
        stop_after_minutes(self._recipe, self._training_log, control)


def _arguments(recipe: Recipe, parts: int) -> TrainingArguments:
    sft = recipe.sft
    assert sft is not None
    # Adapters cast by themselves.
    computed = autocast_dtype(recipe) if recipe.model.lora is None else None
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
