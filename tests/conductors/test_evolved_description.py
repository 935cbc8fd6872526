from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium.conductors.evolved_turns import FILE, CoordinatorDescription, read_description
from podium.core.errors import ConfigError
from podium.core.pool import Pool, WorkerProfile

TRAINED = CoordinatorDescription(
    workers=("ann", "bob"), base="tiny", width=4, models=("a-1", "b-1")
)


def pool_of(**models: str) -> Pool:
    return Pool(tuple(WorkerProfile(name=name, model=model) for name, model in models.items()))


def test_the_size_is_that_of_the_scales_and_of_the_head() -> None:
    assert TRAINED.size == (2 + 3) * 4
    scaled = CoordinatorDescription(
        workers=("a",), base="b", width=10, roles=(), matrices=("m", "n"), ranks=(7, 5)
    )
    assert scaled.size == 12 + 10


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"workers": ()}, "name one worker or more, each once"),
        ({"workers": ("a", "a")}, "name one worker or more, each once"),
        (
            {"roles": ("thinker", "verifier")},
            "without `worker` among them, no run would have an answer",
        ),
        ({"matrices": ("m",)}, "each matrix has a rank"),
        ({"models": ("one",)}, "each worker has a model or none"),
        ({"width": 0}, "width is 0; it must be 1 or more"),
        ({"turns": 0}, "turns is 0; it must be 1 or more"),
    ],
)
def test_invalid_coordinators_are_refused(changes: dict[str, Any], reason: str) -> None:
    usual: dict[str, Any] = {"workers": ("ann", "bob"), "base": "tiny", "width": 4}
    with pytest.raises(ConfigError, match=reason):
        CoordinatorDescription(**{**usual, **changes})


def test_another_order_of_the_pool_is_no_change() -> None:
    pool = pool_of(bob="b-1", ann="a-1")
    TRAINED.check(pool)


@pytest.mark.parametrize(
    ("pool", "changes"),
    [
        (pool_of(ann="a-1", bob="b-1", cid="c"), "added: cid"),
        (pool_of(ann="a-1"), "removed: bob"),
        (pool_of(ann="a-1", rob="b-1"), "added: rob; removed: bob"),
        (pool_of(ann="a-1", bob="b-2"), r"another model: bob \(then b-1, now b-2\)"),
    ],
)
def test_a_pool_that_changed_is_refused_by_name(pool: Pool, changes: str) -> None:
    with pytest.raises(ConfigError, match=rf"\({changes}\); train it again, or put the pool back$"):
        TRAINED.check(pool)


def test_a_worker_with_another_model_is_another_worker() -> None:
    pool = pool_of(ann="a-1", bob="b-2")
    assert TRAINED.shared_workers(pool) == ("ann",)


def test_unknown_models_match_by_name() -> None:
    unknown = CoordinatorDescription(workers=("ann", "bob"), base="tiny", width=4)
    unknown.check(pool_of(ann="any", bob=""))
    assert unknown.shared_workers(pool_of(ann="any")) == ("ann",)


def written(directory: Path, text: str) -> Path:
    (directory / FILE).write_text(text, "utf-8")
    return directory


def test_written_files_are_read_back(tmp_path: Path) -> None:
    assert read_description(written(tmp_path, json.dumps(TRAINED.document()))) == TRAINED


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file or directory; name a directory that `podium lab evolve` wrote"),
        ("{", "not valid JSON"),
        ("{}", "this is no coordinator"),
        ("[]", "this is no coordinator"),
        (json.dumps({**TRAINED.document(), "version": 9}), "version 9 cannot be read, only 2"),
        (json.dumps({**TRAINED.document(), "width": "x"}), "width: Input should be a valid int"),
        (json.dumps({**TRAINED.document(), "turns": 0}), "a coordinator's turns is 0"),
    ],
)
def test_file_errors_are_reported(tmp_path: Path, text: str | None, reason: str) -> None:
    if text is not None:
        written(tmp_path, text)
    with pytest.raises(ConfigError, match=rf"coordinator\.json: {reason}"):
        read_description(tmp_path)
