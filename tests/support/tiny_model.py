"""A causal model of a few thousand parameters with a tokenizer of its own, as transformers saves
them: random, always the same, made in a moment and with no network. Needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import pytest

HIDDEN, LAYERS, HEADS, KEY_HEADS, CONTEXT = 48, 2, 6, 2, 4096
END, START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TOKENS: Final = 380

WORDS: Final = (
    "system user assistant the question and the answer of a worker in one step",
    "model_id = [0, 1, 2] subtasks = ['', '', ''] access_list = [[], [0], ['all']]",
    "Add, count, sort, translate: which day comes after the first? What is the capital of Japan?",
)

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

Architecture = Literal["llama", "qwen2"]


def tiny_model(directory: Path, architecture: Architecture = "llama") -> Path:
    """Write the model and its tokenizer to the directory, and return it."""
    model(architecture).save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    return directory


def model(architecture: Architecture = "llama") -> Any:
    """The model in memory; its logits differ enough that it does not always say the same."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    configs = {"llama": LlamaConfig, "qwen2": Qwen2Config}
    models = {"llama": LlamaForCausalLM, "qwen2": Qwen2ForCausalLM}
    config = configs[architecture](
        vocab_size=TOKENS,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        max_position_embeddings=CONTEXT,
        initializer_range=0.2,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer().eos_token_id,
        pad_token_id=tokenizer().pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        made = models[architecture](config).eval()
        for name, parameter in made.named_parameters():
            if name.endswith("bias"):  # transformers begins with zeros, as no trained model has
                torch.nn.init.normal_(parameter, std=0.2)
        return made


@cache
def tokenizer() -> Any:
    """Bytes and a few of their pairs, every digit by itself, turns in ChatML."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=[END, START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(WORDS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=START,
        eos_token=TURN_END,
        pad_token=END,
        unk_token=END,
        chat_template=CHAT_TEMPLATE,
    )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """For tests that import this: threads that wait for each other would only slow them down."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
