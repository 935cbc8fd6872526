"""The model that is trained, and plans sampled from it.

An adapter is trained over a base that stays as it is. Sampling from the two would take twice the
work for every token, so plans are sampled from a copy of the base with the adapter folded in,
which is brought up to date before each use. A model all of whose parameters are trained is
sampled from directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer

from podium._util.files import replace_directory
from podium.train.preflight import check_adapters
from podium.train.recipe import Recipe
from podium.train.trainer_setup import autocast, parameter_dtype
from podium.workers.local import pretrained
from podium.workers.local.captured import GROUPED_ATTENTION
from podium.workers.local.decoding import Completion, Decoder, Sampling
from podium.workers.local.pretrained import nothing_drawn

ADAPTER: Final = "default"
"""The name by which peft knows the adapter that is trained."""

ONLY_THE_ADAPTER: Final[Mapping[str, Any]] = {
    "selected_adapters": [ADAPTER],
    "save_embedding_layers": False,
}
"""What peft writes: not the reference beside the adapter, and no embeddings, which are never
trained here; to make sure of that, peft would ask the hub about the base."""

INSIDE_PEFT: Final = "base_model.model."


class Policy:
    """A conductor in training."""

    def __init__(self, recipe: Recipe) -> None:
        held = parameter_dtype(recipe)
        loaded = pretrained.load(recipe.model.base, dtype=held)
        self._loaded = loaded
        self.tokenizer: Any = loaded.tokenizer
        self.end_tokens = loaded.end_tokens
        loaded.model.generation_config.eos_token_id = list(loaded.end_tokens)  # TRL asks there
        self._folded: Any = None
        if recipe.model.lora is not None:
            self._folded = deepcopy(loaded.model)
            self._folded.config._attn_implementation = GROUPED_ATTENTION
        self.model: Any = _trainable(loaded.model, recipe)
        sampled = self._folded if self._folded is not None else self.model
        self._decoder = Decoder(
            sampled,
            end_tokens=self.end_tokens,
            padding=self.tokenizer.pad_token_id,
            seed=None,
        )
        self._computing = partial(autocast, recipe)

    def encode(self, messages: list[dict[str, str]], opener: str = "") -> list[int]:
        """The conversation as tokens, up to where the plan begins."""
        return self._loaded.encode(messages, opener)

    def decode(self, tokens: Sequence[int]) -> str:
        """The words of a completion."""
        return self._loaded.decode(tokens)

    def tokens_of(self, plan: str) -> list[int]:
        """A whole plan as tokens, with the one that ends it."""
        return self._loaded.encode_reply(plan)

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, copies: int = 1
    ) -> list[Completion]:
        """Plans for these prompts, `copies` of each, from the policy as it is now."""
        if self._folded is not None:
            self._fold()
        was_training = self._decoder.model.training
        self._decoder.model.eval()
        with self._on_its_card(), self._computing():
            completions = self._decoder.complete(
                prompts,
                [sampling] * len(prompts),
                copies=copies,
                captured=self._folded is not None,
            )
        self._decoder.model.train(was_training)
        return completions

    def save(self, directory: Path, weights: Mapping[str, torch.Tensor]) -> None:
        """Write what was trained, an adapter or the whole model, from these weights of it."""
        with replace_directory(directory) as draft:
            if self._folded is not None:
                self.model.save_pretrained(draft, state_dict=weights, **ONLY_THE_ADAPTER)
                return
            with nothing_drawn():
                self.model.save_pretrained(draft, state_dict=weights)
            self.tokenizer.save_pretrained(draft)

    def _on_its_card(self) -> AbstractContextManager[Any]:
        """Plans are sampled in whatever thread, each of which has another current card."""
        device = self._decoder.model.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

    @torch.no_grad()
    def _fold(self) -> None:
        for path, layer in self.model.named_modules():
            if isinstance(layer, LoraLayer):
                target = self._folded.get_submodule(path.removeprefix(INSIDE_PEFT))
                weight = layer.get_base_layer().weight.float()
                target.weight.copy_(weight + layer.get_delta_weight(ADAPTER).float())


def _trainable(model: Any, recipe: Recipe) -> Any:
    """The model as it is where all of it is trained, else with the adapter that is trained, which
    says what it is for as the recipe does: where the base lies differs from machine to machine."""
    if recipe.model.lora is None:
        return model
    adapted = _adapted(model, recipe)
    adapted.peft_config[ADAPTER].base_model_name_or_path = recipe.model.base
    return adapted


def _adapted(model: Any, recipe: Recipe) -> Any:
    lora = recipe.model.lora
    assert lora is not None
    if recipe.model.adapter is not None:
        check_adapters(recipe)
        begun = PeftConfig.from_pretrained(recipe.model.adapter)
        begun.lora_dropout = lora.dropout  # who wrote the adapter may have trained it without
        return PeftModel.from_pretrained(
            model, recipe.model.adapter, is_trainable=True, config=begun
        )
    return get_peft_model(
        model,
        LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            target_modules=sorted(lora.targets),
            lora_dropout=lora.dropout,
            task_type="CAUSAL_LM",
        ),
    )
