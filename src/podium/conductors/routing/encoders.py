"""Encoders: texts as vectors that routers compare.

    encoder = HashedEncoder.fit(questions)
    vectors = encoder.encode(["What is six times seven?"])

`hashed` counts words and needs no weights; `minilm` is the sentence embedding all-MiniLM-L6-v2:

    Embedder.load().encode(["What is six times seven?"])      # one row of 384, of length one

Its vectors equal those of sentence-transformers to a ten-thousandth. numpy instead of torch because
a server pays for it: on one core, beside what a server has loaded anyway (torch 2.13,
transformers 5.22, same three layers and 40 tokens),

                import     memory      a question (p50, p95)    installed
    this        0.1 s       96 MiB     6.2 ms,  6.9 ms           58 MB
    torch       3.3 s      473 MiB     8.9 ms, 10.0 ms          937 MB

Routers use `Embedder.quick()`: three of the six layers, as difficulty depends on the wording, and
both ends of a long text. `podium models pull all-minilm-l6-v2` fetches the weights.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from podium.conductors.routing.arrays import (
    Array,
    decode_array,
    encode_array,
    keep_both_ends,
    normalize_rows,
)
from podium.core.errors import ConfigError, needs_extra
from podium.workers.local import weights

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BUCKETS: Final = 2048
"""Number of counters that words are hashed into."""

MAX_CHARACTERS: Final = 16_384
"""Characters that are read of a text, from both ends, so that a decision takes milliseconds."""

_TOKEN: Final = re.compile(r"[^\W\d_]+|\d|[^\w\s]")


class Encoder(Protocol):
    """Turns texts into vectors of length one."""

    def encode(self, texts: Sequence[str]) -> Array:
        """Encode the texts as rows."""

    def document(self) -> dict[str, Any]:
        """Return the encoder as JSON."""


@dataclass(frozen=True, slots=True, eq=False)
class HashedEncoder:
    """TF-IDF over hashed words and word pairs; `weights` has a number for each bucket."""

    weights: Array

    @classmethod
    def fit(cls, texts: Sequence[str]) -> HashedEncoder:
        """Fit an encoder to the texts; what is in all of them or in none weighs nothing."""
        found = (_counts(texts) != 0).sum(axis=0)
        rarity = np.log((1 + len(texts)) / (1 + found))
        return cls(np.where(found > 0, rarity, 0).astype(np.float32))

    def encode(self, texts: Sequence[str]) -> Array:
        """Encode the texts as rows of length one; a text of unknown words is a row of zeros."""
        return normalize_rows(_counts(texts) * self.weights)

    def document(self) -> dict[str, Any]:
        return {"name": "hashed", "weights": encode_array(self.weights)}


def read_encoder(document: Mapping[str, Any]) -> Encoder:
    if document["name"] == "hashed":
        return HashedEncoder(decode_array(document["weights"]))
    return Embedder.load(tokens=document["tokens"], layers=document["layers"])


def _counts(texts: Sequence[str]) -> Array:
    """Count the buckets of each text, as logarithms.

    The sign of a token keeps those that share a bucket apart on average.
    """
    counts = np.zeros((len(texts), BUCKETS), dtype=np.float32)
    for row, text in enumerate(texts):
        for token in _tokens(text):
            bucket, sign = _position(token)
            counts[row, bucket] += sign
    found: Array = np.sign(counts) * np.log1p(np.abs(counts))
    return found


def _tokens(text: str) -> Iterator[str]:
    words = _TOKEN.findall(keep_both_ends(text, MAX_CHARACTERS).casefold())
    yield from words
    yield from (f"{one} {other}" for one, other in pairwise(words))


@lru_cache(maxsize=200_000)
def _position(token: str) -> tuple[int, float]:
    number = zlib.crc32(token.encode())
    return number % BUCKETS, 1.0 if number >> 31 else -1.0


MODEL: Final = "all-minilm-l6-v2"
"""The name by which `podium models pull` fetches the weights."""

MAX_TOKENS: Final = 256
"""Tokens that the model was trained to read of one text."""

QUICK_TOKENS: Final = 40
"""Tokens that routers read."""

QUICK_LAYERS: Final = 3
"""Layers that routers use; of 1 to 6 the best on training questions of MMLU's first fold."""

CHARACTERS_PER_TOKEN: Final = 16
"""Characters that are read for each token; most tokens have four or five."""

