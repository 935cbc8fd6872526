"""What one of two processes does that train together, started by accelerate: it gives the
commands in a file, and writes down beside it what it had a hand in and what it came to.

    accelerate launch … one_of_two.py COMMANDS.json
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import Trainer

from podium.cli import main
from podium.train.exercises import Exercise
from podium.train.rollouts import Rollouts
from podium.train.training_log import process_index
from support.trainings import let_it_plan


def run(commands: Path) -> None:
    """Give the commands, one after another, and tell of each."""
    found: dict[str, Any] = {}
    train, collect = Trainer.train, Rollouts.collect

    def trained(trainer: Any, **options: Any) -> Any:
        ended = train(trainer, **options)
        digest = hashlib.sha256()
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                digest.update(parameter.detach().numpy().tobytes())
        found["weights"] = digest.hexdigest()
        return ended

    def collected(rollouts: Rollouts, exercises: Sequence[Exercise], loop: Any) -> Any:
        batch = collect(rollouts, exercises, loop)
        found.setdefault("numbers", []).append([exercise.number for exercise in exercises])
        found.setdefault("tokens", []).append([attempt.tokens for attempt in batch.plans])
        return batch

    patches = pytest.MonkeyPatch()
    patches.setattr(Trainer, "train", trained)
    patches.setattr(Rollouts, "collect", collected)
    let_it_plan(patches)
    for name, arguments in json.loads(commands.read_text("utf-8")).items():
        found.clear()
        found["code"] = main(arguments)
        result = commands.with_name(f"{name}-{process_index()}.json")
        result.write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    run(Path(sys.argv[1]))
