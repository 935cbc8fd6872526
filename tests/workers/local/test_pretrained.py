"""A model and its tokenizer, however the weights are named: what is asked is what the model was
made for, and what is wrong is said."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import ConfigError
from podium.workers.local import weights
from podium.workers.local.weights import LocalModel
from support.tiny_model import (
    CONTEXT,
    TURN_END,
    one_thread,
    tiny_gguf,
    tiny_model,
    tokenizer,
)
from support.tiny_model import model as tiny

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")

from podium.workers.local.pretrained import data_type, load

pytestmark = pytest.mark.torch

__all__ = ["one_thread"]

ASKED = [{"role": "user", "content": "What is 12 + 7?"}]
END_ID = tokenizer().convert_tokens_to_ids(TURN_END)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A model of the test's own, to be changed."""
    return tiny_model(tmp_path / "copy")


def change(directory: Path, name: str, **values: Any) -> None:
    path = directory / name
    document = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not ...}))


def logits_of(model: Any, tokens: list[int]) -> Any:
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits


def test_a_directory_is_a_model_with_its_tokenizer(directory: Path) -> None:
    loaded = load(str(directory), device="cpu")
    assert not loaded.model.training
    assert loaded.model.dtype == torch.float32
    tokens = loaded.encode(ASKED)
    assert torch.equal(logits_of(loaded.model, tokens), logits_of(tiny(), tokens))
    assert loaded.tokenizer.decode(tokens) == (
        "<|im_start|>user\nWhat is 12 + 7?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (loaded.end_tokens, loaded.turn_end, loaded.context) == ((END_ID,), END_ID, CONTEXT)
    assert load(f"file:{directory}", device="cpu").encode(ASKED) == tokens


def test_loading_draws_nothing(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(str(directory), device="cpu")
    assert capfd.readouterr() == ("", "")


def test_a_prefilled_reply_is_continued(directory: Path) -> None:
    loaded = load(str(directory), device="cpu")
    begun = loaded.tokenizer.decode(loaded.encode(ASKED, "It is 1"))
    assert begun.endswith("<|im_start|>assistant\nIt is 1")


def test_decoded_text_has_no_special_tokens(directory: Path) -> None:
    loaded = load(str(directory), device="cpu")
    said = loaded.tokenizer("nineteen <|im_end|>", add_special_tokens=False)["input_ids"]
    assert loaded.decode(said) == "nineteen "


def test_a_template_that_adds_a_system_prompt_of_its_own_is_not_used(copied: Path) -> None:
    own = copied / "chat_template.jinja"
    own.write_text("{{ '<|im_start|>system\\nYou are SmolLM.<|im_end|>\\n' }}" + own.read_text())
    loaded = load(str(copied), device="cpu")
    assert "SmolLM" not in loaded.tokenizer.decode(loaded.encode(ASKED))


def test_a_template_that_is_not_chatml_is_the_models_own(copied: Path) -> None:
    (copied / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}"
        "{% endif %}[{{ m['content'] }}]{% endfor %}"
    )
    loaded = load(str(copied), device="cpu")
    assert loaded.tokenizer.decode(loaded.encode(ASKED)) == "[What is 12 + 7?]"
    assert loaded.turn_end == loaded.tokenizer.eos_token_id
    with pytest.raises(ConfigError, match="chat template refuses this conversation: no system"):
        loaded.encode([{"role": "system", "content": "Be brief."}, *ASKED])


def test_every_token_that_the_model_says_ends_it_does(copied: Path) -> None:
    change(copied, "generation_config.json", eos_token_id=[9, END_ID])
    change(copied, "tokenizer_config.json", eos_token="<|endoftext|>", pad_token=...)
    loaded = load(str(copied), device="cpu")
    assert loaded.end_tokens == (0, END_ID, 9)
    assert loaded.turn_end == END_ID
    assert loaded.tokenizer.pad_token_id == END_ID


def test_several_threads_may_write_and_read_at_once(directory: Path) -> None:
    loaded = load(str(directory), device="cpu")
    conversations = [[{"role": "user", "content": "word " * n}] for n in range(1, 60)]
    alone = [loaded.encode(conversation) for conversation in conversations]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(loaded.encode, conversations)) == alone


# ---- GGUF


@pytest.mark.parametrize("form", ["{}", "file:{}"])
def test_a_gguf_file_is_the_same_model_and_can_be_trained(
    file: Path, directory: Path, form: str
) -> None:
    loaded = load(form.format(file), device="cpu")
    same = load(str(directory), device="cpu")
    tokens = loaded.encode(ASKED)
    assert tokens == same.encode(ASKED)
    assert loaded.end_tokens == same.end_tokens
    torch.testing.assert_close(
        logits_of(loaded.model, tokens), logits_of(tiny(), tokens), rtol=1e-4, atol=1e-4
    )
    assert not hasattr(loaded.model.config, "quantization_config")
    loaded.model(torch.tensor([tokens])).logits.sum().backward()
    assert loaded.model.lm_head.weight.grad is not None


