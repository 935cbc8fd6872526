"""The tables and keys of a recipe's TOML file.

`podium.train.recipe` checks tables against each other; `scripts/reference.py` prints the
descriptions as documentation. The message of a validator begins with a key of its table.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from podium._util.lab import lab_extra
from podium._util.tables import Table
from podium.conductors.evolved_turns import TURNS, HiddenStateToken
from podium.conductors.plan import read_workflow
from podium.conductors.prompt import PromptStyle
from podium.config.workers import Count, Name
from podium.core.errors import ConfigError, PodiumError
from podium.core.workflow import Step
from podium.train.data_schema import Names, Share, Weight
from podium.train.score import PAPER, RELEASED, Reward

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Spread = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
"""The spread of a search; larger numbers overflow."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Seed = Annotated[int, AfterValidator(lambda seed: seed % 2**32)]
"""Any integer, as one that torch and numpy accept."""

Temperature = Annotated[float, Field(ge=0, le=2)]

LORA_TARGETS = frozenset(
    {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
)
"""Every linear layer of a Llama or Qwen2 model."""


class LoraTable(Table):
    """A low-rank adapter; without this table every parameter is trained."""

    rank: Count = Field(default=8, description="the adapter's rank")
    alpha: Positive = Field(default=16.0, description="scales the adapter by `alpha / rank`")
    targets: Names = Field(default=LORA_TARGETS, description="the adapted layers")
    dropout: Share = Field(default=0.0, description="dropout on the adapter's inputs")


class ModelTable(Table):
    """The trained model."""

    base: Name = Field(
        description=(
            "a model on the hub (`owner/name`), a name from `podium models list`, a directory or "
            "a GGUF file"
        )
    )
    adapter: Name | None = Field(
        default=None, description="the directory of an adapter to continue from; with `lora`"
    )
    adapters: dict[str, Name] = Field(
        default_factory=dict,
        description="with several `sft.adapters`: the directory of each by name; all or none",
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="bfloat16",
        description="precision on a GPU; trained weights are held in 32 bits",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="compute activations twice instead of keeping them"
    )
    lora: LoraTable | None = Field(default=None, description="train an adapter")

    @model_validator(mode="after")
    def _check_adapters(self) -> Self:
        if self.adapter is not None and self.lora is None:
            raise ValueError(
                "adapter needs a table [model.lora]; a whole model to continue from is model.base"
            )
        if self.adapter is not None and self.adapters:
            raise ValueError("adapter and model.adapters exclude each other; keep one")
        return self


class SubsetTable(Table):
    """The number of workers that a question may have."""

    smallest: Count = Field(description="the fewest workers")
    largest: Count = Field(description="the most workers")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.smallest > self.largest:
            raise ValueError(f"smallest is {self.smallest}, above largest, {self.largest}")
        return self


class RecipePoolTable(Table):
    """The workers: those of a pool file, or the études' own as adapters over one base model."""

    file: Name | None = Field(default=None, description="a pool file, as for `podium ask --pool`")
    subset: SubsetTable | None = Field(
        default=None, description="each question has a random subset of the pool, of random size"
    )
    base: Name | None = Field(
        default=None, description="the base model of the adapters; default: `model.base`"
    )
    adapters: dict[str, str] = Field(
        default={},
        description="the études' workers: an adapter's directory by role; an empty text is the "
        "base without one",
    )
    oracle: bool = Field(
        default=False,
        description="études: perfect scripted specialists instead of models, to try a recipe "
        "without trained adapters",
    )
    worker_dropout: Share = Field(
        default=0.2, description="études: the chance that a worker is left out of a pool"
    )
    flaky_rate: Share = Field(
        default=0.0,
        description="études: share of requests, chosen by hash, that a worker declines; with "
        "`[grpo]` only after a first round",
    )
    shuffle: bool = Field(
        default=False, description="shuffle the workers of a pool file for each question"
    )
    descriptions: dict[Name, Annotated[tuple[Name, ...], Field(strict=False)]] = Field(
        default_factory=dict,
        description="alternative descriptions of a pool file's workers, drawn for each question",
    )

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The roles of the études' workers in the pool; none with a pool file."""
        if not self.oracle:
            return tuple(self.adapters)
        with lab_extra():
            from podium_lab.etudes import ROLES
        return ROLES


class PromptTable(Table):
    """The prompt of the conductor. The paper's ablations are switches here."""

    style: PromptStyle = Field(
        default="full", description="`full` is the paper's structure, `trained` for small models"
    )
    few_shot: bool = Field(default=True, description="show worked examples")
    fixed_subtasks: bool = Field(
        default=False,
        description='every worker gets the subtask "Solve the user question", whatever a plan says',
    )
    access: Literal["binary", "index"] = Field(
        default="binary",
        description="`binary`: a step reads all before it or nothing, and a plan that names steps "
        "is malformed; `index`: chosen steps",
    )
    mask_names: bool = Field(default=True, description="hide the workers' names")
    max_steps: Count = Field(default=5, description="the most steps that a plan may have")


class RewardTable(Table):
    """The reward of each outcome."""

    preset: Literal["paper", "released"] = Field(
        default="paper",
        description="`paper`: 0, 0.5 and 1 for malformed, wrong and right; `released`: 0, 0.5, 1.5",
    )
    malformed: Finite | None = Field(default=None, description="instead of the preset's")
    wrong: Finite | None = Field(default=None, description="instead of the preset's")
    right: Finite | None = Field(default=None, description="instead of the preset's")
    milestones: Weight = Field(
        default=0.0,
        description="added to a wrong answer in proportion to its right intermediate results",
    )
    penalty_per_usd: Weight = Field(
        default=0.0, description="subtracted for each dollar that the workers cost"
    )
    penalty_per_1000_worker_tokens: Weight = Field(
        default=0.0, description="subtracted for each 1,000 tokens of the workers"
    )
    penalty_per_completion_token: Weight = Field(
        default=0.0, description="subtracted for each token that the conductor writes"
    )
    penalty_per_extra_step: Weight = Field(
        default=0.0, description="subtracted for each step beyond the first"
    )
    replan_penalty: Weight = Field(
        default=0.0, description="subtracted for replanning after a right answer"
    )
    accept_penalty: Weight = Field(
        default=0.0, description="subtracted for accepting a wrong answer"
    )

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        try:
            self.reward()
        except ConfigError as error:
            raise ValueError(str(error).removeprefix("reward.")) from error
        return self

    def reward(self) -> Reward:
        preset = PAPER if self.preset == "paper" else RELEASED
        values = self.model_dump(exclude={"preset"}, exclude_none=True)
        return replace(preset, **values)


class WorkersTable(Table):
    """Requests to workers while a conductor is trained."""

    max_tokens: Count = Field(default=4096, description="the most tokens of a reply")
    temperature: Temperature = Field(
        default=0.2, description="sent where the worker accepts it; 0 is greedy"
    )


class AnswersTable(Table):
    """Train a worker: its rollouts are answers, not plans."""

    subtasks: Annotated[tuple[str, ...], Field(min_length=1, strict=False)] = Field(
        default=("",), description="one of them for each task; empty: the question alone"
    )
    program_subtasks: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="subtasks whose reply is a program: the Python worker of `pool.file` runs it, "
        "and its output is graded; they replace `subtasks`, except for tasks that are graded by "
        "tests",
    )
    tested_program_subtasks: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="the same for tasks that are graded by tests, beside `subtasks`",
    )
    earlier_steps: tuple[dict[str, Any], ...] = Field(
        default=(),
        strict=False,
        description="steps before its own, by workers of `pool.file`, as in a workflow file",
    )

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return read_workflow({"steps": self.earlier_steps}).steps if self.earlier_steps else ()

    @property
    def runs_programs(self) -> bool:
        return bool(self.program_subtasks or self.tested_program_subtasks)

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        try:
            assert self.steps is not None
        except PodiumError as error:
            raise ValueError(f"earlier_steps: {error}") from error
        if self.steps and self.runs_programs:
            raise ValueError("programs are run alone; leave earlier_steps out")
        return self


