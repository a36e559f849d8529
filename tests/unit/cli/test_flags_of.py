"""Which flags /flagz shows of a daemon, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scheduler.cli import run as run_module

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def shown(monkeypatch: pytest.MonkeyPatch, *flags: str) -> Mapping[str, str]:
    """Begin `run` up to where the daemon would begin."""
    begun: list[Any] = []

    async def begin(*_: object, serving: Any, **__: object) -> None:
        begun.append(serving.flags)

    monkeypatch.setattr(run_module, "_run", begin)
    monkeypatch.setattr(run_module, "configure_logging", lambda *_, **__: None)
    result = CliRunner().invoke(run_module.run, list(flags))
    assert result.exit_code == 0, result.output
    (found,) = begun
    assert isinstance(found, dict)
    return found


def test_every_flag_is_shown_by_its_long_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {max(parameter.opts, key=len).removeprefix("--") for parameter in run_module.run.params}

    assert shown(monkeypatch).keys() == names
    assert {"v", "config", "leader-elect", "leader-elect-lease-duration", "secure-port"} <= names


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        pytest.param([], "secure-port", "10259", id="a default"),
        pytest.param([], "config", "", id="nothing"),
        pytest.param(["-v", "2"], "v", "2", id="a short name"),
        pytest.param(["--secure-port", "0"], "secure-port", "0", id="a number"),
        pytest.param([], "leader-elect", "", id="the default of the configuration"),
        pytest.param(["--leader-elect=false"], "leader-elect", "false", id="a flag with a value"),
        pytest.param(["--no-leader-elect"], "leader-elect", "false", id="a flag that is switched off"),
        pytest.param(["--no-bind"], "no-bind", "true", id="a flag"),
        pytest.param(
            ["--leader-elect-lease-duration", "90s"], "leader-elect-lease-duration", "1m30s", id="a time"
        ),
        pytest.param(["--logging-format", "json"], "logging-format", "json", id="one of several"),
        pytest.param(["--config-map", "a/b"], "config-map", "a/b", id="a name"),
        pytest.param(["--config-map", "a/b:c.yaml"], "config-map", "a/b:c.yaml", id="a name with a key"),
    ],
)
def test_values_are_written_as_they_are_given(
    flags: list[str], name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(monkeypatch, *flags)[name] == value


def test_a_file_is_its_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"

    assert shown(monkeypatch, "--kubeconfig", str(path))["kubeconfig"] == str(path)
