"""Shows études: `python -m podium_lab.etudes --sample 20 --seed 3`, or `--stats` for the whole."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from podium_lab.etudes.census import TEST, TRAIN, report
from podium_lab.etudes.etude import Etude, Etudes
from podium_lab.etudes.shapes import TEST_ONLY, EtudeShape
from podium_lab.etudes.skills import FAMILIES
from podium_lab.etudes.splits import SPLITS, Split


def main(arguments: list[str] | None = None) -> int:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m podium_lab.etudes", description=__doc__)
    parser.add_argument("--sample", type=int, default=3, help="études of each shape (default 3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", choices=SPLITS, default="train")
    parser.add_argument(
        "--stats", action="store_true", help="statistics, and what the splits share"
    )
    parser.add_argument("--train-size", type=int, default=TRAIN, help=f"for --stats ({TRAIN})")
    parser.add_argument("--test-size", type=int, default=TEST, help=f"for --stats ({TEST})")
    options = parser.parse_args(arguments)
    lines = (
        report(options.seed, options.train_size, options.test_size)
        if options.stats
        else examples(options.seed, options.split, options.sample)
    )
    for line in lines:
        sys.stdout.write(f"{line}\n")
    return 0


def examples(seed: int, split: Split, size: int) -> Iterator[str]:
    """So many études of every shape that the split has."""
    for shape in EtudeShape:
        if split == "train" and shape in TEST_ONLY:
            continue
        yield f"── {shape}"
        for etude in Etudes(seed, split).sample(size, {shape: 1.0}):
            yield from _shown(etude)


def _shown(etude: Etude) -> Iterator[str]:
    yield f"{etude.id}  {etude.question!r} = {etude.answer}"
    workflow = etude.ideal({family: family for family in FAMILIES})
    for index, step in enumerate(workflow.steps):
        yield f"    {index} {step.worker:<12} {list(workflow.reads(index))!s:<10} {step.subtask}"


if __name__ == "__main__":
    sys.exit(main())
