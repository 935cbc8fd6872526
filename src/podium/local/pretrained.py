"""A transformers model and its tokenizer, from wherever the weights are.

A model is named by a directory, by a GGUF file, by a name that Podium keeps weights under, or by
its name on the hub. Needs torch and transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from podium.errors import ConfigError
from podium.local import weights

CHATML_MARK: Final = "<|im_start|>"
CHATML: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
    "{{ '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""ChatML and nothing else: some models' own templates put a system prompt before a conversation
that has none, which small models take for a part of what is asked."""


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model, its tokenizer, and the tokens that end a turn."""

    model: Any
    tokenizer: Any
    end_tokens: tuple[int, ...]

    def encode(self, messages: list[dict[str, str]], prefill: str = "") -> list[int]:
        """The conversation as tokens, up to where the assistant's turn begins, or has begun."""
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        tokens: list[int] = self.tokenizer(text + prefill, add_special_tokens=False)["input_ids"]
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The words of a completion."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text


def load(name: str, *, dtype: torch.dtype = torch.float32, device: str = "") -> Pretrained:
    """The model of that name, in memory."""
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    folder, file = _located(name)
    options = {"gguf_file": file} if file else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **options)
    except OSError as error:
        raise ConfigError(f"the model {name!r} cannot be loaded: {error}") from error
    model.to(place).eval()
    if CHATML_MARK in (tokenizer.chat_template or ""):
        tokenizer.chat_template = CHATML
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Pretrained(model, tokenizer, _end_tokens(model, tokenizer))


def data_type(name: str) -> torch.dtype:
    """The type of that name; `auto` is half as wide where there is a graphics card."""
    if name == "auto":
        return torch.bfloat16 if torch.cuda.is_available() else torch.float32
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ConfigError(f"dtype is {name!r}; use auto, bfloat16, float16 or float32")
    return found


def _located(name: str) -> tuple[str, str]:
    """The directory or hub name, and the file in it where the weights are GGUF."""
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path), ""
    if path.suffix != ".gguf":
        if "/" in name:
            return name, ""
        path = weights.find(name).path
    if not path.is_file():
        raise ConfigError(f"there is no file {path}; podium models pull fetches weights")
    return str(path.parent), path.name


def _end_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    ends = {tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_end|>")}
    configured = model.generation_config.eos_token_id
    ends.update(configured if isinstance(configured, list) else [configured])
    return tuple(sorted(end for end in ends if end is not None and end != tokenizer.unk_token_id))
