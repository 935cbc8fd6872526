"""Learning by example over a tiny model: what is learned and what is not, side by side, stopped
and gone on with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import ConfigError, StoreError
from podium.train.recipe import Recipe
from support.trainings import LESSONS, LORA, adapter_bytes, base, metrics, tiny_recipe

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.train import sft
from podium.train.examples import UNLABELLED, TokenExample
from podium.train.sft import (
    ClipPerAdapter,
    MultiAdapterModel,
    MultiAdapterTrainer,
    collate,
    evaluate_examples,
    process_share,
)
from podium.train.trainer_setup import silence
from podium.train.training_log import last_checkpoint
from podium.workers.local import pretrained
from podium.workers.local.lora import NO_ADAPTER, AdapterStack, LoraShape

pytestmark = pytest.mark.torch

__all__ = ["base"]

SHAPE = LoraShape(rank=2, alpha=4.0, targets=("q_proj", "v_proj"))


def example(prompt: Sequence[int], reply: Sequence[int], adapter: int = 1) -> TokenExample:
    return TokenExample(list(prompt), list(reply), list(reply), adapter)


A = [example([10, 11, 12 + i], [40 + i, 41, 2], 1) for i in range(4)]
B = [example([20, 21 + i], [50, 51 + i, 52, 2], 2) for i in range(4)]


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A training that nothing happened to."""
    recipe = tiny_recipe(LESSONS, base, tmp_path_factory.mktemp("whole"))
    sft.train(recipe)
    return recipe


# ---- what is learned


def test_prompts_and_padding_have_no_labels() -> None:
    batch = collate([example([5, 6, 7], [8, 9]), example([5], [8])], padding=0)
    assert batch["labels"].tolist() == [
        [UNLABELLED, UNLABELLED, UNLABELLED, 8, 9],
        [UNLABELLED, 8, UNLABELLED, UNLABELLED, UNLABELLED],
    ]
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9], [5, 8, 0, 0, 0]]


def test_the_loss_is_that_of_the_replies_tokens_alone(base: Path) -> None:
    loaded = pretrained.load(str(base))
    given = TokenExample([10, 11, 12], [40, 41, 2], [40, UNLABELLED, 2], NO_ADAPTER)
    with torch.no_grad():
        chances = loaded.model(torch.tensor([[10, 11, 12, 40, 41, 2]])).logits.log_softmax(-1)
        expected = -(chances[0, 2, 40] + chances[0, 4, 2]) / 2
        loss = MultiAdapterModel(loaded.model, None)(**collate([given], 0))["loss"]
        longer = MultiAdapterModel(loaded.model, None)(**collate([given, given], 0))["loss"]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert longer.item() == pytest.approx(expected.item(), rel=1e-5)  # a mean over tokens


def test_every_adapter_counts_the_same_however_long_its_replies_are(base: Path) -> None:
    loaded = pretrained.load(str(base))
    stack = AdapterStack.fresh(loaded.model, ("a", "b"), SHAPE)
    trained = MultiAdapterModel(loaded.model, stack)
    with torch.no_grad():
        both = trained(**collate([A[0], B[0]], 0))["loss"]
        plain = MultiAdapterModel(loaded.model, None)
        alone = [plain(**collate([one._replace(adapter=NO_ADAPTER)], 0)) for one in (A[0], B[0])]
    total = sum(one["loss"].item() for one in alone)
    assert both.item() == pytest.approx(total, rel=1e-5)  # new adapters add nothing yet


def test_adapters_side_by_side_learn_what_each_would_learn_alone(
    base: Path, tmp_path: Path
) -> None:
    together = trained_stack(base, tmp_path / "both", [[a, b] for a, b in zip(A, B, strict=True)])
    alone = trained_stack(base, tmp_path / "a", [[a] for a in A])
    other = trained_stack(base, tmp_path / "b", [[b._replace(adapter=1)] for b in B], begin=2)
    for path, layer in together.layers.items():
        for kind in ("down", "up"):
            both = getattr(layer, kind).detach()
            torch.testing.assert_close(both[1], getattr(alone.layers[path], kind).detach()[1])
            torch.testing.assert_close(both[2], getattr(other.layers[path], kind).detach()[1])
            assert not both[0].any()  # who has no adapter stays without one
    assert any(layer.up[1].any() for layer in together.layers.values())


