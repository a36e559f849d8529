"""Objects that count how often they are read, for claims about what something costs."""

from __future__ import annotations

from typing import Any


class CountedLabels(dict[str, str]):
    """Labels that count how often they are read."""

    reads = 0

    def get(self, *args: Any) -> Any:
        self.reads += 1
        return super().get(*args)
