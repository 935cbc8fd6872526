"""What shows that the policy in training is collapsing, in words.

    watch = Watch()
    for words in watch.see(diagnose(rollouts)):     # what a person should know by now
        print(words)

Accuracy alone hides the usual failure: a policy that learned to write one well-formed step for
one strong worker, and nothing else. The numbers that tell of it are `podium.train.diagnostics`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

from podium.core.errors import UsageError
from podium.train.diagnostics import StepDiagnostics

LEAST_ROLLOUTS: Final = 16
"""Shares of fewer rollouts than this are no reason to warn anybody."""

MUCH_OF_ONE_WORKER: Final = 0.8
LITTLE_ENTROPY_BITS: Final = 0.5
NEARLY_ALL_ONE_STEP: Final = 0.95
MOSTLY_WRONG: Final = 0.5
FEW_VALID: Final = 0.5
FALLEN_TO: Final = 2 / 3
GROWN_TO: Final = 2.0
MANY_AT_THE_LIMIT: Final = 0.1
LITTLE_SPREAD: Final = 0.1
MANY_DROPPED: Final = 0.2


class Watch:
    """Remembers the last `window` steps, and tells each warning once in so many."""

    def __init__(self, window: int = 20) -> None:
        if window < 1:
            raise UsageError(f"a watch over {window} steps sees nothing; give it at least 1")
        self.history: deque[StepDiagnostics] = deque(maxlen=window)
        self._window = window
        self._steps = 0
        self._told: dict[str, int] = {}

    def see(self, step: StepDiagnostics) -> tuple[str, ...]:
        """Take the next step, and return what is new to warn of."""
        warnings = warnings_of(step, tuple(self.history))
        self.history.append(step)
        self._steps += 1
        fresh = [
            name
            for name in warnings
            if self._steps - self._told.get(name, -self._window) >= self._window
        ]
        self._told |= dict.fromkeys(fresh, self._steps)
        return tuple(warnings[name] for name in fresh)


def warnings_of(seen: StepDiagnostics, earlier: Sequence[StepDiagnostics] = ()) -> dict[str, str]:
    """What shows a collapse, in words, each under a short name of its own. `earlier` are
    the steps just before this one, for what can only be seen by comparison."""
    if seen.rollouts < LEAST_ROLLOUTS:
        return {}
    checks = {
        "collapse": _collapse_onto_one_worker(seen),
        "leaning": _leaning_on_one_worker(seen),
        "steps": _step_collapse(seen),
        "valid": _validity(seen, earlier),
        "length": _length(seen, earlier),
        "spread": _lost_spread(seen),
        "dropped": _lost_rollouts(seen),
    }
    return {name: words for name, words in checks.items() if words}


def _collapse_onto_one_worker(seen: StepDiagnostics) -> str:
    if seen.entropy_bits is None or seen.entropy_bits >= LITTLE_ENTROPY_BITS:
        return ""
    return _about_one_worker(seen, "has collapsed onto")


def _leaning_on_one_worker(seen: StepDiagnostics) -> str:
    if seen.largest_worker[1] <= MUCH_OF_ONE_WORKER or _collapse_onto_one_worker(seen):
        return ""
    return _about_one_worker(seen, "leans on")


def _about_one_worker(seen: StepDiagnostics, verb: str) -> str:
    name, share = seen.largest_worker
    if len(seen.workers) < 2:
        return ""
    return (
        f"the policy {verb} one worker: {name} has {share:.0%} of the steps, and the entropy "
        f"over {len(seen.workers)} workers is {seen.entropy_bits or 0.0:.2f} bits; see "
        f"whether the tasks need the others at all"
    )


def _step_collapse(seen: StepDiagnostics) -> str:
    if seen.one_step <= NEARLY_ALL_ONE_STEP:
        return ""
    known = seen.references.multi_step_kinds
    wrong = {
        kind or "all tasks": accuracy
        for kind, accuracy in seen.accuracy_by_kind.items()
        if accuracy < MOSTLY_WRONG and (known is None or kind in known)
    }
    if not wrong:
        return ""
    told = ", ".join(f"{kind} {accuracy:.2f}" for kind, accuracy in sorted(wrong.items()))
    return (
        f"{seen.one_step:.0%} of the plans have one step, while these are mostly wrong: "
        f"{told}; let the warm start show more plans of several steps"
    )


def _validity(seen: StepDiagnostics, earlier: Sequence[StepDiagnostics]) -> str:
    best = max((step.valid_rate for step in earlier), default=0.0)
    if seen.valid_rate < best * FALLEN_TO:
        fallen = f"from {best:.0%} to {seen.valid_rate:.0%} within {len(earlier)} steps"
        return f"valid plans fell {fallen}; lower the learning rate, or go back a checkpoint"
    if seen.valid_rate < FEW_VALID:
        return (
            f"only {seen.valid_rate:.0%} of the texts are plans; warm the policy up on the "
            f"format first, or look at the samples for what is wrong with them"
        )
    return ""


def _length(seen: StepDiagnostics, earlier: Sequence[StepDiagnostics]) -> str:
    if seen.at_the_limit is not None and seen.at_the_limit >= MANY_AT_THE_LIMIT:
        return (
            f"{seen.at_the_limit:.0%} of the texts were cut off at "
            f"{seen.references.max_tokens} tokens and count as malformed; raise the limit if "
            f"plans need it, else the policy rambles"
        )
    least = min((step.mean_tokens for step in earlier), default=math.inf)
    if seen.mean_tokens > least * GROWN_TO:
        return (
            f"texts grew from {least:.0f} to {seen.mean_tokens:.0f} tokens within "
            f"{len(earlier)} steps; look at the samples for what is being repeated"
        )
    return ""


def _lost_spread(seen: StepDiagnostics) -> str:
    if seen.groups_with_spread is None or seen.groups_with_spread >= LITTLE_SPREAD:
        return ""
    easy = (seen.accuracy or 0.0) >= MOSTLY_WRONG
    return (
        f"only {seen.groups_with_spread:.0%} of the groups hold different rewards, so there "
        f"is next to nothing to learn from; the tasks are too {'easy' if easy else 'hard'}, "
        f"or the policy writes the same plan each time"
    )


def _lost_rollouts(seen: StepDiagnostics) -> str:
    if seen.dropped < MANY_DROPPED:
        return ""
    return f"{seen.dropped:.0%} of the rollouts were dropped, most for: {seen.dropped_for}"