def trained_stack(
    base: Path, output: Path, plan: list[list[TokenExample]], begin: int = 1
) -> AdapterStack:
    """Adapters after that plan; the first of them began as adapter `begin` of a stack of two."""
    recipe = tiny_recipe(LESSONS, base, output, "sft.max_grad_norm=0.01")
    assert recipe.sft is not None
    loaded = pretrained.load(str(base))
    loaded.model.requires_grad_(False)
    names = tuple(str(number) for number in range(len(plan[0])))
    stack = AdapterStack.fresh(loaded.model, names, SHAPE)
    torch.manual_seed(3)
    for layer in stack.layers.values():
        drawn = torch.randn(2, *layer.down.shape[1:])
        with torch.no_grad():
            layer.down[1:] = drawn[begin - 1 :][: len(names)]
    trainer = MultiAdapterTrainer(
        MultiAdapterModel(loaded.model, stack),
        plan,
        0,
        args=sft._arguments(recipe, 1),
        callbacks=[ClipPerAdapter(stack, recipe.sft.max_grad_norm)],
    )
    with silence(trainer):
        trainer.train()
    return stack


def test_a_gradient_is_bounded_by_its_own_adapters_norm(base: Path) -> None:
    stack = AdapterStack.fresh(pretrained.load(str(base)).model, ("large", "small"), SHAPE)
    gradients = [torch.zeros_like(matrix) for matrix in stack.parameters()]
    for matrix, gradient in zip(stack.parameters(), gradients, strict=True):
        gradient[1], gradient[2] = 100.0, 1e-6
        matrix.grad = gradient
    ClipPerAdapter(stack, 1.0).on_pre_optimizer_step(None, None, None)
    squares = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients])
    assert squares.sum(0).sqrt()[1].item() == pytest.approx(1.0, rel=1e-3)
    assert all((gradient[2] == 1e-6).all() for gradient in gradients)


def test_gradients_are_clipped_only_with_adapters_and_a_bound(base: Path) -> None:
    stack = AdapterStack.fresh(pretrained.load(str(base)).model, ("one",), SHAPE)
    assert sft.gradient_clipping(stack, 0.0) == []
    assert sft.gradient_clipping(None, 1.0) == []
    assert len(sft.gradient_clipping(stack, 1.0)) == 1


# ---- one training


def test_a_recipe_and_its_seed_give_the_same_adapters_each_time(
    whole: Recipe, base: Path, tmp_path: Path
) -> None:
    again = tiny_recipe(LESSONS, base, tmp_path / "again")
    other = tiny_recipe(LESSONS, base, tmp_path / "other", "run.seed=43")
    for recipe in (again, other):
        sft.train(recipe)
    for name in ("words", "lists"):
        assert adapter_bytes(whole, name) == adapter_bytes(again, name)
        assert adapter_bytes(whole, name) != adapter_bytes(other, name)
    assert metrics(whole) == metrics(again) != metrics(other)


def test_a_step_may_go_through_the_model_in_several_passes(base: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(LESSONS, base, tmp_path, "sft.micro_batch=2", "sft.steps=2")
    sft.train(recipe)
    assert [line["step"] for line in metrics(recipe)] == [2]
    odd = tiny_recipe(LESSONS, base, tmp_path / "odd", "sft.micro_batch=6", "sft.batch=4")
    with pytest.raises(ConfigError, match="sft.micro_batch is 6"):
        sft.train(odd)


def test_a_whole_model_is_taught_where_no_adapter_is_asked_for(base: Path, tmp_path: Path) -> None:
    lines = ('{"prompt": "Say yes.", "reply": "yes"}\n', '{"prompt": "Say no.", "reply": "no"}\n')
    (tmp_path / "own.jsonl").write_text("".join(lines), "utf-8")
    text = LESSONS.replace(LORA, "").replace('kind = "etudes"', 'kind = "file"\n')
    text = text.replace('dataset = "specialists"', 'dataset = "file"').replace(
        '["words", "lists"]', "[]"
    )
    settings = ('data.file.path="own.jsonl"', "sft.steps=30", "run.eval_every=30")
    recipe = tiny_recipe(text, base, tmp_path, *settings)
    sft.train(recipe)
    assert [line["eval/conductor"] for line in metrics(recipe) if "loss" not in line] == [1.0]
    trained = pretrained.load(str(recipe.output / "model"))
    prompt = trained.encode([{"role": "user", "content": "Say yes."}])
    said = trained.model.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)
    assert trained.decode(said[0, len(prompt) :].tolist()) == "yes"


