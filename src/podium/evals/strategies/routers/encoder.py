"""Encoders by their names: those of `podium.routing`, and somebody's own.

One of somebody's own is an object with `encode`, such as a wrapper around a sentence model; name
the function that makes it as `module:function`, and it is made again wherever the router is read
back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from podium.evals.strategies.named import is_function_name, named_function
from podium.routing import encoders
from podium.routing.arrays import Array, unit
from podium.routing.embedding import Embedder
from podium.routing.encoders import HASHED, MINILM, Encoder, HashedEncoder

MakeEncoder = Callable[[Sequence[str]], Encoder]
"""Makes an encoder for texts like these."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedEncoder:
    """An encoder of somebody's own, made by the function `name` from nothing, and known by that
    name in what is written down."""

    name: str
    encoder: Encoder

    def encode(self, texts: Sequence[str]) -> Array:
        """The texts as rows of length one."""
        return unit(np.asarray(self.encoder.encode(list(texts)), dtype=np.float32))

    def document(self) -> dict[str, Any]:
        """Its name; what it is made of stays where it is."""
        return {"name": self.name}


def encoder_maker(name: str | None) -> MakeEncoder:
    """What makes the encoder of that name: the usual one without a name, else the one that the
    function `module:function` returns when it is called with nothing."""
    if name is None or name == HASHED:
        return HashedEncoder.fitted
    if name == MINILM:
        return lambda texts: Embedder.load()
    return lambda texts: NamedEncoder(name, named_function(name)())


def read_encoder(document: object) -> Encoder:
    """The encoder that was written down."""
    name = document.get("name") if isinstance(document, Mapping) else None
    if isinstance(name, str) and is_function_name(name):
        return NamedEncoder(name, named_function(name)())
    return encoders.read_encoder(document)
