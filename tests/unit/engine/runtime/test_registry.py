"""Sources of plugins, and the errors of plugins that cannot be loaded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.node_name import NodeName
from scheduler.engine.runtime.registry import ENTRY_POINT_GROUP, Registry
from scheduler.errors import PluginLoadError
from tests.support.scripted_plugins import Filter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLUGIN = """
from scheduler.framework import FilterPlugin

LICENCES = []


class Licences(FilterPlugin):
    name = "Licences"
    api_version = 1

    def filter_node(self, state, pod, node):
        return None
"""
SECOND = """

class Racks(Licences):
    name = "Racks"
    api_version = 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose modules are removed after the test."""
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(registry: Registry, reference: str, folder: Path | None = None) -> str:
    with pytest.raises(PluginLoadError) as refused:
        registry.find(reference, folder)
    return str(refused.value)


def modules_of(folder: Path) -> list[str]:
    return [
        name
        for name, module in sys.modules.items()
        if (getattr(module, "__file__", None) or "").startswith(str(folder))
    ]


def test_an_in_tree_plugin_is_found_by_its_name():
    assert Registry({"Filter": Filter}).find("Filter") is Filter


@pytest.mark.parametrize("reference", ["licences.py", "licences.py:Licences", "licences.py:"])
def test_a_file_is_found_relative_to_the_folder_of_the_configuration(folder: Path, reference: str):
    (folder / "licences.py").write_text(PLUGIN)

    assert Registry({}).find(reference, folder).name == "Licences"


def test_a_file_is_found_by_its_absolute_path(folder: Path):
    (folder / "licences.py").write_text(PLUGIN)

    assert Registry({}).find(f"{folder}/licences.py").name == "Licences"


def test_the_same_reference_gives_the_same_class(folder: Path):
    (folder / "licences.py").write_text(PLUGIN)
    registry = Registry({})

    assert registry.find("licences.py", folder) is registry.find("licences.py", folder)


def test_two_plugins_of_one_file_are_distinguished_by_name_and_share_its_module(folder: Path):
    (folder / "both.py").write_text(PLUGIN + SECOND)
    registry = Registry({})

    licences = registry.find("both.py:Licences", folder)
    racks = registry.find("both.py:Racks", folder)

    assert (licences.name, racks.name) == ("Licences", "Racks")
    assert issubclass(racks, licences)
    assert "expected one plugin class in the file, found Licences, Racks; name it as FILE:CLASS" in refusal(
        registry, "both.py", folder
    )
    assert len(modules_of(folder)) == 1


def test_two_files_of_one_name_are_independent(folder: Path):
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "gpu.py").write_text(PLUGIN.replace("Licences", f"Gpu{name.upper()}"))
    registry = Registry({})

    assert registry.find("a/gpu.py", folder).name == "GpuA"
    assert registry.find("b/gpu.py", folder).name == "GpuB"
    assert registry.find("gpu.py", folder / "a").name == "GpuA"
    assert len(modules_of(folder)) == 2


def test_an_imported_plugin_class_does_not_belong_to_the_file(folder: Path):
    (folder / "licences.py").write_text(
        PLUGIN + "\nfrom tests.support.scripted_plugins import Filter\nAlias = Licences\n"
    )

    assert Registry({}).find("licences.py", folder).name == "Licences"


def test_a_later_registry_reads_a_file_again_even_with_the_same_size_and_time(folder: Path):
    file = folder / "licences.py"
    file.write_text(PLUGIN)
    first = Registry({}).find("licences.py", folder)
    file.write_text(PLUGIN.replace('"Licences"', '"Licensed"'))

    assert Registry({}).find("licences.py", folder).name == "Licensed"
    assert first.name == "Licences"
    assert not (folder / "__pycache__").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("x = 1\ndef f(:\n", "cannot be imported: SyntaxError: invalid syntax (broken.py, line 2)", id="syntax"),
        pytest.param("x = 1\n\nraise RuntimeError('no')\n", "cannot be imported: RuntimeError: no (line 3)", id="raises"),
        pytest.param("def f():\n    return 1 / 0\n\n\nf()\n", "ZeroDivisionError: division by zero (line 2)", id="raises below"),
        pytest.param("import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all' (line 1)", id="imports nothing"),
        pytest.param("import sys\nsys.exit(3)\n", "cannot be imported: SystemExit: 3 (line 2)", id="exits"),
        pytest.param("x = 1\n", "expected one plugin class in the file, found none", id="no plugin"),
        pytest.param(PLUGIN.replace("filter_node", "filtre_node"), "a FilterPlugin overrides filter or filter_node", id="not whole"),
        pytest.param(b"\xff\xfe", "cannot be imported: SyntaxError", id="no text"),
    ],
)  # fmt: skip
def test_a_refused_file_is_reported_and_leaves_nothing_behind(folder: Path, text: str | bytes, expected: str):
    (folder / "broken.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    registry = Registry({})

    assert expected in refusal(registry, "broken.py", folder)
    assert modules_of(folder) == []


def test_a_repaired_file_is_accepted(folder: Path):
    (folder / "licences.py").write_text("raise RuntimeError")
    refused = Registry({})
    first = refusal(refused, "licences.py", folder)
    (folder / "licences.py").write_text(PLUGIN)

    assert refusal(refused, "licences.py", folder) == first  # loading may take long, so it is not tried twice
    assert Registry({}).find("licences.py", folder).name == "Licences"


def test_a_refused_class_does_not_affect_the_other_plugins_of_its_file(folder: Path):
    (folder / "licences.py").write_text(PLUGIN)
    registry = Registry({})
    licences = registry.find("licences.py", folder)

    assert "has no Racks; its plugins are: Licences" in refusal(registry, "licences.py:Racks", folder)
    assert modules_of(folder) == [licences.__module__]


def test_a_reload_that_is_refused_leaves_the_version_in_use(folder: Path):
    (folder / "licences.py").write_text(PLUGIN)
    used = Registry({}).find("licences.py", folder)
    (folder / "licences.py").write_text("raise RuntimeError")

    refusal(Registry({}), "licences.py", folder)

    assert sys.modules[used.__module__].Licences is used


@pytest.mark.parametrize("reference", ["nowhere.py", "nowhere.py:Licences", "/no/such/nowhere.py"])
def test_a_missing_file_is_named_with_its_full_path(folder: Path, reference: str):
    reported = refusal(Registry({}), reference, folder)

    assert f"plugin {reference}: no such file: " in reported
    assert "/nowhere.py" in reported


def test_a_broken_path_is_named(folder: Path):
    (folder / "loop.py").symlink_to(folder / "loop.py")

    assert f"plugin loop.py: no such file: {folder}/loop.py" in refusal(Registry({}), "loop.py", folder)
    assert "no such file: " in refusal(Registry({}), "a\0b.py", folder)


def test_a_folder_is_no_file(folder: Path):
    (folder / "folder.py").mkdir()

    assert "is a directory, a regular file is expected" in refusal(Registry({}), "folder.py", folder)


def test_a_class_of_an_importable_module_is_found():
    assert Registry({}).find("plugins.node_name:NodeName") is NodeName


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        pytest.param("nowhere_at_all:Filter", "cannot be imported: ModuleNotFoundError", id="no module"),
        pytest.param("tests.support.scripted_plugins:Filters", "tests.support.scripted_plugins has no Filters; its plugins are: Gate,", id="no class"),
        pytest.param("tests.support.scripted_plugins:framework_of", "is not a subclass of scheduler.framework.Plugin", id="no plugin"),
    ],
)  # fmt: skip
def test_an_invalid_class_is_reported_with_the_reason(reference: str, expected: str):
    assert expected in refusal(Registry({}), reference)


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with an entry point, as pip installs it."""
    (folder / "licence_package.py").write_text(PLUGIN)
    install(folder, "licence-package", "Licences = licence_package:Licences")
    monkeypatch.syspath_prepend(folder)
    return folder


