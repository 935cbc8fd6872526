"""Shows études: `python -m podium_lab.etudes --sample 20 --seed 3`."""

from __future__ import annotations

import argparse
import sys

from podium_lab.etudes.composition import SPLITS, TEST_ONLY_SHAPES, EtudeShape
from podium_lab.etudes.etude import Etudes


def main(arguments: list[str] | None = None) -> None:
    """Print études of every shape of the split."""
    parser = argparse.ArgumentParser(prog="python -m podium_lab.etudes", description=__doc__)
    parser.add_argument("--sample", type=int, default=3, help="études of each shape (default 3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", choices=SPLITS, default="train")
    options = parser.parse_args(arguments)
    for shape in EtudeShape:
        if options.split == "train" and shape in TEST_ONLY_SHAPES:
            continue
        sys.stdout.write(f"── {shape}\n")
        for etude in Etudes(options.seed, options.split).sample(options.sample, {shape: 1.0}):
            sys.stdout.write(f"{etude.id}  {etude.question!r} = {etude.answer}\n")
            for index, step in enumerate(etude.own_plan.steps):
                reads = str(list(step.access))
                sys.stdout.write(f"    {index} {step.worker:<12} {reads:<10} {step.subtask}\n")


if __name__ == "__main__":
    main()
