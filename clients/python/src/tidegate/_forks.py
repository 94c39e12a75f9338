"""What a forked child makes anew: locks that other threads of its parent held, of which it has none."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """Has locks, or waits for threads."""

    def after_fork(self) -> None:
        """Makes anew what only another thread could give back."""


_known: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(one: Renewable) -> None:
    """Calls `after_fork` in each child for as long as the object is in use."""
    _known.add(one)


def _renew_all() -> None:
    for one in list(_known):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