def test_learning_continues_from_an_adapter(whole: Recipe, base: Path, tmp_path: Path) -> None:
    tiny_step = (f"model.adapter={whole.output / 'words'}", "sft.learning_rate=1e-9")
    second = tiny_recipe(LESSONS, base, tmp_path, *tiny_step)
    sft.train(second)
    assert adapter_bytes(second, "words") == adapter_bytes(whole, "words")  # to half precision


def test_dropout_is_refused_where_nothing_would_drop_anything(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dropout"):
        sft.train(tiny_recipe(LESSONS, base, tmp_path, "model.lora.dropout=0.1"))


# ---- stopped, and gone on with


def test_a_training_that_stopped_in_time_continues_to_the_same_weights(
    whole: Recipe, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = tiny_recipe(LESSONS, base, tmp_path, "run.minutes=1e-9")
    capsys.readouterr()
    sft.train(stopped)
    assert (
        "stopped after step 1 of 4, with a checkpoint; --resume continues"
        in capsys.readouterr().err
    )
    assert summary(stopped)["step"] == 1
    assert "finished" not in summary(stopped)
    assert not (stopped.output / "words").exists()
    gone_on = tiny_recipe(LESSONS, base, tmp_path)
    sft.train(gone_on, resume=True)
    for name in ("words", "lists"):
        assert adapter_bytes(gone_on, name) == adapter_bytes(whole, name)
    assert summary(gone_on)["finished"] is True
    assert summary(gone_on)["seconds"] >= summary(stopped)["seconds"]


def test_a_training_that_broke_continues_to_the_same_weights(
    whole: Recipe, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tiny_recipe(LESSONS, base, tmp_path, "run.eval_every=1", "run.eval_tasks=1")
    asked: list[int] = []

    def breaking(*arguments: Any) -> Any:
        asked.append(1)
        if len(asked) == 4:
            raise RuntimeError("the machine is on fire")
        return evaluate_examples(*arguments)

    monkeypatch.setattr(sft, "evaluate_examples", breaking)
    with pytest.raises(RuntimeError, match="on fire"):
        sft.train(broken)
    assert [line["step"] for line in metrics(broken)] == [1, 2, 3]
    checkpoint = last_checkpoint(broken.output)
    assert checkpoint is not None
    assert checkpoint.step == 2
    assert not (broken.output / "words").exists()
    sft.train(broken, resume=True)
    assert adapter_bytes(broken, "words") == adapter_bytes(whole, "words")
    recited = [line["step"] for line in metrics(broken) if "loss" not in line]
    assert recited == [1, 2, 3, 4]  # steps after the checkpoint are logged once


def test_a_full_disk_is_explained_and_leaves_the_checkpoint_before(
    whole: Recipe, base: Path, tmp_path: Path
) -> None:
    recipe = tiny_recipe(LESSONS, base, tmp_path)
    no_room = recipe.output / "checkpoints" / "checkpoint-4" / "optimizer.pt"
    no_room.parent.mkdir(parents=True)
    no_room.symlink_to("/dev/full")
    with pytest.raises(StoreError, match=r"no space left in .*the checkpoint of step 2 is whole"):
        sft.train(recipe)
    assert not (recipe.output / "words").exists()
    no_room.unlink()
    sft.train(recipe, resume=True)
    assert adapter_bytes(recipe, "words") == adapter_bytes(whole, "words")


def summary(recipe: Recipe) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((recipe.output / "summary.json").read_text("utf-8"))
    return found


# ---- many processes, and where metrics go


def test_processes_divide_the_rows_of_every_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = [*A, *B]
    monkeypatch.setenv("WORLD_SIZE", "2")
    shares = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        shares.append(process_share(batch, 2))
    assert shares == [[*A[:2], *B[:2]], [*A[2:], *B[2:]]]
    with pytest.raises(ConfigError, match="3 rows of each adapter cannot be divided among 2"):
        process_share(batch[:6], 2)


def test_metrics_also_go_where_the_recipe_says(base: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(LESSONS, base, tmp_path, 'run.log=["jsonl", "tensorboard"]')
    assert sft._arguments(recipe, 1).report_to == ["tensorboard"]
    plain = tiny_recipe(LESSONS, base, tmp_path)
    assert sft._arguments(plain, 1).report_to == []
