"""Hidden states of a tiny model, beside what transformers says they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import ConfigError, WorkerCrashed
from podium_lab.evolution import hidden_states as reading
from podium_lab.evolution.hidden_states import HiddenStateReader
from support.tiny_model import model as tiny
from support.tiny_model import one_thread, tiny_model, tokenizer

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

pytestmark = pytest.mark.torch

__all__ = ["one_thread"]

TEXT = "user: What is the capital of Japan?\n"
QUERIES = "model.layers.1.self_attn.q_proj.weight"
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
async def reader(base: str) -> AsyncIterator[HiddenStateReader]:
    reader = HiddenStateReader(base, device="cpu")
    yield reader
    await reader.close()


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts were read at a time."""
    sizes: list[int] = []
    states = reading._LoadedReader._states

    def counted(work: Any, batch: Any) -> list[Any]:
        sizes.append(len(batch))
        return states(work, batch)

    monkeypatch.setattr(reading._LoadedReader, "_states", counted)
    return sizes


def said_by(model: Any, tokens: list[int], where: int) -> Any:
    """The state that transformers itself gives."""
    with torch.no_grad():
        outcome = model(torch.tensor([tokens]), output_hidden_states=True)
    return outcome.hidden_states[-1][0, where].numpy()


def tokens_of(text: str) -> list[int]:
    return list(tokenizer()(text, add_special_tokens=False)["input_ids"])


def close(one: Any, other: Any) -> bool:
    return bool(np.allclose(one, other, atol=1e-4))


async def test_the_state_is_that_of_the_penultimate_token_after_the_last_layer(
    reader: HiddenStateReader, base: str
) -> None:
    state = await reader.read(TEXT)
    assert state.dtype == np.float32
    assert close(state, said_by(tiny(), tokens_of(TEXT), -2))
    last = HiddenStateReader(base, token="last", device="cpu")
    assert close(await last.read(TEXT), said_by(tiny(), tokens_of(TEXT), -1))
    await last.close()


async def test_texts_at_one_time_are_one_batch_and_each_has_its_own_state(
    reader: HiddenStateReader, batches: list[int]
) -> None:
    texts = [TEXT * (1 + where % 3) + str(where) for where in range(9)]
    together = await asyncio.gather(*map(reader.read, texts))
    assert batches == [9]
    for text, state in zip(texts, together, strict=True):
        assert close(state, said_by(tiny(), tokens_of(text), -2))


async def test_a_long_text_is_read_by_its_beginning_and_its_end(
    reader: HiddenStateReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LONGEST_TEXT", 8)
    tokens = tokens_of(TEXT)
    assert close(await reader.read(TEXT), said_by(tiny(), tokens[:4] + tokens[-4:], -2))
    (await reader._model.ready()).model.config.max_position_embeddings = 6
    assert close(await reader.read(TEXT), said_by(tiny(), tokens[:3] + tokens[-3:], -2))


async def test_a_text_of_one_token_is_read_by_that(reader: HiddenStateReader) -> None:
    assert close(await reader.read("a"), said_by(tiny(), tokens_of("a"), -1))
    with pytest.raises(ConfigError, match="nothing to read"):
        await reader.read("")


async def test_the_width_and_the_ranks_are_those_of_the_model(reader: HiddenStateReader) -> None:
    assert await reader.width() == 48
    assert await reader.ranks([QUERIES, EMBEDDING]) == (48, 48)
    with pytest.raises(ConfigError, match="has no matrix 'model.norm.weight'; it has model.embed"):
        await reader.ranks(["model.norm.weight"])


async def test_scaled_singular_values_change_the_state_as_the_formula_says(
    reader: HiddenStateReader, batches: list[int]
) -> None:
    growth = np.linspace(-0.5, 0.9, 48).astype(np.float32)
    scaled = ((QUERIES, tuple(growth.tolist())), (EMBEDDING, tuple((-growth).tolist())))
    unscaled = ((QUERIES, (0.0,) * 48),)
    changed, plain, same = await asyncio.gather(
        reader.read(TEXT, scaled), reader.read(TEXT), reader.read(TEXT, unscaled)
    )
    model = tiny()
    with torch.no_grad():
        for name, grown in ((QUERIES, growth), (EMBEDDING, -growth)):
            weight = model.get_parameter(name)
            left, values, right = torch.linalg.svd(weight, full_matrices=False)
            new = (1 + torch.tensor(grown)) * values
            weight.copy_(left @ torch.diag(new * values.sum() / new.sum()) @ right)
    assert close(changed, said_by(model, tokens_of(TEXT), -2))
    assert close(plain, said_by(tiny(), tokens_of(TEXT), -2))
    assert close(same, plain)
    assert not close(changed, plain)
    assert batches == [1, 1, 1]
    assert np.array_equal(await reader.read(TEXT), plain)


async def test_scales_that_fit_no_matrix_fail_only_their_own_request(
    reader: HiddenStateReader,
) -> None:
    outcomes = await asyncio.gather(
        reader.read(TEXT, ((QUERIES, (0.0,) * 3),)),
        reader.read(TEXT, ((QUERIES, (-1.0,) * 48),)),
        reader.read(TEXT),
        return_exceptions=True,
    )
    assert str(outcomes[0]) == f"{QUERIES} has 48 singular values, and there are 3 scales"
    assert "scales leave nothing of a matrix" in str(outcomes[1])
    assert close(outcomes[2], said_by(tiny(), tokens_of(TEXT), -2))


async def test_equal_scales_are_read_in_one_batch(
    reader: HiddenStateReader, batches: list[int]
) -> None:
    equal = (((QUERIES, tuple(float(n) for n in range(48))),) for _ in range(2))
    await asyncio.gather(*(reader.read(TEXT, scales) for scales in equal))
    assert batches == [2]


async def test_a_base_that_is_nowhere_is_named(tmp_path: Path) -> None:
    reader = HiddenStateReader(f"file:{tmp_path / 'none'}", device="cpu")
    with pytest.raises(ConfigError, match="there is no file .*none"):
        await reader.read(TEXT)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PACKAGES", ("no_such_package",))
    with pytest.raises(ConfigError, match=r"reading with tiny needs no_such_package; .*\[train\]"):
        HiddenStateReader("tiny")


async def test_a_model_is_loaded_beforehand_or_the_error_says_why_not(
    reader: HiddenStateReader, tmp_path: Path
) -> None:
    assert reader.profile.model
    await reader.load()
    assert reader._model.is_loaded
    with pytest.raises(WorkerCrashed, match="none cannot read: there is no file"):
        await HiddenStateReader(f"file:{tmp_path / 'none'}").load()