VOCABULARY: Final = "vocabulary.txt"
HEAD_WIDTH: Final = 32
"""Width of an attention head; MiniLM has twelve heads."""

BLOCK: Final = 32
"""Columns of a block of weights. BLAS copies a large matrix into an order of its own before each
product, which for the few rows of a question takes longer than the product; small blocks it does
not copy."""

MAX_BLOCK_ROWS: Final = 384
"""The most rows of a block."""

NORM_EPSILON: Final = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class _Norm:
    """Layer normalisation."""

    scale: Array
    shift: Array

    def __call__(self, rows: Array) -> Array:
        centred: Array = rows - rows.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        centred /= np.sqrt(variance + NORM_EPSILON)
        centred *= self.scale
        centred += self.shift
        return centred


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A linear layer; `row_blocks` has the weight's blocks of each stretch of rows."""

    row_blocks: tuple[Array, ...]
    bias: Array

    @classmethod
    def of(cls, weight: Array, bias: Array) -> Linear:
        stretches = np.split(weight, range(MAX_BLOCK_ROWS, len(weight), MAX_BLOCK_ROWS))
        return cls(tuple(_blocks(stretch) for stretch in stretches), bias)

    def __call__(self, rows: Array) -> Array:
        """Return the rows times the weight, plus the bias."""
        found: Array = np.empty((len(rows), len(self.bias)), dtype=rows.dtype)
        by_block = found.reshape(len(rows), -1, BLOCK).transpose(1, 0, 2)
        for position, blocks in enumerate(self.row_blocks):
            part = rows[:, position * MAX_BLOCK_ROWS : (position + 1) * MAX_BLOCK_ROWS]
            if position == 0:
                np.matmul(part, blocks, out=by_block)
            else:
                by_block += part @ blocks
        found += self.bias
        return found


