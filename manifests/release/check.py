"""Checks the files of a release, as built or as downloaded: `python -m manifests.release.check FOLDER`.

Compares the checksums, installs the packages into fresh environments with the locked dependencies, and runs their commands.
The dependencies come from where pip finds them: an index, its cache, or a folder (`PIP_FIND_LINKS`, `PIP_NO_INDEX`).
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from manifests.release import krew
from manifests.release.archives import extract
from manifests.release.commands import ReleaseError, run

if TYPE_CHECKING:
    from collections.abc import Iterator


def checksum_faults(folder: Path) -> Iterator[str]:
    """Yield each difference between the files in a folder and their checksums, which themselves have none."""
    listed = {}
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
    there = {path.name for path in folder.iterdir() if not path.name.startswith("SHA256SUMS")}
    yield from (f"{name} is missing" for name in sorted(listed.keys() - there))
    yield from (f"{name} has no checksum" for name in sorted(there - listed.keys()))
    for name in sorted(listed.keys() & there):
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != listed[name]:
            yield f"{name} has another checksum"


def check_packages(folder: Path, version: str) -> Iterator[str]:
    """Install both packages into a fresh environment, and run their commands. Yield what works.

    Raises:
        ReleaseError: something does not work.
    """
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        with tarfile.open(folder / f"custom_scheduler-{version}.tar.gz") as packed:
            lock = packed.extractfile(f"custom_scheduler-{version}/requirements.lock")
            assert lock is not None
            (work / "requirements.lock").write_bytes(lock.read())
        run(sys.executable, "-m", "venv", work / "environment", folder=work)
        commands = work / "environment" / "bin"
        install = (commands / "pip", "--quiet", "--disable-pip-version-check", "install")
        run(*install, "--require-hashes", "--requirement", work / "requirements.lock", folder=work)
        wheels = ("--no-index", "--find-links", folder.resolve())
        run(*install, *wheels, f"custom-scheduler=={version}", folder=work)
        _expect(f"custom-scheduler {version}", commands / "custom-scheduler", "--version", folder=work)
        _expect("valid, profiles custom-scheduler", commands / "custom-scheduler", "check", folder=work)
        yield f"custom-scheduler {version} runs without its tools"
        run(*install, *wheels, f"custom-scheduler[tools]=={version}", folder=work)
        run(commands / "pip", "check", folder=work)
        _expect(
            "Every pod is where it should be.", commands / "custom-scheduler", "demo", "--exit", folder=work
        )
        yield f"custom-scheduler[tools] {version} runs the demo"


def check_plugin(folder: Path, version: str) -> Iterator[str]:
    """Unpack the kubectl plugin as krew does, and run it. Yield what works.

    Raises:
        ReleaseError: it does not work.
    """
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        with tarfile.open(folder / f"{krew.PROGRAM}-{version}.tar.gz") as packed:
            extract(packed, work)
        caches = {"XDG_CACHE_HOME": str(work / "caches")}
        _expect("Usage: kubectl why", work / krew.PROGRAM, "--help", folder=work, environment=caches)
        yield f"{krew.PROGRAM} installs its packages and runs"


def _expect(text: str, *command: str | Path, **settings: Any) -> None:
    output = run(*command, **settings)
    if text not in output:
        raise ReleaseError(f"`{' '.join(map(str, command))}` does not print {text!r} but:\n{output}")


@click.command("python -m manifests.release.check")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Check the files of a release in FOLDER."""
    faults = [*checksum_faults(folder)]
    if faults:
        sys.exit("\n".join(f"error: {fault}" for fault in faults))
    click.echo("all files have their checksums")
    version = json.loads((folder / "release.json").read_text())["version"]
    try:
        for check in (check_packages, check_plugin):
            for works in check(folder, version):
                click.echo(works)
    except ReleaseError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
