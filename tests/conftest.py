"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# The same examples every time, however slow the machine; a search for new ones is started by hand.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
