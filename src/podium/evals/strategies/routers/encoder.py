"""Encoders by their names: those of `podium.routing`, and somebody's own.

One of somebody's own is an object with `encode`, such as a wrapper around a sentence model; name
the function that makes it as `module:function`, and it is made again wherever the router is read
back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from podium.conductors.routing import encoders
from podium.conductors.routing.arrays import Array, normalize_rows
from podium.conductors.routing.embedding import Embedder
from podium.conductors.routing.encoders import HASHED, MINILM, Encoder, HashedEncoder
from podium.evals.strategies.by_name import is_function_name, named_function

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
        return normalize_rows(np.asarray(self.encoder.encode(list(texts)), dtype=np.float32))

    def document(self) -> dict[str, Any]:
        """Its name; what it is made of stays where it is."""
        return {"name": self.name}


def encoder_maker(name: str | None) -> MakeEncoder:
    """What makes the encoder of that name: the usual one without a name, else the one that the
    function `module:function` returns when it is called with nothing."""
    if name is None or name == HASHED:
        return HashedEncoder.fit
    if name == MINILM:
        return lambda texts: _remembering(Embedder.quick())
    return lambda texts: NamedEncoder(name, named_function(name)())


def read_encoder(document: object) -> Encoder:
    """The encoder that was written down."""
    name = document.get("name") if isinstance(document, Mapping) else None
    if isinstance(name, str) and is_function_name(name):
        return NamedEncoder(name, named_function(name)())
    if isinstance(document, Mapping) and name == MINILM:
        return _remembering(Embedder.read(document))
    return encoders.read_encoder(document)


class Remembering:
    """An embedder that makes the vector of a text once: an evaluation in folds asks for the same
    ones again and again, and each takes milliseconds."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._vectors: dict[str, Array] = {}

    def encode(self, texts: Sequence[str]) -> Array:
        """The texts as rows of length one."""
        for text in texts:
            if text not in self._vectors:
                (self._vectors[text],) = self._embedder.encode([text])
        return np.stack([self._vectors[text] for text in texts])

    def document(self) -> dict[str, Any]:
        """The embedder's."""
        return self._embedder.document()


def _remembering(embedder: Embedder) -> Remembering:
    """The one that remembers for all embedders that read alike."""
    return _REMEMBERING.setdefault(json.dumps(embedder.document()), Remembering(embedder))


_REMEMBERING: Final[dict[str, Remembering]] = {}
