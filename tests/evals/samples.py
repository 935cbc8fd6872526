"""Samples made up for tests of what tables tell of them."""

from __future__ import annotations

from itertools import count

from podium.evals.sample import Sample

numbers = count()


def sample(right: bool, **more: object) -> Sample:
    usual: dict[str, object] = {
        "task": f"t{next(numbers)}",
        "kind": "one",
        "skills": 1,
        "valid": True,
        "workers": ("a",),
        "shape": "one-shot",
        "worker_tokens": 10,
        "orchestration_tokens": 3,
        "seconds": 0.1,
    }
    return Sample(right=right, **{**usual, **more})  # type: ignore[arg-type]
