"""Parses metrics from their text; bounds stay strings, exactly as written."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

_SERIES = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(slots=True)
class Family:
    """All series of one name.

    Attributes:
        kind: type in the TYPE line.
        labels: names of the labels, without `le`.
        bounds: values of `le`, in the order of their first occurrence.
        values: label -> its values.
        series: name and labels, sorted by label name -> number.
    """

    kind: str
    labels: set[str] = field(default_factory=set)
    bounds: list[str] = field(default_factory=list)
    values: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    series: dict[str, float] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[str, frozenset[str], tuple[str, ...]]:
        """The parts of the metric that queries depend on."""
        return self.kind, frozenset(self.labels), tuple(self.bounds)


def families(text: str) -> dict[str, Family]:
    """Parse metrics: name -> family.

    Raises:
        AssertionError: a line belongs to no declared family.
    """
    shown: dict[str, Family] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in shown, f"{name} comes twice"
            shown[name] = Family(kind)
        if not line or line.startswith("#"):
            continue
        match = _SERIES.fullmatch(line)
        assert match is not None, line
        assert match["name"].startswith(name), line
        family = shown[name]
        labels = sorted(_LABEL.findall(match["labels"] or ""))
        pairs = ",".join(f'{label}="{value}"' for label, value in labels)
        series = f"{match['name']}{{{pairs}}}" if pairs else match["name"]
        assert series not in family.series, f"{series} comes twice"
        family.series[series] = float(match["value"])
        for label, value in labels:
            if label != "le":
                family.labels.add(label)
                family.values[label].add(value)
            elif value not in family.bounds:
                family.bounds.append(value)
    return shown
