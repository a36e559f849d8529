"""Helm's own engine behind the words of its command line that the documents show: `python -m tests.support.helm_engine`.

It runs in another process, as Helm does: the engine brings Go's threads and signal handlers along.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, TextIO

import helm_python

_PATIENCE_SECONDS = 60


def main() -> None:
    """Run the command of the command line, or serve other processes."""
    if sys.argv[1:] == ["serve"]:
        for line in sys.stdin:
            words, stdin = json.loads(line)
            sys.stdout.write(f"{json.dumps(_result(words, stdin))}\n")
            sys.stdout.flush()
        return
    try:
        sys.stdout.write(_run(sys.argv[1:], sys.stdin))
    except helm_python.HelmError as error:
        sys.exit(f"Error: {error}")


def _result(words: list[str], stdin: str) -> tuple[str, str | None]:
    """Return what a command prints, and its error or None."""
    with redirect_stderr(io.StringIO()) as errors:
        try:
            return _run(words, io.StringIO(stdin)), None
        except helm_python.HelmError as error:
            return "", f"Error: {error}\n"
        except SystemExit as end:
            return "", f"{errors.getvalue()}{end}\n"


def _run(words: list[str], stdin: TextIO) -> str:
    arguments = _arguments().parse_args(words)
    arguments.stdin = stdin
    return f"{_COMMANDS[arguments.command](arguments)}\n"


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


def _values(arguments: argparse.Namespace) -> dict[str, Any]:
    """Merge values in Helm's order."""
    files = [arguments.stdin.read() if name == "-" else Path(name).read_text() for name in arguments.values]
    given = [helm_python.values_from_yaml(text) for text in files]
    given.append(helm_python.parse_set_string(",".join(arguments.set)))
    given.append(helm_python.parse_set_file(",".join(arguments.set_file)))
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


def _config(arguments: argparse.Namespace) -> helm_python.Config:
    return helm_python.Config(kubeconfig_path=os.environ["KUBECONFIG"], namespace=arguments.namespace)


def _lint(arguments: argparse.Namespace) -> str:
    found = helm_python.lint(arguments.chart, _values(arguments), strict=True)
    said = "\n".join(f"[{each['severity']}] {each['path']}: {each['error']}" for each in found["messages"])
    return said if not found["errors"] else sys.exit(said)


def _template(arguments: argparse.Namespace) -> str:
    with helm_python.Chart.load(arguments.chart) as chart:
        values = _values(arguments)
        chart.validate_schema(values)
        made = chart.render(values, name=arguments.release, namespace=arguments.namespace)
        wanted = {path for path in made if path.endswith(arguments.show_only) and path.endswith(".yaml")}
    return "\n".join(f"---\n# Source: {path}\n{made[path]}" for path in sorted(wanted))


def _install(arguments: argparse.Namespace) -> str:
    with _config(arguments) as cluster:
        act = cluster.install if arguments.command == "install" else cluster.upgrade
        done = act(
            arguments.chart,
            arguments.release,
            _values(arguments),
            wait=arguments.wait,
            timeout=_PATIENCE_SECONDS,
        )
    return f"STATUS: {done['status']}\nREVISION: {done['revision']}\nNOTES:\n{done['notes']}"


def _rollback(arguments: argparse.Namespace) -> str:
    with _config(arguments) as cluster:
        cluster.rollback(arguments.release, version=arguments.revision, timeout=_PATIENCE_SECONDS)
    return "Rollback was a success! Happy Helming!"


def _uninstall(arguments: argparse.Namespace) -> str:
    with _config(arguments) as cluster:
        cluster.uninstall(arguments.release, timeout=_PATIENCE_SECONDS)
    return f'release "{arguments.release}" uninstalled'


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
