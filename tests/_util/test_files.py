from __future__ import annotations

import errno
from pathlib import Path

import pytest

from podium._util.files import explain_write_errors, no_space_error, read_json, replace_directory
from podium.core.errors import ConfigError, StoreError


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_directory_is_not_there_until_all_of_it_is(tmp_path: Path) -> None:
    target = tmp_path / "new"
    with replace_directory(target) as draft:
        (draft / "one").write_text("1", "utf-8")
        assert not target.exists()
    assert names(tmp_path) == ["new"]
    assert names(target) == ["one"]


def test_a_directory_takes_the_place_of_another(tmp_path: Path) -> None:
    target = tmp_path / "new"
    target.mkdir()
    (target / "old").write_text("", "utf-8")
    with replace_directory(target) as draft:
        (draft / "one").write_text("1", "utf-8")
        assert names(target) == ["old"]
    assert names(target) == ["one"]
    assert names(tmp_path) == ["new"]


@pytest.mark.parametrize("fault", [OSError("no room"), KeyboardInterrupt()])
def test_a_failed_write_keeps_the_old_file(tmp_path: Path, fault: BaseException) -> None:
    target = tmp_path / "new"
    target.mkdir()
    (target / "old").write_text("", "utf-8")

    def write_half() -> None:
        with replace_directory(target) as draft:
            (draft / "half").write_text("", "utf-8")
            raise fault

    with pytest.raises(type(fault)):
        write_half()
    assert names(target) == ["old"]
    assert names(tmp_path) == ["new"]


def test_leftovers_of_a_killed_process_do_no_harm(tmp_path: Path) -> None:
    left = tmp_path / ".new.part"
    left.mkdir()
    (left / "half").write_text("", "utf-8")
    with replace_directory(tmp_path / "new") as draft:
        assert names(draft) == []
    assert names(tmp_path) == ["new"]


# ---- a place where nothing can be written


@pytest.mark.parametrize("below", ["models", "cache/evaluations"])
def test_podium_home_is_advised_only_for_what_it_moves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, below: str
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    where = tmp_path / "home" / below
    said = "3,000 bytes are needed there; free some, or {} a directory on a larger disk"
    assert str(no_space_error(where, 3000)).endswith(said.format("set PODIUM_HOME to"))
    assert str(no_space_error(tmp_path / "elsewhere", 3000)).endswith(said.format("name"))
    assert str(no_space_error(where, 3000, option="--output")).endswith(
        said.format("set --output to")
    )


def test_a_full_disk_is_reported_without_uncounted_bytes(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as raised, explain_write_errors(tmp_path, 0):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(raised.value) == (
        f"no room in {tmp_path}; free some, or name a directory on a larger disk"
    )


def test_an_unwritable_directory_is_reported_with_its_option(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(StoreError, match=r"make it writable, or set --cache to a directory that is"),
        explain_write_errors(tmp_path / "file" / "below", 0, option="--cache"),
    ):
        raise AssertionError


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (None, "No such file"),
        (b"{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "nested deeper than can be read"),
    ],
    ids=["missing", "cut off", "no text", "deep"],
)
def test_an_invalid_json_file_is_reported_with_advice(
    tmp_path: Path, written: bytes | None, reason: str
) -> None:
    path = tmp_path / "some.json"
    if written is not None:
        path.write_bytes(written)
    with pytest.raises(ConfigError, match=rf"some\.json: {reason}.*; make it anew$"):
        read_json(path, "make it anew")
