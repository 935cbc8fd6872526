"""An adapter on disk, as peft writes it: a directory with two files, and what the first one says.

The matrices in the second are read where they are used: `podium.local.lora` lays them onto a
model, `podium.train.export` writes them for llama.cpp. Needs no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from podium.errors import ConfigError

CONFIG_FILE: Final = "adapter_config.json"
WEIGHTS_FILE: Final = "adapter_model.safetensors"
MODEL_CONFIG_FILE: Final = "config.json"
"""What lies in the directory of a whole model."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What an adapter says of itself; `said` is all of it, and `base` is what it is for, empty
    where it does not say."""

    path: Path
    rank: int
    alpha: float
    by_root: bool
    base: str
    said: Mapping[str, Any]

    def scale(self, rank: int) -> float:
        """What the product of two matrices of that rank is multiplied by."""
        return self.alpha / (math.sqrt(rank) if self.by_root else rank)


def read_config(directory: Path) -> AdapterConfig:
    """What the adapter in that directory says of itself."""
    path = directory / CONFIG_FILE
    try:
        said = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise _no_adapter(directory) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; save the adapter again") from error
    if not isinstance(said, dict) or said.get("peft_type") != "LORA":
        kind = said.get("peft_type") if isinstance(said, dict) else None
        raise ConfigError(f"{path} is of the type {kind}; only LORA can be used here, train such")
    rank, alpha, base = (said.get(key) for key in ("r", "lora_alpha", "base_model_name_or_path"))
    if not isinstance(rank, int) or not isinstance(alpha, int | float):
        raise ConfigError(
            f"{path} has r = {rank!r} and lora_alpha = {alpha!r}, which should be numbers; save "
            f"the adapter again"
        )
    named = base if isinstance(base, str) else ""
    return AdapterConfig(path, rank, float(alpha), bool(said.get("use_rslora")), named, said)


def _no_adapter(directory: Path) -> ConfigError:
    if (directory / MODEL_CONFIG_FILE).is_file():
        return ConfigError(f"{directory} holds a whole model; name the directory of an adapter")
    return ConfigError(
        f"{directory} holds no adapter; name the directory in which {CONFIG_FILE} and "
        f"{WEIGHTS_FILE} were saved"
    )
