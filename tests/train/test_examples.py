"""What is taught by example: which words, in which tokens, in which batches."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.train.examples import (
    UNLABELLED,
    TextExample,
    TokenExample,
    batches,
    encode,
    file_examples,
)
from podium.train.recipe import Recipe
from podium.train.sft import load_examples
from podium_lab.etudes import training as etude_examples
from podium_lab.etudes.values import UNSURE
from support.recipes import LESSONS, make_recipe
from support.trainings import base

__all__ = ["base"]

OPENINGS = """
[model]
base = "smollm2-135m-instruct"
lora = { rank = 4 }
[data]
kind = "etudes"
[data.etudes]
assigned_share = 0.5
later_round_share = 0.25
[prompt]
style  = "trained"
few_shot = false
[sft]
dataset = "plans"
steps = 10
batch = 4
learning_rate = 1e-3
[run]
output = "out"
"""

DECISIONS = OPENINGS.replace('"plans"', '"decisions"').replace(
    "assigned_share = 0.5\nlater_round_share = 0.25", "nested_phrase_share = 0.4"
)

OWN = """
[model]
base = "owner/model-1M"
lora = { rank = 4 }
[data]
kind = "file"
file = { path = "own.jsonl" }
[sft]
dataset = "file"
steps = 10
batch = 4
learning_rate = 1e-3
[run]
output = "out"
"""


# ---- études


def test_every_specialist_has_its_own_lessons_in_the_order_of_their_names(tmp_path: Path) -> None:
    written = load_examples(make_recipe(tmp_path, LESSONS), "train", 20)
    assert list(written) == ["lists", "words"]  # a checkpoint knows adapters by their place
    assert [len(group) for group in written.values()] == [20, 20]
    assert not {str(one) for one in written["lists"]} & {str(one) for one in written["words"]}


def test_a_seed_gives_the_same_lessons_and_another_gives_others(tmp_path: Path) -> None:
    first, again, other = (
        load_examples(make_recipe(tmp_path, LESSONS, [f"run.seed={seed}"]), "train", 20)
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_lessons_are_the_same_however_many_processes_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe(tmp_path, LESSONS, ['sft.adapters=["words"]'])
    here = load_examples(recipe, "train", 20)
    monkeypatch.setattr(etude_examples, "MIN_PARALLEL_EXAMPLES", 0)
    assert load_examples(recipe, "train", 20) == here


def test_nothing_that_is_tested_was_taught(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, LESSONS)
    trained = load_examples(recipe, "train", 200)
    tested = load_examples(recipe, "test", 50)
    for name, group in tested.items():
        known = {one.messages[-1]["content"] for one in trained[name]}
        assert not known & {one.messages[-1]["content"] for one in group}


def test_openings_are_asked_for_with_the_recipes_prompt(tmp_path: Path) -> None:
    written = load_examples(make_recipe(tmp_path, OPENINGS), "train", 40)["conductor"]
    assert {tuple(m["role"] for m in one.messages) for one in written} == {
        ("system", "user"),
        ("system", "user", "assistant", "user"),  # a round lies behind it
    }
    assert sum(len(one.messages) == 4 for one in written) == pytest.approx(10, abs=6)
    assert all(one.reply.startswith('{"steps": [') for one in written)


@pytest.mark.parametrize("later_round_share", [0.0, 1.0])
def test_of_openings_too_as_many_are_nested_as_the_recipe_says(
    tmp_path: Path, later_round_share: float
) -> None:
    def lined_up(nested_phrase_share: float) -> int:
        """In how many plans every subtask is a piece of the question."""
        settings = {
            "nested_phrase_share": nested_phrase_share,
            "later_round_share": later_round_share,
            "assigned_share": 0.0,
            "everyday_share": 0.0,
            "stage": '[{shapes = {"chain-3" = 1.0}}]',
        }
        overrides = [f"data.etudes.{key}={value}" for key, value in settings.items()]
        written = load_examples(make_recipe(tmp_path, OPENINGS, overrides), "train", 100)
        return sum(
            all(
                step["subtask"] in one.messages[1]["content"]
                for step in json.loads(one.reply)["steps"]
            )
            for one in written["conductor"]
            if "steps" in json.loads(one.reply)
        )

    assert lined_up(0.0) > lined_up(1.0) + 15


def test_random_ids_are_given_and_not_learned(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, OPENINGS)
    written = load_examples(recipe, "train", 60)["conductor"]
    given = [one for one in written if one.masked_spans]
    assert 0 < len(given) < len(written)
    for one in given:
        masked_spans = [one.reply[begin:end] for begin, end in one.masked_spans]
        assert masked_spans == [str(step["worker"]) for step in json.loads(one.reply)["steps"]]
    assert not any(one.masked_spans for one in load_examples(recipe, "test", 20)["conductor"])


def test_an_answer_is_accepted_where_it_is_right_and_else_another_plan_begun(
    tmp_path: Path,
) -> None:
    recipe = make_recipe(tmp_path, DECISIONS)
    for split in ("train", "test"):
        written = load_examples(recipe, split, 60)["conductor"]
        assert {len(one.messages) for one in written} == {4}  # a round lies behind it
        begun = [one for one in written if not one.is_whole]
        assert {one.reply for one in begun} == {'{"steps": [{"subtask":'}
        assert {one.reply for one in written if one.is_whole} == {'{"steps": []}'}
        assert len(begun) == pytest.approx(30, abs=15)
        assert any(UNSURE in one.messages[-1]["content"] for one in begun)
        assert not any(UNSURE in one.messages[-1]["content"] for one in written if one.is_whole)


# ---- a user's own


def test_a_users_prompt_is_a_text_or_messages(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(
        '{"prompt": "one\u2028line", "reply": "yes"}\n\n'
        '{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], '
        '"reply": "no"}\n',
        "utf-8",
    )
    assert file_examples(path) == [
        TextExample([{"role": "user", "content": "one\u2028line"}], "yes"),
        TextExample([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "no"),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not json", "line 2: expected"),
        ('{"prompt": "p"}', "line 2: .*reply Field required"),
        ('{"prompt": 5, "reply": "r"}', "line 2: .*prompt"),
        ('{"prompt": [], "reply": "r"}', "line 2: .*prompt"),
        ('{"prompt": [{"role": "robot", "content": "c"}], "reply": "r"}', "line 2: .*role"),
        ('{"prompt": "p", "reply": null}', "line 2: .*reply"),
        ("[1]", "line 2"),
    ],
)
def test_a_line_that_is_no_example_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(f'{{"prompt": "p", "reply": "r"}}\n{line}\n', "utf-8")
    with pytest.raises(ConfigError, match=said):
        file_examples(path)


def test_a_file_without_examples_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("\n", "utf-8")
    with pytest.raises(ConfigError, match="holds no examples"):
        file_examples(path)


def test_of_a_users_examples_a_tenth_is_kept_apart_where_something_is_measured(
    tmp_path: Path,
) -> None:
    lines = (f'{{"prompt": "{number}", "reply": "r"}}\n' for number in range(40))
    (tmp_path / "own.jsonl").write_text("".join(lines), "utf-8")

    def prompts(recipe: Recipe, split: str) -> list[str]:
        written = load_examples(recipe, split, 256)["conductor"]  # type: ignore[arg-type]
        return [one.messages[0]["content"] for one in written]

    measured = make_recipe(tmp_path, OWN, ["run.eval_every=5"])
    assert prompts(measured, "test") == ["0", "1", "2", "3"]
    assert prompts(measured, "train") == [str(number) for number in range(4, 40)]
    assert len(prompts(make_recipe(tmp_path, OWN), "train")) == 40
    assert len(prompts(make_recipe(tmp_path, OWN, ["data.file.limit=7"]), "train")) == 7


# ---- tokens


@pytest.mark.torch
def test_a_reply_is_learned_to_its_end_and_what_is_given_is_not(base: Path) -> None:
    from podium.workers.local import pretrained

    loaded = pretrained.load(str(base))
    reply = "model_id = [3, 12]"
    spans = ((12, 13), (15, 17))
    asked = [{"role": "user", "content": "Who?"}]
    one, plain = encode(
        loaded, [TextExample(asked, reply, spans), TextExample(asked, reply)], adapter=2
    )
    assert loaded.tokenizer.decode(one.prompt) == (
        "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert loaded.tokenizer.decode(one.reply) == f"{reply}<|im_end|>"
    assert one.reply == plain.reply == plain.labels
    assert one.adapter == 2
    given = [
        token for token, label in zip(one.reply, one.labels, strict=True) if label == UNLABELLED
    ]
    assert [loaded.decode([token]) for token in given] == ["3", "1", "2"]
    learned = [token for token in one.labels if token != UNLABELLED]
    assert loaded.tokenizer.decode(learned).replace(" ", "") == "model_id=[,]<|im_end|>"


# ---- batches

GROUPS = [
    [TokenExample([0] * (number % 7 + 1), [number], [number], adapter) for number in range(32)]
    for adapter in (1, 2)
]


def test_a_batch_holds_as_many_rows_of_every_adapter_those_of_the_first_one_first() -> None:
    made = list(batches(GROUPS, 4, 20, seed=1))
    assert len(made) == 20
    assert {tuple(row.adapter for row in batch) for batch in made} == {(1, 1, 1, 1, 2, 2, 2, 2)}


def test_every_example_comes_once_before_any_comes_again() -> None:
    rows = [row.reply[0] for batch in batches(GROUPS[:1], 2, 16, seed=1) for row in batch]
    assert sorted(rows) == list(range(32))


def test_a_batch_has_rows_of_about_one_length() -> None:
    spreads = [
        max(row.length for row in batch) - min(row.length for row in batch)
        for batch in batches(GROUPS[:1], 4, 8, seed=1)
    ]
    assert sum(spreads) / len(spreads) <= 1


def test_a_seed_gives_the_same_batches_and_more_steps_begin_with_them() -> None:
    made = list(batches(GROUPS, 4, 10, seed=1))
    assert made == list(islice(batches(GROUPS, 4, 50, seed=1), 10))
    assert made != list(batches(GROUPS, 4, 10, seed=2))


def test_long_examples_come_in_smaller_batches_and_none_is_lost() -> None:
    made = list(batches(GROUPS, 8, 8, seed=1, max_tokens=48))
    assert all(len(batch) * max(row.length for row in batch) <= 48 for batch in made)
    assert {len(batch) for batch in made} == {4, 8, 16}
    rows = [row for batch in batches(GROUPS[:1], 2, 40, seed=1, max_tokens=8) for row in batch]
    assert sorted(row.reply[0] for row in rows[:32]) == list(range(32))


def test_a_row_that_is_too_long_by_itself_comes_alone() -> None:
    made = list(batches(GROUPS[:1], 2, 40, seed=1, max_tokens=1))
    assert {len(batch) for batch in made} == {1}


@pytest.mark.torch
def test_a_reply_that_is_only_begun_does_not_end_and_begins_as_plans_do(base: Path) -> None:
    from podium.workers.local import pretrained

    loaded = pretrained.load(str(base))
    asked = [{"role": "user", "content": "Who?"}]
    begun, whole = '{"steps": [{"subtask":', '{"steps": [{"subtask": "find it", "worker": 3}]}'
    one, plan = encode(
        loaded, [TextExample(asked, begun, is_whole=False), TextExample(asked, whole)], 0
    )
    assert one.labels == one.reply == plan.reply[: len(one.reply)]
    assert (one.is_whole, plan.is_whole) == (False, True)