def install(folder: Path, distribution: str, *entry_points: str) -> None:
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINT_GROUP}]", *entry_points, ""]))


@pytest.mark.usefixtures("installed")
def test_an_installed_plugin_is_found_by_the_name_of_its_entry_point():
    registry = Registry({"Filter": Filter})

    assert registry.find("Licences").name == "Licences"
    assert [registry.knows(name) for name in ("Filter", "Licences", "Licence")] == [True, True, False]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("raise SystemExit(0)", "cannot be imported: SystemExit: 0"),
        ("import asyncio; raise asyncio.CancelledError", "cannot be imported: CancelledError"),
    ],
)
def test_an_importable_module_that_exits_the_process_is_refused(installed: Path, line: str, expected: str):
    (installed / "leaving_package.py").write_text(f"{line}\n")
    install(installed, "leaving", "Leaving = leaving_package:Leaving")

    assert expected in refusal(Registry({}), "leaving_package:Leaving")
    assert expected in refusal(Registry({}), "Leaving")


@pytest.mark.usefixtures("installed")
def test_an_in_tree_plugin_comes_before_an_installed_one():
    assert Registry({"Licences": Filter}).find("Licences") is Filter


def test_an_entry_point_that_cannot_be_loaded_is_reported_with_its_target(installed: Path):
    install(installed, "other", "Other = licence_package:Other", "Not = licence_package:LICENCES")

    assert "plugin Other (licence_package:Other): cannot be imported: AttributeError" in refusal(
        Registry({}), "Other"
    )
    assert "plugin Not (licence_package:LICENCES): [] is not a subclass" in refusal(Registry({}), "Not")


def test_a_name_from_two_packages_is_refused(installed: Path):
    install(installed, "other", "Licences = other:Licences")

    reported = refusal(Registry({}), "Licences")

    assert (
        "several installed packages offer it: licence_package:Licences of licence-package, other:Licenc"
        in reported
    )


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("NodeResourcesFitt", "no plugin of that name, in-tree or installed; did you mean 'NodeResourcesFit'?", id="in-tree"),
        pytest.param("Licence", "did you mean 'Licences'?", id="installed"),
        pytest.param("Zebra", "plugin Zebra: no plugin of that name, in-tree or installed", id="nothing like it"),
    ],
)  # fmt: skip
def test_an_unknown_name_is_reported_with_the_nearest(name: str, expected: str):
    assert refusal(Registry({"NodeResourcesFit": Filter}), name).endswith(expected)


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_a_plugin_file_or_are_refused(folder: Path, content: bytes):
    (folder / "any.py").write_bytes(b"raise ValueError\n" + content)

    assert "cannot be imported" in refusal(Registry({}), "any.py", folder)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("(" * 10_000, id="open brackets"),
        pytest.param("x = " + "-" * 100_000 + "1", id="signs"),
        pytest.param("x = " + "+".join(["1"] * 50_000), id="a long sum"),
        pytest.param("x = " + ".a" * 50_000, id="attributes"),
        pytest.param("raise BaseException", id="no Exception"),
        pytest.param("raise GeneratorExit", id="an end of a generator"),
        pytest.param("def f(): f()\nf()", id="recursion without end"),
        pytest.param(
            "import sys\nsys.modules.pop(__name__)\nraise OSError", id="a module that takes itself away"
        ),
    ],
)
def test_a_file_that_python_cannot_read_or_run_is_refused(folder: Path, text: str):
    (folder / "broken.py").write_text(text)

    assert "cannot be imported" in refusal(Registry({}), "broken.py", folder)
    assert modules_of(folder) == []
