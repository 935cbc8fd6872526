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
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from podium.errors import ConfigError
from podium.local import weights

CHATML_MARK: Final = "<|im_start|>"
CHATML_END: Final = "<|im_end|>"
CHATML: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
    "{{ '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""ChatML and nothing else: some models' own templates put a system prompt before a conversation
that has none, which small models take for a part of what is asked."""


DIGIT_BY_DIGIT: Final = ("smollm",)
"""What GGUF calls the ways of splitting words that take every digit by itself."""


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model, its tokenizer, the tokens that end a turn, and which of them a reply is taught to
    end with."""

    model: Any
    tokenizer: Any
    end_tokens: tuple[int, ...]
    turn_end: int

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
    if file:
        model = _as_plain_weights(model)
        _split_digits_as(Path(folder) / file, tokenizer)
    model.to(place).eval()
    turn_end = tokenizer.eos_token_id
    if CHATML_MARK in (tokenizer.chat_template or ""):
        tokenizer.chat_template = CHATML
        turn_end = tokenizer.convert_tokens_to_ids(CHATML_END)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Pretrained(model, tokenizer, _end_tokens(model, tokenizer, turn_end), turn_end)


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


def _as_plain_weights(model: Any) -> Any:
    """The model as if it had never been quantised: transformers has the weights in full already,
    but would not train what it remembers as GGUF.

    Only parameters become narrower than 32 bits. The frequencies by which positions are told
    apart are kept in full: rounded, a token some hundreds of places away would be misplaced.
    """
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=model.dtype)
    plain.load_state_dict(model.state_dict())
    return plain


def _split_digits_as(file: Path, tokenizer: Any) -> None:
    """Split numbers into digits where the model's own tokenizer does: transformers loses that
    when it reads a GGUF file, and llama.cpp does not."""
    field = GGUFReader(file).get_field("tokenizer.ggml.pre")
    if field is not None and field.contents() in DIGIT_BY_DIGIT:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )


def _end_tokens(model: Any, tokenizer: Any, turn_end: int) -> tuple[int, ...]:
    ends = {tokenizer.eos_token_id, turn_end}
    configured = model.generation_config.eos_token_id
    ends.update(configured if isinstance(configured, list) else [configured])
    return tuple(sorted(end for end in ends if end is not None and end != tokenizer.unk_token_id))
