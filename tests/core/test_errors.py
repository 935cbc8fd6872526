from __future__ import annotations

from pathlib import Path

import pytest

from podium.core import errors
from podium.core.errors import install_command


def test_an_optional_part_is_installed_from_the_clone_that_runs() -> None:
    clone = Path(__file__).parents[2]
    assert install_command("train").endswith(f"-m pip install -e '{clone}[train]'")


def test_elsewhere_it_is_installed_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        errors, "__file__", str(tmp_path / "site-packages" / "podium" / "core" / "errors.py")
    )
    assert install_command("otel").endswith("-m pip install 'podium-conductor[otel]'")
