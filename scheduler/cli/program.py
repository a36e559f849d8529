"""How this program is called, for commands that are printed, to be run as they are printed."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def program() -> str:
    """Return what runs this program in any folder and any terminal, for a shell.

    An environment may be on the path of one terminal and not of the next, so from there it is the whole path.
    """
    called = Path(sys.argv[0])
    if called.name == "__main__.py" or not called.is_file():
        return f"{python()} -m scheduler"
    if sys.prefix == sys.base_prefix and shutil.which(called.name) is not None:
        return called.name
    return shlex.quote(str(called.absolute()))


def python() -> str:
    """Return what runs the Python that this program runs in, for a shell."""
    return shlex.quote(sys.executable)
