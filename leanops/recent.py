"""What was asked for last is kept, for any number of threads."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Up to so many values; what nobody has asked for the longest goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._one_by_one = Lock()

    def get(self, key: Key) -> Value | None:
        """What is kept of a key."""
        with self._one_by_one:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def keep(self, key: Key, value: Value) -> Value:
        """Keep a value, which is handed back."""
        with self._one_by_one:
            self._kept[key] = value
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return value

    def clear(self) -> None:
        """Keep nothing, as a process that begins now."""
        with self._one_by_one:
            self._kept.clear()
