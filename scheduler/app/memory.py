"""Settings of the process's memory that a scheduler needs; for the daemon's own process only."""

from __future__ import annotations

import gc

import numpy as np

_LARGEST_FREED_BYTES = 24 * 1024 * 1024
_YOUNG_OBJECTS = 50_000


def settle_memory() -> None:
    """Keep memory that a cycle frees, and look for garbage less often.

    The C library returns large freed blocks to the kernel and gets them back page by page, in every cycle, until it has
    seen one larger block come and go. And Python looks for garbage after every 700 new objects, through all young
    ones, where a scheduler mostly makes objects that stay: pods and nodes.
    """
    np.empty(_LARGEST_FREED_BYTES, dtype=np.uint8)  # not a page of it is touched
    gc.set_threshold(_YOUNG_OBJECTS, 20, 50)
