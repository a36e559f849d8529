"""The clock that plugin authors have too, by the name the repository's own tests know."""

from scheduler.testing.manual_clock import ManualClock

__all__ = ["ManualClock"]
