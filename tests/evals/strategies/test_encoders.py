from __future__ import annotations

from collections.abc import Sequence

import pytest

np = pytest.importorskip("numpy")

from podium.conductors.routing.arrays import Array, decode_array, encode_array
from podium.conductors.routing.encoders import HashedEncoder, read_encoder

FRUIT = ["How many apples are in the basket?", "Count the apples and the pears in the basket."]
CODE = ["Write a function that sorts a list.", "Implement a function that reverses a list."]


def test_texts_about_the_same_are_nearer_than_others() -> None:
    encoder = HashedEncoder.fit([*FRUIT, *CODE])
    one, other, code, more_code = encoder.encode([*FRUIT, *CODE])
    assert one @ other > max(one @ code, one @ more_code)
    assert code @ more_code > max(code @ one, code @ other)


def test_words_in_every_text_weigh_nothing() -> None:
    encoder = HashedEncoder.fit([f"Answer in tags. {text}" for text in [*FRUIT, *CODE]])
    bare, wrapped = encoder.encode(["apples", "Answer in tags. apples"])
    assert bare @ wrapped > 0.9


def test_rows_have_length_one_and_unknown_words_none() -> None:
    rows = HashedEncoder.fit([*FRUIT, *CODE]).encode([FRUIT[0], ""])
    assert np.linalg.norm(rows, axis=1).tolist() == pytest.approx([1, 0], abs=1e-5)


def test_an_encoder_that_was_written_down_encodes_alike() -> None:
    encoder = HashedEncoder.fit([*FRUIT, *CODE])
    again = read_encoder(encoder.document())
    assert np.array_equal(again.encode(CODE), encoder.encode(CODE))


class Lengths:
    """A user's own encoder."""

    def encode(self, texts: Sequence[str]) -> Array:
        rows: Array = np.array([[len(text), 1] for text in texts], dtype=np.float32)
        return rows


def test_arrays_come_back_as_they_were() -> None:
    array: Array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(decode_array(encode_array(array)), array)
