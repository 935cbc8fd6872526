"""A causal model of a few thousand parameters with a tokenizer of its own, as transformers saves
them: random, always the same, made in a moment and with no network. Needs torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from support.tiny_llama import gguf_name, rotary_order

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


def tiny_gguf(path: Path) -> Path:
    """The Llama and its tokenizer in one file, as llama.cpp wants them, in single precision."""
    from gguf import GGUFWriter, TokenType

    writer = GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_vocab_size(TOKENS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10_000.0)
    vocabulary = sorted(tokenizer().get_vocab(), key=tokenizer().get_vocab().__getitem__)
    merges = json.loads(tokenizer().backend_tokenizer.to_str())["model"]["merges"]
    marks = {END, START, TURN_END}
    kinds = [TokenType.CONTROL if token in marks else TokenType.NORMAL for token in vocabulary]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(vocabulary.index(START))
    writer.add_eos_token_id(vocabulary.index(TURN_END))
    writer.add_pad_token_id(vocabulary.index(END))
    writer.add_unk_token_id(vocabulary.index(END))
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in model().state_dict().items():
        heads = {"q_proj": HEADS, "k_proj": KEY_HEADS}.get(name.split(".")[-2])
        turned = tensor if heads is None else tensor[rotary_order(tensor.shape[0], heads)]
        writer.add_tensor(gguf_name(name), turned.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


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
