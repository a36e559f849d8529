"""The clock that plugin authors have too, by the name the repository's own tests know."""

from scheduler.testing.fakes import ManualClock

__all__ = ["ManualClock"]
