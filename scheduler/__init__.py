"""A scheduler for Kubernetes whose plugins are single Python files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework import Plugin


def main(plugins: Mapping[str, type[Plugin]] | None = None) -> None:
    """Run the command line of `custom-scheduler`, for custom builds with additional plugins.

        import scheduler
        from my_company.plugins import NodesWithALicence

        scheduler.main(plugins={"NodesWithALicence": NodesWithALicence})

    All commands know these plugins by name, like the in-tree ones.

    Args:
        plugins: name in a profile -> class.

    Raises:
        SystemExit: always; with status 2 if a plugin is invalid.
    """
    # An import of a part of the package needs neither the command line nor the plugins.
    import sys

    from scheduler.cli import main as run
    from scheduler.daemon.app.in_tree import add_plugins
    from scheduler.errors import PluginLoadError

    try:
        add_plugins(plugins or {})
    except PluginLoadError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    run()


__all__ = ["main"]
