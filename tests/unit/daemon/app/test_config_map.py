"""A configuration from a ConfigMap, without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.daemon.app.config_map import ConfigMapKey, ConfigMapSource
from scheduler.daemon.config_watch.config_objects import ConfigMap
from scheduler.errors import ConfigurationError
from tests.support.full_disks import no_room

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def version(**data: str) -> ConfigMap:
    """A ConfigMap; in keys `_` stands for a dot."""
    return ConfigMap("ns", "cs", "u1", "7", {key.replace("_", "."): text for key, text in data.items()})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("ns/cs", ConfigMapKey("ns", "cs")), ("ns/cs:a.yaml", ConfigMapKey("ns", "cs", "a.yaml"))],
)
def test_a_source_is_a_namespace_a_name_and_an_optional_key(text: str, expected: ConfigMapKey) -> None:
    assert ConfigMapKey.parse(text) == expected


@pytest.mark.parametrize("text", ["", "cs", "/cs", "ns/", "ns/cs:", "ns/cs/more", "ns/cs:../x"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAMESPACE/NAME"):
        ConfigMapKey.parse(text)


def test_without_a_key_the_only_key_that_is_no_plugin_file_is_used(tmp_path: Path) -> None:
    source = ConfigMapSource(ConfigMapKey("ns", "cs"), tmp_path)

    configuration = source.first(version(config_yaml=TEXT, gpu_py="x = 1\n"))

    assert configuration.source == "ConfigMap ns/cs, config.yaml"
    assert (configuration.folder / "gpu.py").read_text() == "x = 1\n"


def test_plugin_files_of_a_previous_version_are_removed(tmp_path: Path) -> None:
    source = ConfigMapSource(ConfigMapKey("ns", "cs"), tmp_path)
    source.first(version(config_yaml=TEXT, old_py=""))

    offer = source.offer(version(config_yaml=TEXT, new_py=""))

    assert offer is not None
    offer.read()
    assert [path.name for path in tmp_path.iterdir()] == ["new.py"]


@pytest.mark.parametrize(
    ("key", "data", "expected"),
    [
        pytest.param("other", {"config_yaml": TEXT}, "has no key other; it has config.yaml", id="key missing"),
        pytest.param("", {"a": TEXT, "b": TEXT}, "one key is expected beside plugin files, it has a, b", id="two"),
        pytest.param("", {"gpu_py": ""}, "it has none; name it", id="only plugins"),
        pytest.param("a", {"a": "kind: ["}, "ConfigMap ns/cs, a: ", id="broken"),
    ],
)  # fmt: skip
def test_an_invalid_config_map_is_reported_when_it_is_read(
    tmp_path: Path, key: str, data: dict[str, str], expected: str
) -> None:
    offer = ConfigMapSource(ConfigMapKey("ns", "cs", key), tmp_path).offer(version(**data))

    assert offer is not None
    with pytest.raises(ConfigurationError) as error:
        offer.read()
    assert expected in str(error.value)


def test_only_changes_are_offered_and_a_deletion_is_an_error(tmp_path: Path) -> None:
    source = ConfigMapSource(ConfigMapKey("ns", "cs"), tmp_path)
    source.first(version(a=TEXT))

    assert source.offer(version(a=TEXT)) is None
    gone = source.offer(None)
    assert gone is not None
    with pytest.raises(ConfigurationError, match="ConfigMap ns/cs: is deleted"):
        gone.read()
    assert source.offer(None) is None
    again = source.offer(version(a=TEXT))
    assert again is not None
    assert again.about.resource_version == "7"


def test_a_full_temporary_file_system_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    source = ConfigMapSource(ConfigMapKey("ns", "cs"), tmp_path)
    with no_room(), pytest.raises(ConfigurationError) as refused:
        source.first(version(config_yaml=TEXT, gpu_py="x = 1\n"))

    assert f"its plugin files cannot be written into {tmp_path}: File too large" in str(refused.value)
    assert source.first(version(config_yaml=TEXT, gpu_py="x = 1\n")).source == "ConfigMap ns/cs, config.yaml"
