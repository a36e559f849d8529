"""Settings and fixtures of all tests."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.support import daemon_accounts as granted

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

# The same examples every time, however slow the machine; a search for new ones is started by hand.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")

_UNUSED = pytest.StashKey[list[str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker of xdist kept account of."""
    output = getattr(node, "workeroutput", {})  # a worker that crashed has none
    granted.GRANTED.update(output.get("granted", ()))
    granted.USED.update(output.get("used", ()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Undo what a command that runs in this process has set: logs, garbage collection and frozen objects.

    caplog sees nothing with another level or with disabled logs, and Hypothesis looks for the referrers of its random
    generators, which are not found among frozen objects.
    """
    root = logging.getLogger()
    handlers, level, disabled = root.handlers[:], root.level, logging.root.manager.disable
    callbacks, threshold = gc.callbacks[:], gc.get_threshold()
    try:
        return (yield)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.disable(disabled)
        gc.callbacks[:] = callbacks
        gc.set_threshold(*threshold)
        gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let a whole run fail by a grant that no test used."""
    config = session.config
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output |= {"granted": sorted(granted.GRANTED), "used": sorted(granted.USED)}
    elif exitstatus == pytest.ExitCode.OK and _is_whole(config):
        config.stash[_UNUSED] = granted.unused()
        if config.stash[_UNUSED]:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Say why."""
    for right in config.stash.get(_UNUSED, ()):
        terminalreporter.write_line(
            f"FAILED: a role of `check --rbac` allows it, and no test needs it: {right}"
        )


def _is_whole(config: pytest.Config) -> bool:
    """Whether all tests are run, not some of them."""
    narrowed = (config.option.keyword, config.option.markexpr, config.getoption("lf", default=False))
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(narrowed)
