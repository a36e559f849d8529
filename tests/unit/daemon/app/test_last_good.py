"""The last good configuration is restored unchanged with its files, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.load import load
from scheduler.daemon.app.last_good import LastGood
from scheduler.errors import ConfigurationError
from tests.support.full_disks import no_room

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.configuration.load import Configuration

TEXT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podMaxBackoffSeconds: 20
profiles:
- schedulerName: mine
  plugins: {filter: {enabled: [{name: gpu.py}, {name: sub/licences.py:Licences}]}}
"""


def given(folder: Path) -> Configuration:
    (folder / "sub").mkdir(parents=True)
    (folder / "gpu.py").write_text("GPU = 1\n")
    (folder / "sub" / "licences.py").write_text("LICENCES = 1\n")
    (folder / "config.yaml").write_text(TEXT)
    return load(folder / "config.yaml")


def test_a_configuration_is_restored_with_its_deleted_files(tmp_path: Path) -> None:
    configuration = given(tmp_path / "mounted")
    LastGood(tmp_path / "kept.json", "here").keep(configuration, b"digest")

    found = LastGood(tmp_path / "kept.json", "here").read()

    assert found is not None
    again, digest = found
    assert (again, digest) == (configuration, b"digest")
    assert again.folder != configuration.folder
    assert (again.folder / "sub" / "licences.py").read_text() == "LICENCES = 1\n"


def test_nothing_is_restored_at_first_or_from_another_source(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    assert LastGood(kept, "here").read() is None

    LastGood(kept, "there").keep(given(tmp_path / "mounted"), b"digest")
    assert LastGood(kept, "here").read() is None


@pytest.mark.parametrize("content", [b"", b"{}", b'{"source": 1}', b"\xff", b'{"source": "\xff"}'])
def test_a_truncated_file_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kept.json").write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"kept\.json: cannot be read"):
        LastGood(tmp_path / "kept.json", "here").read()


def test_an_unwritable_folder_prevents_only_the_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    LastGood(tmp_path / "nowhere" / "kept.json", "here").keep(given(tmp_path / "mounted"), b"")

    assert [record.message for record in caplog.records] == [
        "Active configuration cannot be kept for a restart"
    ]


def test_a_full_file_system_keeps_the_previous_copy_and_nothing_of_the_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = LastGood(tmp_path / "kept.json", "here")
    configuration = given(tmp_path / "mounted")
    kept.keep(configuration, b"before")
    with no_room():
        kept.keep(configuration, b"now")

    found = kept.read()
    assert found is not None
    assert found[1] == b"before"
    assert [path.name for path in tmp_path.glob("kept.json*")].count("kept.json.new") == 0
    (record,) = caplog.records
    assert "File too large" in vars(record)["error"]


def test_files_that_cannot_be_restored_are_reported(tmp_path: Path) -> None:
    kept = LastGood(tmp_path / "kept.json", "here")
    kept.keep(given(tmp_path / "mounted"), b"digest")
    (tmp_path / "kept.json.files").write_text("in the way")

    with pytest.raises(ConfigurationError, match=r"kept\.json\.files: its files cannot be put there: "):
        kept.read()