def _blocks(weight: Array) -> Array:
    return np.ascontiguousarray(weight.reshape(len(weight), -1, BLOCK).transpose(1, 0, 2))


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """A layer of BERT. Query, key and value are one matrix: one product is faster than three."""

    attention: Linear
    attention_output: Linear
    attention_norm: _Norm
    intermediate: Linear
    output: Linear
    output_norm: _Norm

    def __call__(self, rows: Array) -> Array:
        mixed = self.attention_norm(self.attention_output(self._attend(rows)) + rows)
        return self.output_norm(self.output(_gelu(self.intermediate(mixed))) + mixed)

    def _attend(self, rows: Array) -> Array:
        count, width = rows.shape
        heads = self.attention(rows).reshape(count, 3, width // HEAD_WIDTH, HEAD_WIDTH)
        query, key, value = heads.transpose(1, 2, 0, 3)
        likeness = query @ key.transpose(0, 2, 1)
        likeness *= HEAD_WIDTH**-0.5
        likeness -= likeness.max(axis=-1, keepdims=True)
        np.exp(likeness, out=likeness)
        likeness /= likeness.sum(axis=-1, keepdims=True)
        found: Array = (likeness @ value).transpose(1, 0, 2).reshape(count, width)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Network:
    words: Array
    positions: Array
    norm: _Norm
    layers: tuple[_Layer, ...]

    def vector(self, ids: Sequence[int]) -> Array:
        """Return the mean of the last layer over the tokens."""
        rows = self.norm(self.words[list(ids)] + self.positions[: len(ids)])
        for layer in self.layers:
            rows = layer(rows)
        found: Array = rows.mean(axis=0)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Embedder:
    """Embeds texts, reading `tokens` tokens of each."""

    network: _Network
    tokenizer: Tokenizer
    tokens: int = MAX_TOKENS

    @classmethod
    def load(
        cls, path: Path | None = None, *, tokens: int = MAX_TOKENS, layers: int | None = None
    ) -> Embedder:
        """Load the weights at `path`, or those that were pulled; `layers` limits the layers."""
        if not 3 <= tokens <= MAX_TOKENS:
            raise ConfigError(f"expected between 3 and {MAX_TOKENS} tokens to read, not {tokens}")
        return cls(_network(path or _weights_path(), layers), _tokenizer(), tokens)

    @classmethod
    def quick(cls) -> Embedder:
        return cls.load(tokens=QUICK_TOKENS, layers=QUICK_LAYERS)

    def encode(self, texts: Sequence[str]) -> Array:
        if not texts:
            return np.zeros((0, self.network.words.shape[1]), dtype=np.float32)
        return normalize_rows(np.stack([self.network.vector(self.ids(text)) for text in texts]))

    def ids(self, text: str) -> list[int]:
        """Return the token ids, with those of beginning and end."""
        # What lies far from the tokens that are read need not be looked at.
        found: list[int] = self.tokenizer.encode(
            keep_both_ends(text, CHARACTERS_PER_TOKEN * self.tokens)
        ).ids
        if len(found) <= self.tokens:
            return found
        end = self.tokens // 2
        return [*found[: self.tokens - end], *found[-end:]]

    def document(self) -> dict[str, Any]:
        return {"name": "minilm", "tokens": self.tokens, "layers": len(self.network.layers)}


def _weights_path() -> Path:
    model = weights.find(MODEL)
    if not model.present:
        raise ConfigError(f"the weights of {MODEL} are not at {model.path}; {model.remedy}")
    return model.path


@cache
def _network(path: Path, layers: int | None) -> _Network:
    """Load the network's first layers, once for each process."""
    with needs_extra("router", "embedding a question"):
        from safetensors.numpy import load_file
    try:
        tensors = load_file(path)
        count = 1 + max(int(name.split(".")[2]) for name in tensors if name.startswith("encoder."))
        # The model has two kinds of text, and a question is of the first.
        kind = tensors["embeddings.token_type_embeddings.weight"][0]
        network = _Network(
            tensors["embeddings.word_embeddings.weight"],
            tensors["embeddings.position_embeddings.weight"] + kind,
            _norm(tensors, "embeddings.LayerNorm"),
            tuple(_layer(tensors, f"encoder.layer.{item}") for item in range(count)[:layers]),
        )
    except Exception as error:  # safetensors has errors of its own for what is no such file
        raise ConfigError(
            f"{path}: expected the weights of {MODEL} ({type(error).__name__}: {error}); remove "
            f"the file and run `podium models pull {MODEL}`"
        ) from error
    if layers is not None and not 1 <= layers <= count:
        raise ConfigError(f"expected between 1 and {count} layers to read by, not {layers}")
    return network


def _layer(tensors: Mapping[str, Array], name: str) -> _Layer:
    return _Layer(
        _linear(tensors, *(f"{name}.attention.self.{part}" for part in _ATTENTION)),
        _linear(tensors, f"{name}.attention.output.dense"),
        _norm(tensors, f"{name}.attention.output.LayerNorm"),
        _linear(tensors, f"{name}.intermediate.dense"),
        _linear(tensors, f"{name}.output.dense"),
        _norm(tensors, f"{name}.output.LayerNorm"),
    )


_ATTENTION: Final = ("query", "key", "value")


def _linear(tensors: Mapping[str, Array], *names: str) -> Linear:
    """Join the layers side by side; a file has a row for each output."""
    weights = np.concatenate([tensors[f"{name}.weight"] for name in names])
    return Linear.of(weights.T, np.concatenate([tensors[f"{name}.bias"] for name in names]))


def _norm(tensors: Mapping[str, Array], name: str) -> _Norm:
    return _Norm(tensors[f"{name}.weight"], tensors[f"{name}.bias"])


@cache
def _tokenizer() -> Tokenizer:
    """Return BERT's uncased WordPiece tokenizer, over the vocabulary that ships."""
    with needs_extra("router", "embedding a question"):
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    words = (
        resources.files("podium.conductors.routing")
        .joinpath(VOCABULARY)
        .read_text("utf-8")
        .split("\n")
    )
    numbers = {word: number for number, word in enumerate(words) if word}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))  # noqa: S106 - no secret
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"])
    )
    return tokenizer


def _gelu(numbers: Array) -> Array:
    """Return GELU, with the error function of Abramowitz and Stegun 7.1.26, off by 2e-7."""
    scaled = np.abs(numbers)
    scaled *= 2**-0.5
    near = 1 / (1 + 0.3275911 * scaled)
    total = np.full_like(near, 1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        total *= near
        total += factor
    total *= near
    np.square(scaled, out=scaled)
    np.negative(scaled, out=scaled)
    np.exp(scaled, out=scaled)
    total *= scaled  # one less the error function of the absolute value
    total *= 0.5 * np.abs(numbers)
    found: Array = np.maximum(numbers, 0)
    found -= total
    return found