class RecursionTable(Table):
    """Some rollouts are later rounds: the conductor sees a result, and accepts it or replans."""

    rounds: Count = Field(default=2, description="the most rounds of a rollout; 2 are supported")
    share: Share = Field(
        default=0.5,
        description="how many rollouts continue another one of the same question; half at most",
    )
    discount: Share = Field(
        default=0.25,
        description="g in `(1 - g) r0 + g r1`, the reward of a round that another one followed",
    )
    normalise_per_round: bool = Field(
        default=False,
        description="a rollout is compared with those of its question in the same round, not with "
        "all of its question",
    )

    @model_validator(mode="after")
    def _check_rounds(self) -> Self:
        if self.rounds != 2:
            note = "drop [recursion]" if self.rounds < 2 else "more are for serving, not training"
            raise ValueError(f"rounds is {self.rounds}, and rollouts have two; write 2 ({note})")
        return self

    def second_round_count(self, rollouts: int) -> int:
        return round(rollouts * self.share)


Schedule = Literal["cosine", "linear", "constant"]
Scale = Literal["group", "batch", "none"]
Log = Literal["jsonl", "tensorboard", "wandb"]


class OptimiserTable(Table):
    """The optimiser and its schedule."""

    steps: Count = Field(description="updates of the model")
    learning_rate: Positive = Field(description="the highest learning rate")
    schedule: Schedule = Field(default="cosine", description="the learning rate's decay")
    warmup_ratio: Share = Field(
        default=0.03, description="share of steps with a rising learning rate"
    )
    max_grad_norm: Weight = Field(default=1.0, description="gradients are clipped to this norm")
    adam_beta1: Share = Field(default=0.9, description="AdamW")
    adam_beta2: Share = Field(default=0.999, description="AdamW")
    adam_epsilon: Positive = Field(default=1e-8, description="AdamW")
    weight_decay: Weight = Field(default=0.0, description="AdamW")
    micro_batch: Count | None = Field(
        default=None, description="rows of a forward pass on a device; left out: all rows of a step"
    )


