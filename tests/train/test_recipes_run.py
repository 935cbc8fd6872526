"""Every recipe that comes with Podium, two steps of each, through the command line: the same
tables and the same code, over a tiny Qwen2 of random weights. What would take hours is replaced:
sizes, the base, benchmarks from the hub, and workers with keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium.cli import main
from podium.train.recipe import read_recipe
from support.recipes import OF_MODELS, RECIPES
from support.trainings import base, let_it_plan

pytest.importorskip("torch")
pytest.importorskip("trl")

pytestmark = pytest.mark.torch

__all__ = ["base"]

DATA = Path(__file__).parents[1] / "tasks" / "data"
FAMILIES = ("arithmetic", "calendar", "codes", "facts", "lists", "translation", "words")
SMALL = ("run.eval_tasks=2", "run.cache_mb=1")
SMALL_LORA = ("model.lora.rank=2",)
FEW_EXAMPLES = ("sft.batch=2", "sft.examples=4")
FEW_PLANS = ("grpo.rollouts=2", "grpo.max_completion_tokens=4", "grpo.max_prompt_tokens=100_000")
FIXTURES = (
    f"data.mix.path={DATA}",
    "data.mix.per_source=1",
    'data.mix.sources=["math500", "rlpr", "livecodebench"]',
    "pool.file=../src/podium/config/pools/scripted.toml",
    "workers.max_tokens=8",
    "grpo.questions=1",
    "grpo.micro_batch=1",
    "grpo.vllm=",
)


class Trained:
    """A directory in which recipes are run one after another, as they build on each other."""

    def __init__(self, directory: Path, base: Path) -> None:
        self.directory = directory
        self.base = base

    def run(self, kind: str, name: str, *settings: str) -> Path:
        output = self.directory / name
        overrides = (f"model.base={self.base}", f"run.output={output}", *SMALL, *settings)
        values = [part for override in overrides for part in ("--set", override)]
        group = "lab" if kind == "evolve" else "train"
        assert main([group, kind, str(RECIPES / f"{name}.toml"), "--steps", "2", *values]) == 0
        return output

    def specialists(self) -> list[str]:
        workers = self.directory / "etudes-workers"
        return [f"pool.adapters.{family}={workers / family}" for family in FAMILIES]


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The specialists and the warm start of the études, which other recipes need."""
    trained = Trained(tmp_path_factory.mktemp("trained"), base)
    trained.run("sft", "etudes-workers", *FEW_EXAMPLES, *SMALL_LORA, "run.eval_every=2")
    begun = f"model.adapter={trained.directory / 'etudes-workers' / 'arithmetic'}"
    trained.run("sft", "etudes-arithmetic", begun, *FEW_EXAMPLES, *SMALL_LORA, "run.eval_every=2")
    four = ("arithmetic", "calendar", "lists", "words")
    before = [
        f"model.adapters.{name}={trained.directory / 'etudes-workers' / name}" for name in four
    ]
    trained.run("sft", "etudes-practice", *before, *FEW_EXAMPLES, *SMALL_LORA, "run.eval_every=2")
    trained.run("sft", "etudes-warm-start", *FEW_EXAMPLES, *SMALL_LORA, "run.eval_every=2")
    return trained


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    let_it_plan(monkeypatch)


def lines(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text("utf-8").splitlines()]


def is_finished(output: Path) -> bool:
    summary = json.loads((output / "summary.json").read_text("utf-8"))
    return summary["step"] == 2 and summary["finished"] is True


def test_the_specialists(trained: Trained) -> None:
    output = trained.directory / "etudes-workers"
    assert is_finished(output)
    assert all((output / family / "adapter_model.safetensors").exists() for family in FAMILIES)
    recited = next(line for line in lines(output) if "eval/words" in line)
    assert {f"eval/{family}" for family in FAMILIES} <= set(recited)


def test_the_specialist_that_continues_alone(trained: Trained) -> None:
    output = trained.directory / "etudes-arithmetic"
    assert is_finished(output)
    weights = "arithmetic/adapter_model.safetensors"
    before = trained.directory / "etudes-workers" / weights
    assert (output / weights).read_bytes() != before.read_bytes()


def test_specialists_that_go_on_together(trained: Trained) -> None:
    output = trained.directory / "etudes-practice"
    assert is_finished(output)
    for name in ("arithmetic", "calendar", "lists", "words"):
        weights = f"{name}/adapter_model.safetensors"
        before = trained.directory / "etudes-workers" / weights
        assert (output / weights).read_bytes() != before.read_bytes()


def test_the_warm_start(trained: Trained) -> None:
    output = trained.directory / "etudes-warm-start"
    assert is_finished(output)
    assert (output / "conductor" / "adapter_model.safetensors").exists()


def test_decisions_after_a_round(trained: Trained) -> None:
    begun = f"model.adapter={trained.directory / 'etudes-warm-start' / 'conductor'}"
    output = trained.run(
        "sft", "etudes-decisions", begun, *FEW_EXAMPLES, *SMALL_LORA, "run.eval_every=2"
    )
    assert is_finished(output)
    assert any("eval/conductor" in line for line in lines(output))


