"""The glossary names existing terms, once each, in alphabetical order."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

GLOSSARY = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()
TERMS = re.findall(r"^- \*\*(.+?)\*\*: ", GLOSSARY, re.MULTILINE)
NAMES = sorted(set(re.findall(r"`((?:scheduler|plugins)\.[\w.]+)`", GLOSSARY)))


def named(path: str) -> object:
    """Return the module, or what a module defines, that a dotted path leads to."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)


def test_the_glossary_has_at_most_forty_terms_in_alphabetical_order() -> None:
    assert 0 < len(TERMS) <= 40
    assert sorted(TERMS, key=str.lower) == TERMS
    assert len({term.lower() for term in TERMS}) == len(TERMS)


@pytest.mark.parametrize("path", NAMES)
def test_a_name_of_the_glossary_exists(path: str) -> None:
    assert named(path) is not None
