"""One loaded model for everybody in this process who names it alike."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Shared(Generic[Key, Value]):
    """Makes one value for each key, and forgets it when nobody holds it any more. Safe to call
    from several threads."""

    def __init__(self, make: Callable[[Key], Value]) -> None:
        self._make = make
        self._values: weakref.WeakValueDictionary[Key, Value] = weakref.WeakValueDictionary()
        self._changing = threading.Lock()

    def __call__(self, key: Key) -> Value:
        """The one value of that key."""
        with self._changing:
            value = self._values.get(key)
            if value is None:
                value = self._values[key] = self._make(key)
            return value