@pytest.mark.parametrize("name", ["etudes", "etudes-further", "etudes-recursion"])
def test_the_etudes_conductor(trained: Trained, name: str) -> None:
    adapter = trained.directory / "etudes-warm-start" / "conductor"
    output = trained.run(
        "grpo",
        name,
        *(f"model.adapter={adapter}", *trained.specialists(), *SMALL_LORA, *FEW_PLANS),
        *("grpo.questions=2", "grpo.rollouts=10", "workers.max_tokens=2", "run.eval_every=2"),
    )
    assert is_finished(output)
    assert (output / "conductor" / "adapter_model.safetensors").exists()
    steps = [line for line in lines(output) if "valid_rate" in line]
    assert [line["step"] for line in steps] == [1, 2]
    assert any(line["valid_rate"] > 0 for line in steps)
    assert any(line["largest_worker_share"] > 0 for line in steps)
    assert "held_out/accuracy" in lines(output)[-1]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("conductor-7b", []),
        ("conductor-7b-recursion", ["prompt.few_shot=false"]),
        ("conductor-7b-random-pools", ["prompt.few_shot=false", "pool.subset.largest=4"]),
    ],
    ids=["conductor-7b", "recursion", "random-pools"],
)
def test_the_papers_conductor(trained: Trained, name: str, settings: list[str]) -> None:
    output = trained.run("grpo", name, *FEW_PLANS, *FIXTURES, *settings)
    assert is_finished(output)
    assert (output / "model" / "model.safetensors").exists()
    assert any(line["valid_rate"] > 0 for line in lines(output))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("trinity", [*FIXTURES[:5], 'evolve.matrices=["model.layers.1.mlp.up_proj.weight"]']),
        (
            "etudes-evolved",
            ["workers.max_tokens=2", "run.eval_every=2", "evolve.principal_directions=2"],
        ),
    ],
    ids=["trinity", "etudes"],
)
def test_a_coordinator_is_evolved(trained: Trained, name: str, settings: list[str]) -> None:
    specialists = trained.specialists() if name == "etudes-evolved" else []
    few = ("evolve.questions=2", "evolve.population=2", "evolve.turns=2")
    output = trained.run("evolve", name, *few, *settings, *specialists)
    assert is_finished(output)
    assert (output / "coordinator" / "coordinator.json").exists()
    assert [line["step"] for line in lines(output) if "mean_turns" in line] == [1, 2]


REAL = (
    f"data.mix.path={DATA}",
    'data.mix.sources=["gsm8k:test", "mbpp-one-test:test"]',
    "data.mix.per_source=1",
    "data.mix.train_share=0.5",
)
SPECIALISTS = ("mathematics", "programs", "knowledge", "reading")


@pytest.fixture(scope="module")
def real(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The specialists of the real workers and the warm start, over pools of the tiny base."""
    real = Trained(tmp_path_factory.mktemp("real"), base)
    for path in (RECIPES.parent / "pools" / "real.toml", RECIPES / "parts" / "real-base.toml"):
        text = path.read_text("utf-8").replace("../../trained", "../trained")
        text = text.replace("../trained/real-base", str(base)).replace("../trained", ".")
        (real.directory / path.name).write_text(text, "utf-8")
    return real


def train_real(real: Trained, name: str, *settings: str) -> Path:
    pool = "real-base" if name in SPECIALISTS else "real"
    file = f"pool.file={real.directory / f'{pool}.toml'}"
    kind = "sft" if name == "warm-start" else "grpo"
    measured = () if kind == "sft" else ("run.eval_every=2", "workers.max_tokens=8", *FEW_PLANS)
    output = real.run(kind, f"real-{name}", file, *REAL, *SMALL_LORA, *measured, *settings)
    assert is_finished(output)
    return output


def two_templates(real: Trained) -> Path:
    """A file of two templates: the search meets few plans."""
    text = (RECIPES / "parts" / "real-plans.toml").read_text("utf-8")
    first, second, *_ = text.partition("[[plan]]")[2].split("[[plan]]")
    path = real.directory / "plans.toml"
    path.write_text(f"[[plan]]{first}[[plan]]{second}", "utf-8")
    return path


def test_the_real_specialists_and_the_conductor_that_leads_them(
    real: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium.workers.local.decoding import Decoder

    batches: list[set[int]] = []
    complete = Decoder.complete

    def recorded(decoder: Decoder, *rest: Any, **more: Any) -> Any:
        batches.append({*(more.get("adapter_indices") or ())})
        return complete(decoder, *rest, **more)

    monkeypatch.setattr(Decoder, "complete", recorded)
    few = ("grpo.questions=1", "grpo.rollouts=4")
    for name in SPECIALISTS:
        output = train_real(real, name, *few)
        assert (output / "conductor" / "adapter_model.safetensors").exists()
        assert "held_out/accuracy" in lines(output)[-1]
    output = train_real(real, "warm-start", *FEW_EXAMPLES, f"sft.templates={two_templates(real)}")
    assert "tasks right" in (output / "plans.toml").read_text("utf-8")
    for name, before in (("conductor", "warm-start"), ("conductor-second", "conductor")):
        begun = f"model.adapter={real.directory / f'real-{before}' / 'conductor'}"
        output = train_real(real, name, begun, *few, "grpo.rollouts=6", "grpo.explore=1")
        workers = {key for line in lines(output) for key in line if key.startswith("worker/")}
        assert len(workers) > 2
    assert any(len(adapters) > 1 for adapters in batches), "workers share no batch"


def test_no_recipe_is_left_out() -> None:
    run = {"etudes-workers", "etudes-arithmetic", "etudes-practice", "etudes-warm-start"}
    run |= {"etudes", "etudes-further", "etudes-decisions", "etudes-recursion"}
    run |= {"conductor-7b", "conductor-7b-recursion", "conductor-7b-random-pools"}
    run |= {"trinity", "etudes-evolved", "real-warm-start", "real-conductor"}
    run |= {"real-conductor-second", *(f"real-{name}" for name in SPECIALISTS)}
    assert {path.stem for path in OF_MODELS} == run
    for name in run:
        read_recipe(RECIPES / f"{name}.toml")
