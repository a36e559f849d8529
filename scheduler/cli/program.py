"""The command line of this program, for commands that are printed for the user to run."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def program() -> str:
    """Return the command that runs this program in any folder and terminal, quoted for a shell.

    The PATH of another terminal may not have the virtual environment, so a program in one has its whole path.
    """
    called = Path(sys.argv[0])
    if called.name == "__main__.py" or not called.is_file():
        return f"{python()} -m scheduler"
    if sys.prefix == sys.base_prefix and shutil.which(called.name) is not None:
        return called.name
    return shlex.quote(str(called.absolute()))


def python() -> str:
    """Return the command that runs this Python, quoted for a shell."""
    return shlex.quote(sys.executable)
