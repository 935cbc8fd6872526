"""A transformers model and its tokenizer, from a directory, a GGUF file or the hub. Needs torch."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import gguf
import torch
from jinja2 import TemplateError
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, modeling_gguf_pytorch_utils
from transformers.utils import logging

from podium.core.errors import ConfigError
from podium.workers.local import weights
from podium.workers.local.sources import is_repository, weights_file

CHATML_MARK: Final = "<|im_start|>"
CHATML_END: Final = "<|im_end|>"
CHATML: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
    "{{ '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""Plain ChatML.

Some models' own templates add a system prompt to a conversation without one, which small models
take for part of the question.
"""


DIGIT_BY_DIGIT: Final = ("smollm",)
"""GGUF's names of pre-tokenizers that split numbers into digits."""

_LOADING: Final = threading.Lock()
"""Serialises loading, because `_read_once` patches for all threads."""


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model, its tokenizer, its end-of-turn tokens and the one that replies are trained to end
    with."""

    model: Any
    tokenizer: Any
    end_tokens: tuple[int, ...]
    turn_end: int
    _tokenizing: Any = field(default_factory=threading.Lock, repr=False, compare=False)
    """Tokenizers are not thread-safe."""

    @property
    def context(self) -> int | None:
        """The context length in tokens, if the model states it."""
        limit: int | None = getattr(self.model.config, "max_position_embeddings", None)
        return limit

    def encode(self, messages: list[dict[str, str]], prefill: str = "") -> list[int]:
        """Tokenize a conversation up to the assistant's turn, its prefill included."""
        try:
            with self._tokenizing:
                text = self.tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True
                )
                encoded = self.tokenizer(text + prefill, add_special_tokens=False)
        except TemplateError as error:
            problem = f"the model's chat template refuses this conversation: {error}"
            raise ConfigError(problem) from error
        tokens: list[int] = encoded["input_ids"]
        return tokens

    def encode_text(self, text: str) -> list[int]:
        with self._tokenizing:
            tokens: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    def encode_reply(self, text: str) -> list[int]:
        return [*self.encode_text(text), self.turn_end]

    def decode(self, tokens: Sequence[int]) -> str:
        with self._tokenizing:
            text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text


def load(name: str, *, dtype: torch.dtype = torch.float32, device: str = "") -> Pretrained:
    on_device = _torch_device(device)
    folder, file = _locate(name)
    options: dict[str, Any] = {"gguf_file": file} if file else {}
    options["local_files_only"] = os.environ.get(weights.OFFLINE_VARIABLE, "") not in ("", "0")
    with _read_once():
        try:
            with silence_progress_bars():
                tokenizer = AutoTokenizer.from_pretrained(folder, **options)
                model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **options)
        except Exception as error:  # whatever transformers makes of what it finds there
            raise ConfigError(f"the model {name!r} cannot be loaded: {error}") from error
        if file:
            model = _as_plain_weights(model)
            _split_digits_as(Path(folder) / file, tokenizer)
    model.to(on_device).eval()
    return _find_turn_ends(name, model, tokenizer)


@contextmanager
def silence_progress_bars() -> Iterator[None]:
    was_drawing = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    gguf_bar, modeling_gguf_pytorch_utils.tqdm = modeling_gguf_pytorch_utils.tqdm, _no_bar
    try:
        yield
    finally:
        modeling_gguf_pytorch_utils.tqdm = gguf_bar
        if was_drawing:
            logging.enable_progress_bar()


@contextmanager
def _read_once() -> Iterator[None]:
    """Read a GGUF file and map its tensor names once.

    transformers does the first three times and the second per layer, which is most of the loading
    time.
    """
    with _LOADING:
        read, name = gguf.GGUFReader, gguf.get_tensor_name_map
        gguf.GGUFReader, gguf.get_tensor_name_map = cache(read), cache(name)
        try:
            yield
        finally:
            gguf.GGUFReader, gguf.get_tensor_name_map = read, name


def _no_bar(items: Iterable[Any], **_: Any) -> Iterable[Any]:
    """Replaces the one progress bar that transformers' switch does not reach."""
    return items


def _find_turn_ends(name: str, model: Any, tokenizer: Any) -> Pretrained:
    if not tokenizer.chat_template:
        raise ConfigError(
            f"the model {name!r} has no chat template, so it was not made to converse; use one "
            f"that was, often called instruct"
        )
    turn_end = tokenizer.eos_token_id
    known = tokenizer.get_vocab()
    if CHATML_MARK in tokenizer.chat_template and CHATML_END in known:
        tokenizer.chat_template = CHATML
        turn_end = known[CHATML_END]
    if turn_end is None:
        raise ConfigError(f"the tokenizer of {name!r} has no token that ends a turn (eos_token)")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(turn_end)
    configured = model.generation_config.eos_token_id
    ends = {turn_end, tokenizer.eos_token_id}
    ends.update(configured if isinstance(configured, list) else [configured])
    return Pretrained(model, tokenizer, tuple(sorted(ends - {None})), turn_end)


def data_type(name: str) -> torch.dtype:
    """Return the dtype of that name; `auto` is half precision on a GPU."""
    if name == "auto":
        return torch.bfloat16 if torch.cuda.is_available() else torch.float32
    found = getattr(torch, name, None)
    if not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise ConfigError(f"dtype is {name!r}; use auto, bfloat16, float16 or float32")
    return found


def _own_card() -> str:
    """Return this process's GPU if a torch launcher has assigned one.

    torch's current device differs in every thread.
    """
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def _torch_device(device: str) -> torch.device:
    """Return the device of that name, by default the GPU if there is one."""
    has_card = torch.cuda.is_available()
    try:
        on_device = torch.device(device or (_own_card() if has_card else "cpu"))
    except RuntimeError as error:
        raise ConfigError(f"device is {device!r}; use cpu, cuda, or cuda:0 and so on") from error
    if on_device.type == "cuda" and not has_card:
        raise ConfigError(
            f"device is {device!r}, and torch finds no GPU; leave it out, or "
            f"install a build of torch for the card"
        )
    return on_device


def _locate(name: str) -> tuple[str, str]:
    file = weights_file(name)
    if file is None:
        return name if is_repository(name) else str(_path(name)), ""
    found = weights.find(file)
    if not found.path.is_file():
        raise ConfigError(f"the model {name!r} is not at {found.path}; {found.remedy}")
    return str(found.path.parent), found.path.name


def _path(name: str) -> Path:
    return Path(name.removeprefix("file:")).expanduser()


def _as_plain_weights(model: Any) -> Any:
    """Make the model look as if it had never been quantised.

    transformers has dequantised the weights but refuses to train what it remembers as GGUF. Only
    parameters are cast: rotary frequencies stay in 32 bits, or distant positions would be
    misplaced.
    """
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=model.dtype)
    plain.load_state_dict(model.state_dict())
    return plain


def _split_digits_as(file: Path, tokenizer: Any) -> None:
    """Split numbers into digits if the model's tokenizer does.

    transformers loses that when it reads GGUF; llama.cpp does not.
    """
    field = gguf.GGUFReader(str(file)).get_field("tokenizer.ggml.pre")
    if field is not None and field.contents() in DIGIT_BY_DIGIT:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
