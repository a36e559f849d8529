"""Plugins that a custom command adds."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from scheduler.daemon.app.in_tree import IN_TREE, add_plugins
from scheduler.errors import PluginLoadError
from scheduler.framework import FilterPlugin, Plugin


class Mine(FilterPlugin):
    name = "Mine"
    api_version = 1

    def filter_node(self, state: Any, pod: Any, node: Any) -> None:
        return None


class NodeName(Mine):
    name = "NodeName"
    api_version = 1


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        pytest.param({"NodeName": NodeName}, "there is a plugin of that name, plugins.node_name", id="taken"),
        pytest.param({"Yours": Mine}, "Mine.name is 'Mine'; give it under that name", id="another name"),
        pytest.param({"Mine": object}, "is not a subclass of scheduler.framework.Plugin", id="no plugin"),
    ],
)
def test_no_plugin_is_added_if_one_is_invalid(plugins: dict[str, type[Plugin]], expected: str):
    before = dict(IN_TREE)

    with pytest.raises(PluginLoadError, match=expected):
        add_plugins({**plugins})

    assert dict(IN_TREE) == before


def test_a_command_with_an_invalid_plugin_reports_it_and_ends_with_status_2():
    program = "import scheduler; scheduler.main(plugins={'Mine': object})"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: plugin main(plugins={'Mine': ...}): <class 'object'> is not a subclass"
    )
