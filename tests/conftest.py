"""What holds for every test: properties are checked on the same examples each time, and a busy
machine makes no test fail."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "podium",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("podium")
