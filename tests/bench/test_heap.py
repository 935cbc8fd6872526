from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from benchmarks.timing import settled_heap


@pytest.fixture
def thawed() -> Iterator[None]:
    """The heap as processes have it, and not as the suite does."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_the_heap_is_unfrozen_after_a_failed_measurement() -> None:
    def fails() -> None:
        with settled_heap():
            assert gc.get_freeze_count() > 0
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    assert gc.get_freeze_count() == 0


def test_a_heap_that_was_frozen_before_stays_so() -> None:
    gc.freeze()
    with settled_heap():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() > 0
