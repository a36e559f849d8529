"""Runs commands of Helm in a process of its engine, which `helm` starts once, for all its calls."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.manifests import MANIFESTS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

CHART = MANIFESTS / "chart"
NAMES = ("custom-scheduler", "kube-system")
"""The release and the namespace with which the chart says what manifests/base does."""


class HelmError(Exception):
    """What Helm said against it."""


def helm(*words: str, stdin: str = "") -> str:
    """Run a command; return what it printed.

    Raises:
        HelmError: it did not end well.
    """
    engine = _engine()
    assert engine.stdin is not None
    assert engine.stdout is not None
    engine.stdin.write(f"{json.dumps([words, stdin])}\n")
    engine.stdin.flush()
    printed, error = json.loads(engine.stdout.readline())
    if error is not None:
        raise HelmError(error)
    return str(printed)


@cache
def _engine() -> subprocess.Popen[str]:
    """Start a process that answers a JSON line with a JSON line: what was printed, and the error or null."""
    engine = subprocess.Popen(
        [sys.executable, "-m", "tests.support.helm_engine", "serve"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(engine.communicate)  # ends it: its input is closed
    return engine


def templated(
    values: dict[str, Any] | None = None, *, release: str = NAMES[0], namespace: str = NAMES[1]
) -> list[dict[str, Any]]:
    """Return the objects of the chart.

    Raises:
        HelmError: the values are refused.
    """
    asked = ("template", release, str(CHART), "--namespace", namespace, "--values", "-")
    return [obj for obj in yaml.safe_load_all(helm(*asked, stdin=json.dumps(values or {}))) if obj]


def program(folder: Path) -> Path:
    """Write an executable `helm` for a shell; return it."""
    found = folder / "helm"
    found.write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.support.helm_engine "$@"\n'
    )
    found.chmod(0o755)
    return found