def test_a_gguf_file_is_read_once_for_each_time_that_it_is_loaded(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reader(gguf.GGUFReader):  # type: ignore[misc,name-defined]
        def __init__(self, path: str, *more: Any) -> None:
            read.append(Path(path))
            super().__init__(path, *more)

    read: list[Path] = []
    monkeypatch.setattr(gguf, "GGUFReader", Reader)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda _: load(str(file), device="cpu"), range(2)))
    assert read == [file, file]
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load(str(broken), device="cpu")
    assert gguf.GGUFReader is Reader


def test_numbers_of_a_gguf_file_are_read_digit_by_digit(file: Path) -> None:
    loaded = load(str(file), device="cpu")
    split = loaded.tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a 1234")
    assert [word for word, _ in split] == ["a", "Ġ", "1", "2", "3", "4"]
    assert loaded.decode(loaded.tokenizer("a 1234")["input_ids"]) == "a 1234"


def test_in_half_precision_positions_are_kept_in_full(file: Path, directory: Path) -> None:
    for name in (str(file), str(directory)):
        model = load(name, dtype=torch.bfloat16, device="cpu").model
        assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
        assert torch.equal(model.model.rotary_emb.inv_freq, tiny().model.rotary_emb.inv_freq)


def test_a_name_that_podium_keeps_weights_under_is_that_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {
        "here": LocalModel(name="smollm2-135m-instruct", path=file, present=True),
        "missing": LocalModel(
            name="smollm2-135m-instruct", path=file.with_name("missing.gguf"), present=False
        ),
    }
    monkeypatch.setattr(weights, "find", known.__getitem__)
    assert load("here", device="cpu").encode(ASKED)
    with pytest.raises(ConfigError, match=r"'missing' is not at .*missing.gguf; .*models pull"):
        load("missing", device="cpu")


# ---- what is wrong


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("smollm3-instruct", "local model not found: 'smollm3-instruct'; did you mean"),
        ("/no/such/model", "is not at /no/such/model; check the path of the model"),
        ("./no/such.gguf", "is not at .*no/such.gguf; check the path"),
        ("hf:nobody", "hf:nobody does not name a file on the hub"),
    ],
)
def test_a_name_that_is_no_models_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(name, device="cpu")


def test_offline_a_model_of_the_hub_is_not_looked_for_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def from_pretrained(name: str, **options: Any) -> Any:
        asked.append((name, options))
        raise OSError("it is not in the cache")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", from_pretrained)
    for value, is_offline in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv(weights.OFFLINE_VARIABLE, value)
        with pytest.raises(ConfigError, match="'owner/name' cannot be loaded: it is not in the"):
            load("owner/name", device="cpu")
        assert asked.pop() == ("owner/name", {"local_files_only": is_offline})


def test_weights_that_are_cut_off_or_of_an_unknown_kind_are_refused(
    copied: Path, file: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(ConfigError, match="cut.gguf' cannot be loaded"):
        load(str(cut), device="cpu")
    tensors = copied / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:1000])
    with pytest.raises(ConfigError, match="copy' cannot be loaded"):
        load(str(copied), device="cpu")
    change(copied, "config.json", model_type="abacus", architectures=["Abacus"])
    with pytest.raises(ConfigError, match="copy' cannot be loaded"):
        load(str(copied), device="cpu")


def test_a_model_that_does_not_converse_or_never_ends_is_refused(copied: Path) -> None:
    template = copied / "chat_template.jinja"
    template.write_text("{{ messages[0]['content'] }}")
    change(copied, "tokenizer_config.json", eos_token=...)
    with pytest.raises(ConfigError, match="no token that ends a turn"):
        load(str(copied), device="cpu")
    template.unlink()
    with pytest.raises(ConfigError, match="has no chat template"):
        load(str(copied), device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a graphics card")
def test_a_card_that_is_not_there_is_reported(directory: Path) -> None:
    with pytest.raises(ConfigError, match="device is 'cuda', and torch finds no GPU"):
        load(str(directory), device="cuda")


@pytest.mark.parametrize("name", ["gpu", "cuda:x"])
def test_a_device_of_no_known_name_is_refused(directory: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"device is '{name}'; use cpu, cuda"):
        load(str(directory), device=name)


def test_types_are_known_by_their_names() -> None:
    assert data_type("bfloat16") is torch.bfloat16
    assert data_type("auto") in (torch.bfloat16, torch.float32)
    for name in ("int8", "half precision", "Tensor"):
        with pytest.raises(ConfigError, match="use auto, bfloat16, float16 or float32"):
            data_type(name)
