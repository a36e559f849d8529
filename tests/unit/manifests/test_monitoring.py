"""Alerts fire when they should, and alerts and board speak of metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from scheduler.daemon.metrics import Metrics
from tests.support.binaries import needed_binary
from tests.support.manifests import MANIFESTS, ROOT, one, rendered

if TYPE_CHECKING:
    from pathlib import Path

MONITORING = MANIFESTS / "monitoring"
METRIC = re.compile(
    r"\b((?:custom_)?scheduler_\w+|rest_client_\w+|workqueue_\w+|process_\w+|leader_election_\w+)"
)
OF_CODE = (
    "scheduler/daemon/app/daemon.py",
    "scheduler/daemon/app/gauges.py",
    "plugins/quotas/elastic_quotas.py",
    "plugins/quotas/queue_statuses.py",
    "plugins/volume_binding/plugin.py",
    "plugins/dynamic_resources/claim_writes.py",
)
OF_THE_DAEMON = re.compile(r'"((?:(?:custom_)?scheduler|leader_election)_\w+)"')
GROUPS = one(rendered(MONITORING), "PrometheusRule")["spec"] if (MONITORING / "alerts.yaml").exists() else {}
ALERTS = {rule["alert"]: rule for group in GROUPS["groups"] for rule in group["rules"]}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(GROUPS))
    (tmp_path / "alerts_test.yaml").write_text((MONITORING / "alerts_test.yaml").read_text())
    return tmp_path


@pytest.mark.parametrize("words", [("check", "rules", "rules.yaml"), ("test", "rules", "alerts_test.yaml")])
def test_promtool_finds_no_errors(rules: Path, words: tuple[str, ...]):
    promtool = needed_binary("promtool", "Prometheus")

    said = subprocess.run([promtool, *words], cwd=rules, capture_output=True, text=True, check=False)

    assert said.returncode == 0, said.stdout + said.stderr


def test_every_alert_is_tested_firing_and_silent():
    tests = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
    seen = {
        (case["alertname"], bool(case.get("exp_alerts")))
        for test in tests
        for case in test["alert_rule_test"]
    }

    assert seen == {(alert, fires) for alert in ALERTS for fires in (True, False)}


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_its_section(alert: str):
    assert f"### {alert}\n" in (ROOT / "docs" / "operating.md").read_text()


def known() -> set[str]:
    metrics = Metrics()
    histogram = {"_bucket", "_sum", "_count"}
    names = {
        family.name + suffix
        for family in metrics.families
        for suffix in (histogram if family.kind == "histogram" else {""})
    }
    process = re.findall(r"^# TYPE (\w+)", metrics.text()[0].decode(), re.MULTILINE)
    shown = [name for file in OF_CODE for name in OF_THE_DAEMON.findall((ROOT / file).read_text())]
    return names | {*process} | {*shown}


def expressions() -> list[str]:
    board = json.loads((MONITORING / "board.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [*shown, *(str(rule["expr"]) for rule in ALERTS.values())]


@pytest.mark.parametrize("expression", expressions())
def test_every_queried_metric_exists(expression: str):
    named = set(METRIC.findall(expression))

    assert named <= known()
