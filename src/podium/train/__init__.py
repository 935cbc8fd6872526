"""Training: a conductor by reward, any model by example, a router from logs.

One step of learning from reward goes one way:

    exercises -> rollouts -> score -> diagnostics -> grpo (TRL's trainer)

    recipe, schema                the TOML file of a training, its checks and its documentation
    preflight                     what must be there before it begins, and what it will cost
    worker_set                    the workers, their pool and the scorer of plans
    sft, examples                 learning by example, several adapters side by side
    trainer_setup                 arguments of the trainers
    shared_prompts                one forward pass for a prompt's plans
    diagnostics                   what a step is compared with, what it showed, and collapse
    training_log                  what a training writes, and its checkpoints
    router                        a learned router
    gguf                          adapters for llama.cpp, and back
    run_data                      judged runs as training data, and grading runs

Études and the evolved coordinator are in `podium_lab`.
"""
