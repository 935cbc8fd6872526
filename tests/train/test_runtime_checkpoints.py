from __future__ import annotations

import errno
from pathlib import Path

import pytest

from podium.core.errors import ConfigError, StoreError
from podium.train.training_log import CHECKPOINTS, STATE_FILE, explain_out_of_space, last_checkpoint


def write(output: Path, name: str, state: str | None = "{}") -> None:
    directory = output / CHECKPOINTS / name
    directory.mkdir(parents=True)
    if state is not None:
        (directory / STATE_FILE).write_text(state, "utf-8")


def test_a_training_continues_from_the_last_step_that_was_kept(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    for step in (20, 100, 40):
        write(tmp_path, f"checkpoint-{step}")
    found = last_checkpoint(tmp_path)
    assert found is not None
    assert (found.step, found.path.name) == (100, "checkpoint-100")


@pytest.mark.parametrize(
    "state",
    [None, "", '{"global_step": 1', "[" * 100_000],
    ids=["none", "empty", "half", "nested too deep"],
)
def test_partial_checkpoints_are_ignored(tmp_path: Path, state: str | None) -> None:
    write(tmp_path, "checkpoint-20")
    write(tmp_path, "checkpoint-40", state)
    write(tmp_path, "checkpoint-old")
    found = last_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 20


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
        RuntimeError("basic_ios::clear: iostream error"),
        Exception("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
    ids=str,
)
def test_a_full_disk_is_explained_for_every_writer(tmp_path: Path, error: Exception) -> None:
    nothing_yet = pytest.raises(
        StoreError, match="no space left in .*no checkpoint is whole.*start again"
    )
    with nothing_yet, explain_out_of_space(tmp_path, memory_keys="sft.batch"):
        raise error
    write(tmp_path, "checkpoint-20")
    something = pytest.raises(StoreError, match="the checkpoint of step 20 is whole")
    with something as raised, explain_out_of_space(tmp_path, memory_keys="sft.batch"):
        raise error
    assert raised.value.__cause__ is error


def test_other_faults_stay_what_they_are(tmp_path: Path) -> None:
    for error in (OSError(errno.EACCES, "no"), RuntimeError("CUDA error"), ValueError("x")):
        with (
            pytest.raises(type(error)) as raised,
            explain_out_of_space(tmp_path, memory_keys="sft.batch"),
        ):
            raise error
        assert raised.value is error


def test_a_card_without_memory_is_explained(tmp_path: Path) -> None:
    write(tmp_path, "checkpoint-20")
    result = pytest.raises(
        ConfigError, match="GPU out of memory; the checkpoint of step 20 is whole"
    )
    with result as raised, explain_out_of_space(tmp_path, memory_keys="sft.batch"):
        raise RuntimeError("CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total of")
    assert "(CUDA out of memory); stop other" in str(raised.value)
    assert str(raised.value).endswith("with a lower sft.batch")
