"""The documents show the files and links of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plugins.registry import IN_TREE
from scheduler.configuration import types
from scheduler.configuration.types import ConfigurationStruct
from tests.support.commands import run_command

ROOT = Path(__file__).parents[2]
QUOTED = re.compile(r"<!-- (?P<path>\S+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def quotations() -> list[tuple[str, str, str]]:
    return [
        (document.name, match["path"], match["text"])
        for document in DOCUMENTS
        for match in QUOTED.finditer(document.read_text())
    ]


def test_the_readme_shows_files() -> None:
    assert len(quotations()) >= 2


@pytest.mark.parametrize(("document", "path", "text"), quotations(), ids=lambda value: str(value)[:40])
def test_a_file_shown_in_a_document_is_that_file(document: str, path: str, text: str) -> None:
    assert text == (ROOT / path).read_text(), f"{document} shows another {path}"


def test_every_link_into_the_repository_has_a_target() -> None:
    links = [
        (str(document.relative_to(ROOT)), link)
        for document in DOCUMENTS
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)\)", document.read_text())
    ]

    assert links
    assert not [
        (document, link) for document, link in links if not ((ROOT / document).parent / link).exists()
    ]


def anchors(document: Path) -> set[str]:
    """Return the fragments of a document that a link may name: of its headings, as GitHub makes them, and of `<a id>`."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


def test_every_link_to_a_section_has_a_target() -> None:
    links = [
        (document, (document.parent / path).resolve() if path else document, anchor)
        for document in DOCUMENTS
        for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", document.read_text())
    ]

    assert links
    assert not [
        (document.name, target.name, anchor)
        for document, target, anchor in links
        if anchor not in anchors(target)
    ]


@pytest.mark.parametrize("guide", ["CONTRIBUTING.md", "AGENTS.md"])
def test_every_target_and_path_in_a_guide_for_developers_exists(guide: str) -> None:
    text = (ROOT / guide).read_text()
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    paths = set(re.findall(r"`((?:scheduler|plugins|config|manifests|docs|tests)/[\w/.-]*)`", text))

    assert len(targets) > 5
    assert targets <= set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert len(paths) > 10
    assert not [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize(
    "command",
    [
        "",
        "run",
        "check",
        "demo",
        "api-server",
        "kubelets",
        "explain",
        "extender",
        "new",
        "new plugin",
        "completion",
    ],
)
def test_every_command_prints_its_help(command: str) -> None:
    shown = run_command(*command.split(), "--help")

    assert "Usage:" in shown.stdout.decode()


CONFIGURED = [
    *(
        kind
        for kind in vars(types).values()
        if isinstance(kind, type) and issubclass(kind, ConfigurationStruct)
    ),
    *(plugin.Args for plugin in IN_TREE.values()),
]
FIELDS = sorted({field for kind in CONFIGURED for field in kind.__struct_encode_fields__})


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_of_a_configuration_is_documented(field: str) -> None:
    assert f"`{field}`" in (ROOT / "docs" / "configuration.md").read_text()
