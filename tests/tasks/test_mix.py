from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.tasks import SplitShares, TaskRecord, build_mix, load_source

SIZES = {"math500": 500, "mmlu": 900, "rlpr": 700, "livecodebench": 400}


def records(name: str, count: int) -> list[TaskRecord]:
    return [
        TaskRecord(id=f"{name}/{number}", question="?", answer="1", grader="exact", kind=name)
        for number in range(count)
    ]


SOURCES = {name: records(name, size) for name, size in SIZES.items()}


def test_the_papers_mix_is_240_of_each_source() -> None:
    mix = build_mix(SOURCES)
    assert Counter(record.kind for record in mix.train) == dict.fromkeys(SIZES, 240)
    assert len(mix.train) == 960


def test_without_a_size_the_smallest_training_share_sets_it() -> None:
    assert build_mix(SOURCES, per_source=None).train == build_mix(SOURCES, per_source=240).train


def test_a_fifth_of_each_source_is_held_out() -> None:
    mix = build_mix(SOURCES)
    fifth = {name: size // 5 for name, size in SIZES.items()}
    assert Counter(record.kind for record in mix.validation) == fifth
    assert Counter(record.kind for record in mix.test) == fifth
    parts = [{record.id for record in part} for part in (mix.train, mix.validation, mix.test)]
    assert len(set.union(*parts)) == sum(len(part) for part in parts)


def test_a_seed_draws_the_same_tasks_however_they_are_sorted() -> None:
    backwards = {name: SOURCES[name][::-1] for name in reversed(SOURCES)}
    assert build_mix(SOURCES, seed=7).train == build_mix(backwards, seed=7).train


def test_another_seed_draws_other_tasks_and_another_size_a_part_of_them() -> None:
    drawn = {seed: {task.id for task in build_mix(SOURCES, seed=seed).train} for seed in (1, 2)}
    assert drawn[1] != drawn[2]
    assert {task.id for task in build_mix(SOURCES, seed=1, per_source=50).train} < drawn[1]


def test_the_first_draw_of_the_papers_seed_stays_what_it_is() -> None:
    """A recipe names a seed: another order would be another training set."""
    first = [record.id for record in build_mix(SOURCES).train[:3]]
    assert first == ["mmlu/411", "rlpr/240", "livecodebench/89"]


def test_the_sources_are_mixed() -> None:
    first = {record.kind for record in build_mix(SOURCES).train[:40]}
    assert first == set(SIZES)


def test_a_shortage_names_the_source_and_what_it_has() -> None:
    said = r"241 problems of each source, and livecodebench has 240 to train on \(60% of its 400\)"
    with pytest.raises(ConfigError, match=said):
        build_mix(SOURCES, per_source=241)
    with pytest.raises(ConfigError, match="at least one source"):
        build_mix({})
    with pytest.raises(ConfigError, match="add up to 1"):
        build_mix(SOURCES, shares=SplitShares(0.6, 0.2, 0.1))


def test_a_mix_is_loaded_by_the_names_of_its_sources(data: Path) -> None:
    sources = {name: load_source(name, data) for name in ("math500", "mmlu:test", "gsm8k")}
    mix = build_mix(sources, per_source=2)
    assert Counter(record.grader for record in mix.train) == {"math": 2, "letter": 2, "number": 2}
    with pytest.raises(ConfigError, match="rlpr_train"):
        load_source("rlpr", data / "math")


def test_a_source_may_be_several_splits(data: Path) -> None:
    both = [record.id for record in load_source("mbpp:train+test", data)]
    assert both == ["mbpp/train/601", "mbpp/test/11", "mbpp/test/14"]


def test_held_out_records_are_mixed_too() -> None:
    first = {record.kind for record in build_mix(SOURCES).validation[:40]}
    assert first == set(SIZES)
