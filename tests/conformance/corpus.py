"""The stored cases, and the verdicts of our scheduler on them."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from scheduler.configuration.load import default, parse
from scheduler.tools.whatif import cluster_file
from scheduler.tools.whatif.evaluation import evaluate_each, evaluate_in_sequence, pods_to_evaluate
from scheduler.tools.whatif.offline import OfflineScheduler

CASES = Path(__file__).parent / "cases"
_UPSTREAM_NAME = "default-scheduler"


@dataclass(frozen=True)
class Case:
    """One cluster and what is expected; see cases/README.md. The family is the folder's."""

    name: str
    family: str
    config: str | None
    cluster: dict[str, Any]
    mode: str
    expected: list[dict[str, Any]]


def paths() -> list[Path]:
    """Every case's file, by family and name."""
    return sorted(CASES.glob("*/*.json.gz"))


def load(path: Path) -> Case:
    stored = msgspec.json.decode(gzip.decompress(path.read_bytes()))
    return Case(
        name=stored["name"],
        family=path.parent.name,
        config=stored["config"],
        cluster=stored["cluster"],
        mode=stored["mode"],
        expected=stored["expected"],
    )


def explain(case: Case) -> list[dict[str, Any]]:
    """Judge the case's pods as `custom-scheduler explain` does."""
    cluster = cluster_file.parse(msgspec.json.encode(case.cluster), case.name)
    configuration = default(_UPSTREAM_NAME) if case.config is None else parse(case.config, case.name)
    scheduler = OfflineScheduler(cluster, configuration)
    judge = evaluate_in_sequence if case.mode == "sequence" else evaluate_each
    judged = judge(scheduler, pods_to_evaluate(scheduler, cluster.pods), seconds=0)
    return [each.explanation for each in judged]
