"""The tables of a recipe that say how the model learns, by example, from reward or by evolution,
and how the training is run. Needs no torch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from podium.conductors.evolved.description import TURNS, Token
from podium.config.values import Count, Name
from podium.train.schema import Names, Positive, Share, Spread, Temperature, Weight
from podium.workers.catalogue import Table

Schedule = Literal["cosine", "linear", "constant"]
Scale = Literal["group", "batch", "none"]
Log = Literal["jsonl", "tensorboard", "wandb"]
Method = Literal["cma-es", "random"]


class OptimiserTable(Table):
    """What both ways of training share: the optimiser and its schedule."""

    steps: Count = Field(description="updates of the model")
    learning_rate: Positive = Field(description="the highest learning rate")
    schedule: Schedule = Field(default="cosine", description="how it falls")
    warmup_ratio: Share = Field(default=0.03, description="the share of steps in which it rises")
    max_grad_norm: Weight = Field(default=1.0, description="longer gradients are cut to this")
    adam_beta1: Share = Field(default=0.9, description="AdamW")
    adam_beta2: Share = Field(default=0.999, description="AdamW")
    adam_epsilon: Positive = Field(default=1e-8, description="AdamW")
    weight_decay: Weight = Field(default=0.0, description="AdamW")
    micro_batch: Count | None = Field(
        default=None, description="rows in one pass on a device; left out: all of a step at once"
    )


class SftTable(OptimiserTable):
    """Learning by example: `podium train sft`."""

    teach: Literal["lessons", "openings", "decisions", "file"] = Field(
        description="`lessons` for the études' specialists, `openings` for a conductor, "
        "`decisions` whether it accepts an answer, or the examples of `data.file`"
    )
    adapters: Names = Field(
        default=frozenset(),
        description="the specialists that are taught side by side, by family; with `lessons`",
    )
    batch: Count = Field(default=64, description="examples a step, of each adapter")
    examples: Count = Field(default=50_000, description="how many different ones, of each adapter")
    max_tokens: Count | None = Field(
        default=None,
        description="the most tokens in one pass, padding included: long examples come in smaller "
        "batches",
    )


class GrpoTable(OptimiserTable):
    """Learning from reward: `podium train grpo`."""

    questions: Count = Field(description="questions a step")
    rollouts: Annotated[int, Field(ge=2)] = Field(description="plans written for each question")
    clip: Share = Field(default=0.2, description="ε: how far the policy may move in one update")
    clip_high: Weight | None = Field(default=None, description="ε upwards; left out: as `clip`")
    beta: Weight = Field(
        default=0.0,
        description="the weight of the KL term, towards the policy as training began, "
        "`model.adapter` included; 0: none, as in the paper; 0.01 to 0.04 holds a small model to "
        "its warm start",
    )
    entropy: Weight = Field(default=0.0, description="the weight of a bonus for entropy")
    temperature: Annotated[float, Field(gt=0, le=2)] = Field(
        default=1.0, description="with which plans are sampled"
    )
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(default=1.0, description="sampling")
    top_k: Annotated[int, Field(ge=0)] = Field(default=0, description="sampling; 0: all tokens")
    explore: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="where no plan for a question was right, so many of them make room for the "
        "best one with another worker in one place, drawn evenly, and after a round with a step "
        "that reads all of it; fewer than there are that go on from no other",
    )
    explore_tries: Count | None = Field(
        default=None,
        description="of so many such plans those that earn most are taken; left out: as many as "
        "`explore`, whatever they earn",
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
        default="group", description="what advantages are divided by the deviation of"
    )
    mask_truncated: bool = Field(default=False, description="plans that were cut off teach nothing")
    num_iterations: Count = Field(default=1, description="updates from the same rollouts")
    max_tokens: Count | None = Field(
        default=None,
        description="read a prompt once for all plans that were written to it, and in one pass at "
        "most so many tokens, padding included; on one device. Left out: every plan with its "
        "prompt, `micro_batch` of them in one pass",
    )


class EvolveTable(Table):
    """Learning from reward by evolution, a coordinator of few parameters over a model that stays as
    it is: `podium train evolve`. A reward is 1 for a right answer and 0 for a wrong one."""

    steps: Count = Field(description="how often all candidates are tried, and others made of them")
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
    sigma: Spread = Field(default=0.03, description="how far around the start it looks at first")
    method: Method = Field(
        default="cma-es",
        description="`cma-es`: separable CMA-ES; `random`: as many candidates around the start, of "
        "which the best is kept",
    )
    directions: Count | None = Field(
        default=None,
        description="rows of the head are sums of so many principal directions of the hidden "
        "states that the first questions give, and only these shares are searched; left out: "
        "every number by itself, as in the paper",
    )
    turns: Count = Field(default=TURNS, description="the most turns of a run")
    roles: bool = Field(
        default=True,
        description="a thinker, a worker or a verifier each turn; off: nothing but workers",
    )
    token: Token = Field(
        default="penultimate", description="the token of the transcript whose hidden state is read"
    )
    matrices: tuple[Name, ...] = Field(
        default=(),
        strict=False,
        description="the matrices of the model whose singular values are scaled, by their names, "
        "such as `model.layers.26.mlp.up_proj.weight`; the scales are trained with the head",
    )


class RunTable(Table):
    """How the training itself is run."""

    output: Name = Field(description="the directory of everything that comes out")
    seed: int = Field(default=42, description="the same seed gives the same training")
    save_every: Count = Field(default=20, description="steps between checkpoints")
    keep: Count = Field(default=2, description="how many checkpoints stay")
    eval_every: Annotated[int, Field(ge=0)] = Field(
        default=0, description="steps between measurements on questions held out; 0: none"
    )
    eval_tasks: Count = Field(default=256, description="how many questions each of these has")
    eval_temperature: Temperature = Field(
        default=0.2, description="with which plans are sampled in these; 0 is greedy"
    )
    references: bool | None = Field(
        default=None,
        description="before training, give every worker alone the held-out questions, and carry "
        "out the ideal plans of études, so that each step tells how far it is from these; left "
        "out: where all workers are free",
    )
    ray: Name | None = Field(
        default=None,
        description="carry the plans out on the Ray cluster at that address, `auto` for the one "
        "that this machine is of; left out: in this process",
    )
    minutes: Positive | None = Field(
        default=None, description="stop with a checkpoint after so long; `--resume` goes on"
    )
    log: Annotated[frozenset[Log], Field(strict=False)] = Field(
        default=frozenset({"jsonl"}), description="where metrics go"
    )
    cache_mb: Annotated[int, Field(ge=0)] = Field(
        default=1000, description="the most that replies kept on disk may take; 0: none are kept"
    )


class EstimateTable(Table):
    """What `--dry-run` assumes of a plan where nobody can know."""

    steps: Positive = Field(default=3.0, description="worker calls of a plan or run, on average")
    input_tokens: Count = Field(default=900, description="tokens that a worker reads in a call")
    output_tokens: Count = Field(default=600, description="tokens that it replies with")
