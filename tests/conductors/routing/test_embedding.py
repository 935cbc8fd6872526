from __future__ import annotations

from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.workers.local import weights

np = pytest.importorskip("numpy")
pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

from podium.conductors.routing.arrays import normalize_rows
from podium.conductors.routing.encoders import (
    MODEL,
    QUICK_LAYERS,
    QUICK_TOKENS,
    Embedder,
    Linear,
    read_encoder,
)

TEXTS = [
    "What is six times seven?",
    "Ünïcode, 漢字 and 😀: does it matter?",
    "",
    "word " * 400,
]


GOLDEN = (-0.008392, -0.013691, -0.043248, 0.050306, -0.088158, 0.079177)
"""The first numbers of what sentence-transformers makes of the first text."""


@pytest.mark.torch
def test_the_vectors_are_those_of_the_same_model_in_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    size = {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
    form = transformers.BertConfig(**size, intermediate_size=128, layer_norm_eps=1e-12)
    model = transformers.BertModel(form, add_pooling_layer=False).eval()
    with torch.no_grad():  # fresh weights are so small that every text would look alike
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    path = tmp_path / "model.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)
    embedder = Embedder.load(path)
    with torch.inference_mode():
        for text, row in zip(TEXTS, embedder.encode(TEXTS), strict=True):
            ids = torch.tensor([embedder.ids(text)])
            mean = model(input_ids=ids).last_hidden_state[0].mean(dim=0)
            assert row == pytest.approx((mean / mean.norm()).numpy(), abs=1e-4)


@pytest.fixture
def minilm() -> Embedder:
    if not weights.find(MODEL).present:
        pytest.skip(f"the weights of {MODEL} are not here")
    return Embedder.load()


def test_the_vectors_are_those_of_sentence_transformers(minilm: Embedder) -> None:
    (row,) = minilm.encode([TEXTS[0]])
    assert row[:6] == pytest.approx(GOLDEN, abs=1e-4)
    assert np.linalg.norm(row) == pytest.approx(1, abs=1e-5)


def test_questions_that_mean_the_same_are_near_without_a_word_in_common(minilm: Embedder) -> None:
    one, other, apart = minilm.encode(
        ["How do I cook pasta?", "boiling spaghetti properly", "Who wrote the play Faust?"]
    )
    assert one @ other > 0.4 > one @ apart


def test_of_a_long_text_so_many_tokens_are_read_at_both_ends(minilm: Embedder) -> None:
    brief = Embedder(minilm.network, minilm.tokenizer, tokens=8)
    ids = brief.ids("one two three four five six seven eight nine ten")
    whole = minilm.ids("one two three four five six seven eight nine ten")
    assert ids == [*whole[:4], *whole[-4:]]
    assert len(minilm.ids("word " * 10_000)) == 256


def test_the_page_says_how_much_routers_read_of_a_long_question() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "routing.md").read_text("utf-8")
    assert f"`minilm` reads {QUICK_TOKENS} tokens" in " ".join(page.split())


def test_an_embedder_that_was_written_down_reads_as_much(minilm: Embedder) -> None:
    brief = Embedder.load(tokens=8, layers=2)
    again = read_encoder(brief.document())
    assert isinstance(again, Embedder)
    assert (again.tokens, len(again.network.layers)) == (8, 2)
    assert (again.encode(TEXTS) == brief.encode(TEXTS)).all()


def test_a_router_reads_by_the_first_layers_alone(minilm: Embedder) -> None:
    quick = Embedder.quick()
    assert (quick.tokens, len(quick.network.layers)) == (QUICK_TOKENS, QUICK_LAYERS)
    whole, ids = minilm.network, minilm.ids(TEXTS[0])
    rows = whole.norm(whole.words[ids] + whole.positions[: len(ids)])
    for layer in whole.layers[:QUICK_LAYERS]:
        rows = layer(rows)
    assert quick.encode([TEXTS[0]])[0] == pytest.approx(normalize_rows(rows.mean(axis=0)), abs=1e-6)


@pytest.mark.parametrize("layers", [0, 7])
def test_a_number_of_layers_that_cannot_be_is_refused(minilm: Embedder, layers: int) -> None:
    with pytest.raises(ConfigError, match=f"between 1 and 6 layers to read by, not {layers}"):
        Embedder.load(layers=layers)


@pytest.mark.parametrize(("depth", "width"), [(32, 64), (384, 1152), (1000, 32)])
def test_a_product_in_blocks_is_the_product(depth: int, width: int) -> None:
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(5, depth)), rng.normal(size=(depth, width))
    bias = rng.normal(size=width)
    assert Linear.of(weight, bias)(rows) == pytest.approx(rows @ weight + bias)


def test_weights_that_are_not_here_are_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="podium models pull all-minilm-l6-v2"):
        Embedder.load()


def test_a_file_that_holds_no_such_weights_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ConfigError, match="expected the weights of all-minilm-l6-v2"):
        Embedder.load(path)


def test_a_number_of_tokens_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="between 3 and 256 tokens to read, not 1000"):
        Embedder.load(tokens=1000)