class SftTable(OptimiserTable):
    """Supervised fine-tuning: `podium train sft`."""

    dataset: Literal["specialists", "plans", "decisions", "templates", "file"] = Field(
        description="`specialists` for the études' specialists, `plans` for a conductor, "
        "`decisions` whether it accepts an answer, `templates` for plans over `pool.file`, or the "
        "examples of `data.file`"
    )
    templates: Name | None = Field(
        default=None, description="the file of plan templates, with `templates`"
    )
    search_tasks: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="first execute the templates with every choice of workers on this many tasks "
        "of each benchmark, the best quarter on four times as many new ones, the best of these on "
        "sixteen times; examples follow the rewards, which `plans.toml` in the output has",
    )
    adapters: Names = Field(
        default=frozenset(),
        description="with `specialists`: the families to train at once, an adapter each",
    )
    batch: Count = Field(default=64, description="examples per step and adapter")
    examples: Count = Field(default=50_000, description="different examples per adapter")
    max_pass_tokens: Count | None = Field(
        default=None,
        description="the most tokens in one pass, padding included: long examples come in smaller "
        "batches",
    )


class VllmTable(Table):
    """Sample with vLLM."""

    mode: Literal["server", "colocate"] = Field(
        default="server",
        description="beside the training, or in its processes",
    )
    url: Name = Field(default="http://localhost:8000", description="`server`: its address")
    memory: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.3, description="`colocate`: vLLM's share of each GPU's memory"
    )
    tensor_parallel: Count = Field(default=1, description="`colocate`: GPUs that share a copy")
    sleep: bool = Field(
        default=True, description="`colocate`: free vLLM's memory during the update"
    )


class GrpoTable(OptimiserTable):
    """Reinforcement learning: `podium train grpo`."""

    questions: Count = Field(description="questions per step")
    rollouts: Annotated[int, Field(ge=2)] = Field(description="plans written for each question")
    clip: Share = Field(default=0.2, description="ε: how far the policy may move in one update")
    clip_high: Weight | None = Field(default=None, description="ε upwards; left out: as `clip`")
    beta: Weight = Field(
        default=0.0,
        description=(
            "the weight of the KL term towards the policy as training began; 0.01 to 0.04 holds a"
            " small model to its warm start"
        ),
    )
    temperature: Annotated[float, Field(gt=0, le=2)] = Field(
        default=1.0, description="the sampling temperature of plans"
    )
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(default=1.0, description="sampling")
    top_k: Annotated[int, Field(ge=0)] = Field(default=0, description="sampling; 0: all tokens")
    explore: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description=(
            "where no plan for a question was right, replace this many by variations of the best "
            "one: another worker in one step"
        ),
    )
    explore_tries: Count | None = Field(
        default=None,
        description="try this many variations and keep those with the highest rewards; default: as "
        "many as `explore`, whatever their reward",
    )
    max_completion_tokens: Count = Field(default=1024, description="the longest plan")
    max_prompt_tokens: Count = Field(
        default=8192,
        description="a question whose prompt is longer is left out, and the next one trained on",
    )
    loss_type: Literal["bnpo", "grpo", "dr_grpo", "dapo"] = Field(
        default="bnpo",
        description="`bnpo` averages over the tokens of a batch, as the released code does; `grpo` "
        "over rollouts, as the paper writes",
    )
    scale_rewards: Scale = Field(
        default="group", description="whose standard deviation scales the advantages"
    )
    mask_truncated: bool = Field(default=False, description="leave truncated plans out of the loss")
    num_iterations: Count = Field(default=1, description="updates from the same rollouts")
    max_pass_tokens: Count | None = Field(
        default=None,
        description=(
            "read each prompt once for all its plans, at most so many tokens in one pass; on one "
            "device. Left out: every plan with its prompt, `micro_batch` at once"
        ),
    )

    vllm: VllmTable | None = Field(default=None, description="sample with vLLM")

    @model_validator(mode="after")
    def _check_rollouts(self) -> Self:
        if self.micro_batch is not None and (self.questions * self.rollouts) % self.micro_batch:
            raise ValueError(
                f"micro_batch is {self.micro_batch}; the {self.questions} x {self.rollouts} "
                f"rollouts of a step cannot be divided by it"
            )
        if self.explore_tries is not None and not 0 < self.explore <= self.explore_tries:
            raise ValueError(
                f"explore_tries is {self.explore_tries}, and {self.explore} of them are to be "
                f"taken (grpo.explore); write at least one there, and as many or more here"
            )
        return self


