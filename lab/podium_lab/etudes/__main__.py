"""Shows études: `python -m podium_lab.etudes --sample 20 --seed 3`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from podium_lab.etudes.etude import Etudes
from podium_lab.etudes.shapes import SPLITS, TEST_ONLY, EtudeShape, Split


def examples(seed: int, split: Split, size: int) -> Iterator[str]:
    """Yield `size` études of every shape of the split, line by line."""
    for shape in EtudeShape:
        if split == "train" and shape in TEST_ONLY:
            continue
        yield f"── {shape}"
        for etude in Etudes(seed, split).sample(size, {shape: 1.0}):
            yield f"{etude.id}  {etude.question!r} = {etude.answer}"
            plan = etude.own_plan
            for index, step in enumerate(plan.steps):
                reads = list(plan.reads(index))
                yield f"    {index} {step.worker:<12} {reads!s:<10} {step.subtask}"


def main(arguments: list[str] | None = None) -> int:
    """Print the études."""
    parser = argparse.ArgumentParser(prog="python -m podium_lab.etudes", description=__doc__)
    parser.add_argument("--sample", type=int, default=3, help="études of each shape (default 3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", choices=SPLITS, default="train")
    options = parser.parse_args(arguments)
    for line in examples(options.seed, options.split, options.sample):
        sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
