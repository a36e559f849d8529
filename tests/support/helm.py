"""Helm's own engine behind the words of its command line that the documents show: `python -m tests.support.helm`.

It is a process of its own, as Helm would be: the engine brings Go's threads and signal handlers along.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import helm_python
import yaml

from tests.support.manifests import MANIFESTS, ROOT

CHART = MANIFESTS / "chart"
NAMES = ("custom-scheduler", "kube-system")
"""The release and the namespace with which the chart says what manifests/base does."""
_PATIENCE_SECONDS = 60


class HelmError(Exception):
    """What Helm said against it."""


def helm(*words: str, stdin: str = "") -> str:
    """Run a command; return what it printed.

    Raises:
        HelmError: it did not end well.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.helm", *words],
        cwd=ROOT, input=stdin, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


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
    found.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.support.helm "$@"\n')
    found.chmod(0o755)
    return found


def main() -> None:
    """Do what the command line says."""
    told = _arguments().parse_args()
    try:
        sys.stdout.write(f"{_COMMANDS[told.command](told)}\n")
    except helm_python.HelmError as error:
        sys.exit(f"Error: {error}")


def _arguments() -> argparse.ArgumentParser:
    commands = argparse.ArgumentParser(prog="helm")
    parsers = commands.add_subparsers(dest="command", required=True)
    for name in _COMMANDS:
        of_one = parsers.add_parser(name)
        if name != "lint":
            of_one.add_argument("release")
            of_one.add_argument("--namespace", "-n", default="default")
        if name == "rollback":
            of_one.add_argument("revision", nargs="?", type=int)
        if name in {"lint", "template", "install", "upgrade"}:
            of_one.add_argument("chart")
            of_one.add_argument("--values", "-f", action="append", default=[])
            of_one.add_argument("--set", action="append", default=[])
            of_one.add_argument("--set-file", action="append", default=[])
        if name == "template":
            of_one.add_argument("--show-only", "-s", default="")
        if name in {"install", "upgrade"}:
            of_one.add_argument("--wait", action="store_const", const="watcher")
    return commands


def _values(told: argparse.Namespace) -> dict[str, Any]:
    """Merge values in Helm's order."""
    files = [sys.stdin.read() if name == "-" else Path(name).read_text() for name in told.values]
    given = [helm_python.values_from_yaml(text) for text in files]
    given.append(helm_python.parse_set_string(",".join(told.set)))
    given.append(helm_python.parse_set_file(",".join(told.set_file)))
    merged: dict[str, Any] = {}
    for each in given:
        _merge(merged, each)
    return merged


def _merge(into: dict[str, Any], values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _config(told: argparse.Namespace) -> helm_python.Config:
    return helm_python.Config(kubeconfig_path=os.environ["KUBECONFIG"], namespace=told.namespace)


def _lint(told: argparse.Namespace) -> str:
    found = helm_python.lint(told.chart, _values(told), strict=True)
    said = "\n".join(f"[{each['severity']}] {each['path']}: {each['error']}" for each in found["messages"])
    return said if not found["errors"] else sys.exit(said)


def _template(told: argparse.Namespace) -> str:
    with helm_python.Chart.load(told.chart) as chart:
        values = _values(told)
        chart.validate_schema(values)
        made = chart.render(values, name=told.release, namespace=told.namespace)
        wanted = {path for path in made if path.endswith(told.show_only) and path.endswith(".yaml")}
    return "\n".join(f"---\n# Source: {path}\n{made[path]}" for path in sorted(wanted))


def _install(told: argparse.Namespace) -> str:
    with _config(told) as cluster:
        act = cluster.install if told.command == "install" else cluster.upgrade
        done = act(told.chart, told.release, _values(told), wait=told.wait, timeout=_PATIENCE_SECONDS)
    return f"STATUS: {done['status']}\nREVISION: {done['revision']}\nNOTES:\n{done['notes']}"


def _rollback(told: argparse.Namespace) -> str:
    with _config(told) as cluster:
        cluster.rollback(told.release, version=told.revision, timeout=_PATIENCE_SECONDS)
    return "Rollback was a success! Happy Helming!"


def _uninstall(told: argparse.Namespace) -> str:
    with _config(told) as cluster:
        cluster.uninstall(told.release, timeout=_PATIENCE_SECONDS)
    return f'release "{told.release}" uninstalled'


_COMMANDS = {
    "lint": _lint,
    "template": _template,
    "install": _install,
    "upgrade": _install,
    "rollback": _rollback,
    "uninstall": _uninstall,
}

if __name__ == "__main__":
    main()