class EvolveTable(Table):
    """Learning from reward by evolution, a coordinator of few parameters over a model that stays as
    it is: `podium lab evolve`. A reward is 1 for a right answer and 0 for a wrong one."""

    steps: Count = Field(description="generations")
    questions: Count = Field(
        default=16,
        description="questions a step, the same for all candidates, each of which has a run for "
        "every one of them",
    )
    population: Annotated[int, Field(ge=2)] | None = Field(
        default=None,
        description="candidates a step; left out: ⌈4 + 3 ln n⌉, where n is how many parameters are "
        "trained",
    )
    sigma: Spread = Field(default=0.03, description="the initial standard deviation of the search")
    principal_directions: Count | None = Field(
        default=None,
        description="search only so many coefficients for each row of the head: those of the "
        "principal components of the hidden states of the first questions; default: search every "
        "weight, as in the paper",
    )
    turns: Count = Field(default=TURNS, description="the most turns of a run")
    roles: bool = Field(
        default=True,
        description="a thinker, a worker or a verifier each turn; off: nothing but workers",
    )
    hidden_state_token: HiddenStateToken = Field(
        default="penultimate", description="the token of the transcript whose hidden state is read"
    )
    matrices: tuple[Name, ...] = Field(
        default=(),
        strict=False,
        description="the matrices of the model whose singular values are scaled, by their names, "
        "such as `model.layers.26.mlp.up_proj.weight`; the scales are trained with the head",
    )

    @model_validator(mode="after")
    def _check_matrices(self) -> Self:
        if len({*self.matrices}) < len(self.matrices):
            raise ValueError("matrices names a matrix twice; name it once")
        return self


class RunTable(Table):
    """The training run: output, checkpoints, logs."""

    output: Name = Field(description="the output directory")
    seed: Seed = Field(default=42, description="the same seed gives the same training")
    save_every: Count = Field(default=20, description="steps between checkpoints")
    max_checkpoints: Count = Field(default=2, description="how many checkpoints are kept")
    eval_every: Annotated[int, Field(ge=0)] = Field(
        default=0, description="steps between evaluations on held-out questions; 0: none"
    )
    eval_tasks: Count = Field(default=256, description="questions per evaluation")
    eval_temperature: Temperature = Field(
        default=0.2, description="sampling temperature in evaluations; 0 is greedy"
    )
    baselines: bool | None = Field(
        default=None,
        description=(
            "before training, evaluate every worker alone on the held-out questions; left out: "
            "if all workers are free"
        ),
    )
    minutes: Positive | None = Field(
        default=None, description="stop with a checkpoint after this time; `--resume` continues"
    )
    log: Annotated[frozenset[Log], Field(strict=False)] = Field(
        default=frozenset({"jsonl"}), description="where metrics go"
    )
    cache_mb: Annotated[int, Field(ge=0)] = Field(
        default=1000, description="the size limit of the reply cache on disk; 0: no cache"
    )


class EstimateTable(Table):
    """Assumptions of `--dry-run`."""

    calls_per_run: Positive = Field(
        default=3.0, description="worker calls of a plan or run, on average"
    )
    worker_input_tokens: Count = Field(
        default=900, description="tokens that a worker reads in a call"
    )
    worker_output_tokens: Count = Field(default=600, description="tokens that it replies with")
    policy_input_tokens: Count = Field(default=1000, description="tokens that the policy reads")
    policy_output_tokens: Count = Field(default=300, description="tokens that it writes")
    gpus: Count = Field(default=1, description="GPUs that share the optimiser's states")
