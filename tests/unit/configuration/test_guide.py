"""docs/configuration.md is correct: defaults, and settings that a running daemon reloads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugins.registry import IN_TREE
from scheduler.configuration.load import default, parse
from scheduler.configuration.types import (
    API_VERSION,
    KIND,
    ClientConnection,
    Extender,
    KubeSchedulerConfiguration,
    LeaderElection,
    Sharding,
)
from scheduler.configuration.write import to_yaml
from scheduler.daemon.app.generations import AT_START, TAKEN, WITHOUT_EFFECT

GUIDE = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
IN_FORCE: dict[str, Any] = yaml.safe_load(to_yaml(default()))
WITH_AN_EXTENDER = (
    f"apiVersion: {API_VERSION}\nkind: {KIND}\nextenders: [{{urlPrefix: 'http://x', filterVerb: f}}]\n"
)
EXTENDER: dict[str, Any] = yaml.safe_load(to_yaml(parse(WITH_AN_EXTENDER, "a test")))["extenders"][0] | {
    "filterVerb": ""
}
ROW = re.compile(r"^\| `?(?P<name>\w+)`? \| (?P<cell>[^|]*)\|", re.MULTILINE)
IN_WORDS = {"none", "one", ""}


def rows(heading: str) -> dict[str, str]:
    """Return the first column of a section's table -> the second."""
    section = GUIDE.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    return {
        row["name"]: row["cell"].strip()
        for row in ROW.finditer(section)
        if row["name"] not in {"field", "plugin"}
    }


SECTIONS = {
    "## Settings": IN_FORCE,
    "### leaderElection": IN_FORCE["leaderElection"],
    "### sharding": IN_FORCE["sharding"],
    "### clientConnection": IN_FORCE["clientConnection"],
    "## Extenders": EXTENDER,
}
STRUCTS = {
    "## Settings": KubeSchedulerConfiguration,
    "### leaderElection": LeaderElection,
    "### sharding": Sharding,
    "### clientConnection": ClientConnection,
    "## Extenders": Extender,
}


@pytest.mark.parametrize(
    ("heading", "field", "told"),
    [
        (heading, field, told)
        for heading in SECTIONS
        for field, told in rows(heading).items()
        if told not in IN_WORDS
    ],
)
def test_a_default_in_the_guide_is_the_active_one(heading: str, field: str, told: str):
    assert yaml.safe_load(told.strip("`")) == SECTIONS[heading][field]


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_guide_names_every_field_of_a_section_and_no_other(heading: str):
    assert rows(heading).keys() == set(STRUCTS[heading].__struct_encode_fields__)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [(TAKEN, "takes effect immediately"), (WITHOUT_EFFECT, "has no effect"), (AT_START, "needs a restart")],
)
def test_the_guide_states_how_a_reload_treats_a_new_value(fields: frozenset[str], expected: str):
    struct = KubeSchedulerConfiguration
    names = dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))

    found = {field for field, cell in rows("## Hot reload").items() if cell.startswith(expected)}

    assert found == {names[field] for field in fields}


@pytest.mark.parametrize(
    "plugin", [name for name, plugin in IN_TREE.items() if plugin.Args.__struct_fields__]
)
def test_every_argument_of_a_plugin_is_in_its_row(plugin: str):
    section = GUIDE.partition("## Arguments of plugins")[2]
    row = next(line for line in section.splitlines() if line.startswith(f"| {plugin} |"))

    assert [name for name in IN_TREE[plugin].Args.__struct_encode_fields__ if f"`{name}`" not in row] == []
