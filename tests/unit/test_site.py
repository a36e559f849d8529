"""The generated pages of the documentation site have what the code has; links lead to pages of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from docs.generate.reference import PAGES, metrics_in_code
from docs.generate.repository_pages import for_the_site, linked_pages, page_of
from scheduler.cli.command import COMMANDS
from scheduler.configuration import types
from scheduler.configuration.feature_gates import VERSIONS, stages_at
from scheduler.daemon.metrics import Metrics
from scheduler.daemon.metrics.stages import STAGES
from scheduler.framework import __all__ as contract
from tests.unit.test_documents import FIELDS

ROOT = Path(__file__).parents[2]
NAV = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]


def text_of(page: str) -> str:
    return PAGES[f"reference/{page}.md"]()


def test_the_page_of_metrics_has_every_metric_once():
    names = [metric.name for metric in metrics_in_code()]

    assert len(names) == len(set(names))
    assert set(STAGES) <= set(names)


def test_the_page_of_metrics_has_the_types_and_labels_of_the_code():
    families = {family.name: (family.kind, family.labels) for family in Metrics().families}
    listed = {metric.name: (metric.kind, metric.labels) for metric in metrics_in_code()}

    assert len(families) > 40
    assert {name: listed.get(name) for name in families} == families


def test_the_page_of_the_configuration_has_every_field():
    text = text_of("configuration")

    assert [field for field in FIELDS if f"| `{field}` |" not in text] == []


class Settings(types.ConfigurationStruct, frozen=True, kw_only=True):
    """Settings of two versions."""

    old: bool = False
    new: Annotated[int, msgspec.Meta(ge=1, extra={"since": "9.1.0"})] = 1


def test_the_page_of_the_configuration_has_the_first_version_of_each_field(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(types, "KubeSchedulerConfiguration", Settings)
    text = text_of("configuration")

    assert "| `old` | boolean | `false` | 0.2.0 | " in text
    assert "| `new` | integer from 1 | `1` | 9.1.0 | " in text


def test_the_page_of_the_command_line_has_every_command():
    headings = re.findall(r"^## (.*)$", text_of("command-line"), re.MULTILINE)

    assert [heading for heading in headings if " " not in heading] == list(COMMANDS)


def test_the_page_of_the_contract_has_every_name():
    members = re.findall(r"^        - (\w+)$", text_of("plugin-contract"), re.MULTILINE)

    assert sorted(members) == sorted(contract)


def test_the_page_of_gates_has_every_gate_of_every_version():
    listed = set(re.findall(r"^\| (\w+) \| [a-z ]*[,|]", text_of("feature-gates"), re.MULTILINE)) - {"gate"}

    assert listed == {gate for version in VERSIONS for gate in stages_at(version)}


@pytest.mark.parametrize(
    "kind", ["ElasticQuota", "NodeResourceTopology", "PodGroup", "Queue", "SchedulerProfile"]
)
def test_the_page_of_custom_resources_has_every_kind(kind: str):
    assert f"\n## {kind} of " in text_of("custom-resources")


def test_the_page_of_rights_has_the_roles_of_the_default_configuration():
    rules = (ROOT / "manifests" / "base" / "rbac.yaml").read_text().split("rules:\n")[1].split("\n---")[0]

    assert [line for line in rules.splitlines() if line.strip() not in text_of("rights")] == []


def test_every_page_is_in_the_navigation_once():
    pages = sorted(re.findall(r"- (\S+\.md)$", NAV, re.MULTILINE))
    documents = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}

    assert len(pages) == len(set(pages))
    assert documents | set(PAGES) <= set(pages)


def test_a_link_to_a_source_leads_to_a_copy_of_it_on_the_site():
    text = "[a](../plugins/registry.py) [b](../README.md#licence) [c](install.md) [d](#here) [e](https://example.com)"

    assert for_the_site(text, "docs/helm.md") == (
        "[a](source/plugins/registry.py.txt) [b](project/repository.md#licence) [c](install.md) [d](#here) "
        "[e](https://example.com)"
    )


def test_links_in_blocks_of_code_stay():
    text = "```python\nsome[0](../README.md)\n```\n[a](../README.md)\n"

    assert for_the_site(text, "docs/helm.md") == text.replace(
        "[a](../README.md)", "[a](project/repository.md)"
    )


def test_a_quoted_file_has_its_name_as_title():
    text = "<!-- manifests/examples/nginx.yaml -->\n```yaml\na: b\n```\n"

    assert for_the_site(text, "docs/helm.md") == '```yaml title="manifests/examples/nginx.yaml"\na: b\n```\n'


def test_linked_files_and_folders_have_pages():
    pages = dict(linked_pages(["docs/writing-plugins.md"]))

    assert (
        pages["source/scheduler/framework/interface.py.txt"]
        == (ROOT / "scheduler/framework/interface.py").read_text()
    )
    assert (
        "- [`gpu_packing.py`](gpu_packing.py.txt)"
        in dict(linked_pages(["README.md"]))["source/manifests/examples/plugins/index.md"]
    )
    assert page_of("CONTRIBUTING.md") in pages
