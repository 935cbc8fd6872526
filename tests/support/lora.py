"""A LoRA adapter made by hand, in the file format that llama.cpp reads."""

from __future__ import annotations

import struct
from pathlib import Path

ALIGNMENT = 32
STRING, FLOAT32, TENSOR_OF_FLOAT32 = 8, 6, 0


def write_adapter(path: Path, tensor: str, inputs: int, outputs: int, value: float) -> None:
    """An adapter of rank 1 that adds `value` times the sum of a matrix's inputs to each output."""
    values = {
        "general.type": "adapter",
        "general.architecture": "llama",
        "adapter.type": "lora",
        "adapter.lora.alpha": 1.0,
    }
    tensors = {
        f"{tensor}.lora_a": ((inputs, 1), [1.0] * inputs),
        f"{tensor}.lora_b": ((1, outputs), [value] * outputs),
    }
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for key, setting in values.items():
        head += _text(key)
        if isinstance(setting, str):
            head += struct.pack("<I", STRING) + _text(setting)
        else:
            head += struct.pack("<If", FLOAT32, setting)
    data = b""
    for name, (shape, numbers) in tensors.items():
        head += _text(name) + struct.pack("<IQQ", 2, *shape)
        head += struct.pack("<IQ", TENSOR_OF_FLOAT32, len(data))
        data += _padded(struct.pack(f"<{len(numbers)}f", *numbers))
    path.write_bytes(_padded(head) + data)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % ALIGNMENT)
