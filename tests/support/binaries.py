"""Optional programs of some tests: a missing one skips its tests, except in CI."""

from __future__ import annotations

import os
import shutil

import pytest


def needed_binary(name: str, package: str, *, in_ci: bool = True) -> str:
    """Return the path of a program.

    Where it is missing, the test is skipped with the reason; with the environment variable CI set it fails, so that
    nothing goes untested because somebody forgot to install it.

    Args:
        name: as in the shell.
        package: what brings it, for people.
        in_ci: whether CI has it too; what needs rights over the machine need not be there.
    """
    found = shutil.which(name)
    if found is not None:
        return found
    reason = f"{name} is not installed; it comes with {package}"
    if in_ci and os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
