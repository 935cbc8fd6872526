"""What the pages on local models and adapters say, as a reader would try it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from podium.config import load
from podium.workers import Endpoint, Http, connect, transformers
from podium.workers.llamacpp import SETTINGS
from podium.workers.local import batching
from podium.workers.local.llama_server import ModelSettings
from podium.workers.local.sources import (
    DIRECTORY,
    MANIFEST,
    EmbeddedAdapter,
    known_models,
    parse_source,
)

DOCS = Path(__file__).parents[3] / "docs" / "reference"
PAGE = (DOCS / "local-models.md").read_text("utf-8")
ADAPTERS = (DOCS / "adapters.md").read_text("utf-8")


def test_the_documented_worker_connects(tmp_path: Path) -> None:
    block, _ = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.S | re.M)
    file = tmp_path / "podium.toml"
    file.write_text(block, "utf-8")
    (worker,) = load(file).workers
    endpoint = Endpoint(options=worker.options)
    assert connect(worker.profile, endpoint, Http()).profile.name == "local"


def test_the_documented_worker_in_batches_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers, "PACKAGES", ())  # connecting needs none of them
    _, block = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.S | re.M)
    file = tmp_path / "podium.toml"
    file.write_text(block, "utf-8")
    (worker,) = load(file).workers
    assert worker.options == {"adapter": f"{tmp_path}/trained/adder"}
    assert connect(worker.profile, Endpoint(options=worker.options), Http())


def test_every_option_of_transformers_is_documented() -> None:
    (table,) = re.findall(r"^\| option \|.*?\n\n", PAGE, re.S | re.M)
    first_cells = [row.split("|")[1] for row in table.strip().splitlines()]
    assert re.findall(r"`(\w+)`", " ".join(first_cells)) == list(transformers.SETTINGS)
    assert batching.IDLE_LOOP_ITERATIONS == 8
    assert "the event loop has turned eight times without a new request" in PAGE


def test_the_documented_names_are_names_of_models() -> None:
    (table,) = re.findall(r"^\| name \|.*?\n\n", PAGE, re.S | re.M)
    names = re.findall(r"`([\w.-]+-instruct|(?:hf|file):[^`]+)`", table)
    assert len(names) == 4
    assert names[0] == known_models()[0].name
    assert all(parse_source(name).name == name for name in names)


def test_every_known_model_is_documented_with_its_packages_and_its_licence() -> None:
    for model in known_models():
        (row,) = re.findall(
            rf"^\| `{re.escape(model.name)}`(?: \(for routers\))? \|.*$", PAGE, re.M
        )
        assert model.licence in row
        assert model.hub is None or f"`{model.hub.repository}`" in row
        assert model.untried == ("untried" in row)
        if model.packages is not None:
            requirements = model.packages.requirements
            for requirement in {requirements[0], requirements[-1]}:
                assert f"`{requirement}`" in row


def test_every_setting_is_documented_with_its_true_default() -> None:
    (table,) = re.findall(r"^\| setting \|.*?\n\n", PAGE, re.S | re.M)
    first_cells = [row.split("|")[1] for row in table.strip().splitlines()]
    names = re.findall(r"`(\w+)`", " ".join(first_cells))
    assert names == list(SETTINGS)
    defaults = ModelSettings(path="")
    assert f"together; {defaults.context} when left out" in table
    assert f"at once; {defaults.slots} when left out" in table


def test_the_documented_adapter_is_looked_for_beside_the_file_that_names_it(
    tmp_path: Path,
) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```$", ADAPTERS, re.S | re.M)
    file = tmp_path / "podium.toml"
    file.write_text(block, "utf-8")
    (worker,) = load(file).workers
    assert worker.options["adapter"] == f"file:{tmp_path}/adapters/adder.gguf"
    assert connect(worker.profile, Endpoint(options=worker.options), Http())


def test_every_key_of_a_manifests_entry_is_documented() -> None:
    entry = (DIRECTORY / MANIFEST).read_text("utf-8").partition("[[adapter]]")[0]
    keys = {field.name for field in fields(EmbeddedAdapter)} - {"path"} | {"file"}
    assert keys <= set(re.findall(r"`(\w+)`", entry))
