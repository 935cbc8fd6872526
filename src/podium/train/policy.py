"""The policy: the trained model, and plans sampled from it.

With an adapter, plans are sampled from a copy of the base with the adapter merged in, which is
updated before each use: that halves the work for every token.
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
from podium.workers.local.pretrained import silence_progress_bars

ADAPTER: Final = "default"
"""peft's name of the trained adapter."""

ONLY_THE_ADAPTER: Final[Mapping[str, Any]] = {
    "selected_adapters": [ADAPTER],
    "save_embedding_layers": False,
}
"""Have peft write neither the reference nor embeddings, about which it would ask the hub."""

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
        """Encode the conversation, up to where the plan begins."""
        return self._loaded.encode(messages, opener)

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode a completion."""
        return self._loaded.decode(tokens)

    def tokens_of(self, plan: str) -> list[int]:
        """Encode a whole plan, with the token that ends it."""
        return self._loaded.encode_reply(plan)

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, copies: int = 1
    ) -> list[Completion]:
        """Sample `copies` completions of each prompt from the current policy."""
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
        """Write these weights of the adapter or the whole model."""
        with replace_directory(directory) as draft:
            if self._folded is not None:
                self.model.save_pretrained(draft, state_dict=weights, **ONLY_THE_ADAPTER)
                return
            with silence_progress_bars():
                self.model.save_pretrained(draft, state_dict=weights)
            self.tokenizer.save_pretrained(draft)

    def _on_its_card(self) -> AbstractContextManager[Any]:
        """Select the model's GPU: each thread has a current device of its own."""
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
    """Return the model with its trainable adapter, if it has one."""
    lora = recipe.model.lora
    if lora is None:
        return model
    if recipe.model.adapter is not None:
        check_adapters(recipe)
        config = PeftConfig.from_pretrained(recipe.model.adapter)
        config.lora_dropout = lora.dropout  # the adapter may have been trained with another
        adapted: Any = PeftModel.from_pretrained(
            model, recipe.model.adapter, is_trainable=True, config=config
        )
    else:
        config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            target_modules=sorted(lora.targets),
            lora_dropout=lora.dropout,
            task_type="CAUSAL_LM",
        )
        adapted = get_peft_model(model, config)
    # The recipe's name of the base: its path differs from machine to machine.
    adapted.peft_config[ADAPTER].base_model_name_or_path = recipe.model.base
    return adapted
