"""A Llama or Qwen2 of a few thousand parameters, the same in transformers and for llama.cpp.

The weights are written in single precision, so that what the two compute can be compared
number by number. Needs torch, transformers and gguf.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

HEADS, KEY_HEADS, WIDTH, HIDDEN, LAYERS, CONTEXT = 4, 2, 64, 96, 2, 128

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def tiny_llama(architecture: str = "llama") -> Any:
    """The model in transformers, random and always the same."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(7)
    is_llama = architecture == "llama"
    config = (LlamaConfig if is_llama else Qwen2Config)(
        vocab_size=len(_vocabulary()),
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        max_position_embeddings=CONTEXT,
        initializer_range=0.2,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = (LlamaForCausalLM if is_llama else Qwen2ForCausalLM)(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # transformers begins with zeros, as no trained model has
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def write_gguf(model: Any, path: Path, architecture: str = "llama") -> Path:
    """The model as llama.cpp wants it."""
    from gguf import GGUFWriter, TokenType

    writer = GGUFWriter(path, architecture)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10_000.0)
    vocabulary = _vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([TokenType.NORMAL] * (len(vocabulary) - 1) + [TokenType.CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(len(vocabulary) - 1)
    for name, tensor in model.state_dict().items():
        kept = _turned(name, tensor) if architecture == "llama" else tensor
        writer.add_tensor(gguf_name(name), kept.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read_gguf(reader: Any) -> Any:
    """A Llama of any size in transformers, from a GGUF file that is open.

    transformers can do so too, but reads the file several times over, which takes half a minute.
    """
    import torch
    from gguf.quants import dequantize
    from transformers import LlamaConfig, LlamaForCausalLM

    said = {name.removeprefix("llama."): field for name, field in reader.fields.items()}
    config = LlamaConfig(
        vocab_size=said["vocab_size"].contents(),
        hidden_size=said["embedding_length"].contents(),
        intermediate_size=said["feed_forward_length"].contents(),
        num_hidden_layers=said["block_count"].contents(),
        num_attention_heads=said["attention.head_count"].contents(),
        num_key_value_heads=said["attention.head_count_kv"].contents(),
        max_position_embeddings=said["context_length"].contents(),
        rms_norm_eps=said["attention.layer_norm_rms_epsilon"].contents(),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": said["rope.freq_base"].contents(),
        },
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    weights = {}
    for name in model.state_dict():
        if name == "lm_head.weight":
            continue
        tensor = tensors[gguf_name(name)]
        matrix = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        turned = heads.get(name.split(".")[-2])
        if turned is not None:
            straight = torch.empty_like(matrix)
            straight[rotary_order(matrix.shape[0], turned)] = matrix
            matrix = straight
        weights[name] = matrix
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # it was made of nothing
    return model.eval()


def _vocabulary() -> list[str]:
    """A token for each printable byte, one that joins two, and the end."""
    return [*map(chr, range(33, 127)), "Ġ", "Ċ", "ab", "<|end|>"]


def gguf_name(name: str) -> str:
    """What GGUF calls a matrix of transformers'."""
    outside = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in outside:
        return outside[name]
    layer, _, module = name.removeprefix("model.layers.").partition(".")
    matrix, _, kind = module.rpartition(".")
    return f"blk.{layer}.{NAMES[matrix]}.{kind}"


def _turned(name: str, tensor: Any) -> Any:
    """The tensor, with the rows of queries and keys as llama.cpp turns them."""
    heads = {"q_proj": HEADS, "k_proj": KEY_HEADS}.get(name.split(".")[-2])
    return tensor if heads is None else tensor[rotary_order(tensor.shape[0], heads)]


def rotary_order(rows: int, heads: int) -> list[int]:
    """Which row of transformers' is where, for llama.cpp: the halves of each head in turns."""
    size = rows // heads
    return [
        head * size + half * (size // 2) + where
        for head in range(heads)
        for where in range(size // 2)
        for half in (0, 1)
    ]
