"""Recorded outcomes: what real models once replied, so that strategies can be measured with no key.

    pool      workers that reply what was recorded of them, and the tasks that they know
    files     the files that records come from, and what stands in them

Replies that Podium itself keeps from one evaluation to the next are `podium.providers.cached`.
"""

from __future__ import annotations

from podium.evals.recorded.pool import RecordedPool, is_recorded, recorded_pool

__all__ = ["RecordedPool", "is_recorded", "recorded_pool"]
