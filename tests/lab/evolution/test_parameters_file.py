"""Numbers from files that may be damaged: they come back, or it is said what is wrong."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

from podium.core.errors import ConfigError
from podium_lab.evolution.coordinator import read_floats

NUMBERS = np.arange(6, dtype=np.float64).reshape(2, 3)


def saved() -> bytes:
    file = io.BytesIO()
    np.save(file, NUMBERS)
    return file.getvalue()


def archived() -> bytes:
    file = io.BytesIO()
    np.savez(file, NUMBERS)
    return file.getvalue()


def test_saved_numbers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "numbers.npy"
    path.write_bytes(saved())
    assert np.array_equal(read_floats(path), NUMBERS)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no numbers",
        b"PK\x03\x04 and nothing that an archive has",
        archived(),
        saved()[:-4],
        saved().replace(b"(2, 3)", b"(2, 3("),
        saved().replace(b"(2, 3), }" + b" " * 12, b"(200000, 3000000000)}"),
    ],
    ids=["empty", "text", "cut archive", "archive", "cut", "brackets", "huge"],
)
def test_a_file_that_is_damaged_is_named_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "numbers.npy"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"numbers\.npy: cannot be read: .*; train it again"):
        read_floats(path)


def test_other_values_than_floating_point_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "numbers.npy"
    np.save(path, np.arange(6))
    with pytest.raises(ConfigError, match="expected floating-point numbers, and these are int64"):
        read_floats(path)
