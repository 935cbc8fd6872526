"""Teaching: a conductor by whether its answers were right, and anyone by example.

What is earned, and what it shows; no trainer, no torch:

    rewards, score             what an outcome is worth; a plan's text and a task -> its score
    diagnostics, collapse      what a step of training showed, and whether the policy collapses

What a training is, said in one file and checked before it begins; no torch:

    schema, method, recipe     the form of a recipe, and the recipe itself
    misfits, reference         what its keys mean together, and its documentation
    preflight, estimate        what must be there, and what it would take
    data, pools, exercises     the tasks, the pool, and each question with its situation
    ablations                  the paper's ablations, as switches

The trainings:

    sft, examples, recital     learning by example: adapters side by side, or a whole model
    grpo, policy, rollouts     learning from reward, on TRL's trainer and our own engine
    exploration, cluster       plans that are tried beside; plans carried out on other machines
    trainer_arguments          what both trainers are told of a recipe
    grpo_arguments             what TRL's is told besides
    evolve, evolution, space   learning from reward by evolution; the search, and what it may choose
    candidates, turns          coordinators on trial, and what their runs showed
    router, router_recipe      a learned router, from logs
    cast, references           the workers, and what they reach without a conductor
    shared_prompts, precision  how a model is computed with
    logbook, callbacks         what is written down as it goes
    checkpoints, processes     going on after a stop; many processes as one

And afterwards:

    course, curves             how trainings went, as a picture
    evolved                    which coordinator a training by evolution left
    export, unpack, gguf_base  an adapter as llama.cpp loads it, and back
    use, grading               runs that were judged as data, and judging them
"""
