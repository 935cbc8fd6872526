"""What docs/local-models.md says, as a reader would try it."""

from __future__ import annotations

import re
from pathlib import Path

from podium.config import load
from podium.local.serving import ModelSettings
from podium.local.sources import packaged_models, source
from podium.providers import Endpoint, Http, connect
from podium.providers.llamacpp import SETTINGS

PAGE = (Path(__file__).parents[2] / "docs" / "local-models.md").read_text("utf-8")


def test_the_documented_worker_connects(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.S | re.M)
    file = tmp_path / "podium.toml"
    file.write_text(block, "utf-8")
    (worker,) = load(file).workers
    endpoint = Endpoint(options=worker.options)
    assert connect(worker.profile, endpoint, Http()).profile.name == "local"


def test_the_documented_names_are_names_of_models() -> None:
    (table,) = re.findall(r"^\| name \|.*?\n\n", PAGE, re.S | re.M)
    names = re.findall(r"`([\w-]+-instruct|(?:hf|file):[^`]+)`", table)
    assert len(names) == 4
    assert names[0] == packaged_models()[0].name
    assert all(source(name).name == name for name in names)


def test_every_setting_is_documented_with_its_true_default() -> None:
    (table,) = re.findall(r"^\| setting \|.*?\n\n", PAGE, re.S | re.M)
    first_cells = [row.split("|")[1] for row in table.strip().splitlines()]
    names = re.findall(r"`(\w+)`", " ".join(first_cells))
    assert names == list(SETTINGS)
    defaults = ModelSettings(path="")
    assert f"together; {defaults.context} when left out" in table
    assert f"at once; {defaults.slots} when left out" in table
