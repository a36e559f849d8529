"""Settings and fixtures of all tests."""

from __future__ import annotations

import gc
import inspect
import logging
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from _pytest.runner import runtestprotocol
from hypothesis import settings

from tests.support import daemon_accounts as granted
from tests.support import virtual_time
from tests.support.forked_workers import fork_workers
from tests.support.order_of_tests import long_first, together

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

# The same examples every time, however slow the machine; HYPOTHESIS_PROFILE=search tries many new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("search", deadline=None, derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

_UNUSED = pytest.StashKey[list[str]]()
_OBJECTS_TO_COLLECT = (5000, 20, 20)

yaml.SafeLoader = yaml.CSafeLoader  # yaml.safe_load takes a tenth of the time in C


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker of xdist kept account of."""
    output = getattr(node, "workeroutput", {})  # a worker that crashed has none
    granted.GRANTED.update(output.get("granted", ()))
    granted.USED.update(output.get("used", ()))


class _FrozenObjects:
    """Notes whether a test has unfrozen the objects: counting them takes milliseconds.

    What a test has frozen stays so. It is little, and looking for garbage in all objects takes half a second.
    """

    def __init__(self) -> None:
        self._unfreeze = gc.unfreeze
        self._are_unfrozen = False
        gc.unfreeze = self._noted

    def _noted(self) -> None:
        self._are_unfrozen = True
        self._unfreeze()

    def restore(self) -> None:
        """Free the garbage of a test that has unfrozen the objects, and freeze the others."""
        if self._are_unfrozen:
            gc.collect()
            gc.freeze()
            self._are_unfrozen = False


_FROZEN = _FrozenObjects()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and tests out of garbage collection, since they stay: it would take a fifth of all time.

    What tests leave behind is collected after more objects than by default, in fewer passes over those that stay.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(*_OBJECTS_TO_COLLECT)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Import the test modules once, for all workers, and start the process that forks commands if they use it."""
    places = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    gc.disable()
    for path in sorted(
        {path for place in places for path in (place, *place.rglob("test_*.py")) if path.is_file()}
    ):
        with suppress(Exception, pytest.skip.Exception):  # the collection shows it
            import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))
    gc.enable()
    if commands := sys.modules.get("tests.support.commands"):
        commands.server()
    fork_workers(len(specs))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in virtual time, or with the function that its mark `run` names."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    mark = pyfuncitem.get_closest_marker("run")
    run = mark.kwargs["by"] if mark else virtual_time.run
    run(test(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}))
    return True


def pytest_collection_modifyitems(config: Any, items: list[pytest.Item]) -> None:
    """Order the tests for the workers of xdist."""
    if hasattr(config, "workerinput"):
        items[:] = long_first(items, lambda item: together(item.nodeid), config.workerinput["workercount"])


@pytest.hookimpl(specname="pytest_runtest_protocol")
def pytest_runtest_protocol_with_one_report(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Send one report of a test that passed: the others take as much time as all else that xdist does.

    pytest ignores a hook whose name begins with something else than `pytest_`.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Undo what a command that runs in this process has set: logs, garbage collection and frozen objects.

    caplog sees nothing with another level or with disabled logs.
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
        _FROZEN.restore()


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
