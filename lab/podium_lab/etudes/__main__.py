"""Shows études: `python -m podium_lab.etudes --sample 20 --seed 3`, or `--stats` for the whole."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from podium_lab.etudes.etude import Etude, Etudes, held_out
from podium_lab.etudes.phrasing import connectives, phrases
from podium_lab.etudes.shapes import SPLITS, TEST_ONLY, USUAL, EtudeShape, Split
from podium_lab.etudes.skills import FAMILIES, SKILLS

TRAIN: Final = 200_000
TEST: Final = 2_000


@dataclass(slots=True)
class EtudeStatistics:
    """Counts over études, and what of them must not occur in the other split."""

    shapes: Counter[str] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)
    styles: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    answer_lengths: list[int] = field(default_factory=list)
    question_lengths: list[int] = field(default_factory=list)
    questions: set[str] = field(default_factory=set)
    subtasks: set[str] = field(default_factory=set)
    operands: set[str] = field(default_factory=set)
    signatures: set[str] = field(default_factory=set)

    def take(self, etudes: Iterable[Etude]) -> EtudeStatistics:
        """Count these too."""
        for etude in etudes:
            self.shapes[etude.shape] += 1
            self.families.update(etude.families)
            self.styles[etude.style] += 1
            self.kinds[etude.kind.name.lower()] += 1
            self.answer_lengths.append(len(etude.answer))
            self.question_lengths.append(len(etude.question))
            self.questions.add(etude.question)
            self.subtasks.update(step.subtask for step in etude.steps)
            self.operands.update(step.operands for step in etude.steps if step.operands)
            if len(etude.steps) > 1:
                self.signatures.add(etude.signature)
        return self

    @property
    def size(self) -> int:
        """How many études were counted."""
        return self.shapes.total()


def common(train: EtudeStatistics, test: EtudeStatistics) -> dict[str, int]:
    """How much of the test set occurs in training, by what it is; all of it must be none."""
    both: dict[str, AbstractSet[object]] = {
        "questions": train.questions & test.questions,
        "subtasks": train.subtasks & test.subtasks,
        "operands of open skills": train.operands & test.operands,
        "études of several steps, in any wording": train.signatures & test.signatures,
        "phrasings": _phrasings("train") & _phrasings("test"),
        "connectives": set(connectives("train")) & set(connectives("test")),
    }
    return {name: len(found) for name, found in both.items()}


def report(seed: int, train_size: int = TRAIN, test_size: int = TEST) -> Iterator[str]:
    """The statistics of both splits, line by line, and the check between them."""
    train = EtudeStatistics().take(islice(Etudes(seed, "train").stream(), train_size))
    longer = held_out(test_size // 10, seed, dict.fromkeys(TEST_ONLY, 1.0))
    test = EtudeStatistics().take(held_out(test_size, seed, USUAL)).take(longer)
    for name, census in (("train", train), ("test", test)):
        yield f"{name}: {census.size} études, {len(census.questions)} distinct questions"
        yield f"  distinct questions  {len(census.questions) / census.size:.3f}"
        for label, counts in (
            ("shapes", census.shapes),
            ("families", census.families),
            ("styles", census.styles),
            ("answers", census.kinds),
        ):
            shares = ", ".join(
                f"{key} {count / counts.total():.3f}" for key, count in counts.most_common()
            )
            yield f"  {label:<19} {shares}"
        yield f"  answer, characters  {_spread(census.answer_lengths)}"
        yield f"  question, characters {_spread(census.question_lengths)}"
    yield f"of the test set in {train.size} training études:"
    for name, count in common(train, test).items():
        yield f"  {name:<40} {count}"


def _phrasings(split: Split) -> set[tuple[str, str]]:
    return {(name, phrase.template) for name in SKILLS for phrase in phrases(name, split)}


def _spread(lengths: Sequence[int]) -> str:
    ordered = sorted(lengths)
    places = {"least": 0.0, "median": 0.5, "95 %": 0.95, "most": 1.0}
    last = len(ordered) - 1
    return ", ".join(
        f"{name} {ordered[round(last * position)]}" for name, position in places.items()
    )


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
