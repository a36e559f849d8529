"""Files of objects, as all commands read them: lists and several documents are opened, and errors name their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.manifests import read_manifests
from scheduler.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

LIST = "{kind: PodList, apiVersion: v1, items: [{metadata: {name: a}}, {metadata: {generateName: b-}}]}"


def test_items_of_a_list_have_its_kind_and_documents_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(
        f"{LIST}\n---\n\n---\n{{apiVersion: v1, kind: Node, metadata: {{name: n}}}}\n"
    )
    found = read_manifests(tmp_path / "f")
    assert [(each["kind"], each["apiVersion"]) for each in found] == [("Pod", "v1")] * 2 + [("Node", "v1")]


def test_all_errors_of_a_file_name_their_document_and_field(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("kind: Pod\nmetadata: {name: a}\n---\n7\n---\n{apiVersion: v1, kind: Pod}\n")
    with pytest.raises(ConfigurationError) as caught:
        read_manifests(tmp_path / "f")
    assert sorted(map(str, caught.value.errors)) == [
        "document 1, apiVersion: is missing",
        "document 2: must be an API object, was 7",
        "document 3, metadata.name: is missing",
    ]


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file or directory"):
        read_manifests(tmp_path / "gone")
