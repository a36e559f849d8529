"""`kubectl why` as one file, and the manifest by which krew installs it.

The scheduler needs packages with compiled code, which are different for each platform and each version of Python. A file
with all of them would have hundreds of megabytes. So the file has the wheels of the scheduler and the lock file, and
installs the packages by hash when it runs for the first time.
"""

from __future__ import annotations

import hashlib
import io
import time
import zipfile
from typing import TYPE_CHECKING, Final

import yaml

from manifests.release.archives import compressed, tar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PROGRAM: Final = "kubectl-why"
ARCHITECTURES: Final = ("amd64", "arm64")
_SHEBANG: Final = b"#!/usr/bin/env python3\n"
_DESCRIPTION: Final = """\
Asks the scheduler custom-scheduler why a pod is pending, or evaluates the pod
by the rules of kube-scheduler, for pods of any scheduler. The answer begins
with the smallest changes that would place the pod. Nothing is written to the
cluster.
"""
_CAVEATS: Final = """\
This plugin needs Python 3.11 or newer with venv, on Linux. The first run
installs its packages from a package index into ~/.cache/kubectl-why, and
checks them by hash. pip's settings and environment variables apply.
"""


def program(launcher: Path, lock: Path, wheels: Iterable[Path], seconds: int) -> bytes:
    """Return the program: a zip archive that Python runs.

    Args:
        launcher: its main module.
        lock: the lock file of its packages.
        wheels: the wheels of the scheduler.
        seconds: time of the files, since 1970.
    """
    packed = io.BytesIO(_SHEBANG)
    packed.seek(0, io.SEEK_END)
    files = {"__main__.py": launcher, lock.name: lock, **{wheel.name: wheel for wheel in wheels}}
    with zipfile.ZipFile(packed, "a") as archive:
        for name, path in sorted(files.items()):
            entry = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
            entry.external_attr = 0o644 << 16
            # A wheel is compressed already.
            entry.compress_type = zipfile.ZIP_STORED if path.suffix == ".whl" else zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return packed.getvalue()


def archive(content: bytes, license_file: Path, seconds: int) -> bytes:
    """Return the archive that krew unpacks.

    Args:
        content: the program.
        license_file: krew requires one.
        seconds: time of the files, since 1970.
    """
    files = {PROGRAM: content, "LICENSE": license_file.read_bytes()}
    return compressed(tar(files, seconds, frozenset({PROGRAM})))


def manifest(content: bytes, address: str, repository: str, version: str) -> str:
    """Return the manifest of the plugin `why`.

    Args:
        content: the archive.
        address: from which the archive can be downloaded.
        repository: address of the project.
        version: of the release.

    Source:
        krew, site/content/docs/developer-guide/plugin-manifest.md.
    """
    platform = {
        "uri": address,
        "sha256": hashlib.sha256(content).hexdigest(),
        "files": [{"from": name, "to": "."} for name in (PROGRAM, "LICENSE")],
        "bin": PROGRAM,
    }
    spec = {
        "version": f"v{version}",
        "homepage": repository,
        "shortDescription": "Explain why a pod is pending",
        "description": _DESCRIPTION,
        "caveats": _CAVEATS,
        "platforms": [
            {"selector": {"matchLabels": {"os": "linux", "arch": architecture}}, **platform}
            for architecture in ARCHITECTURES
        ],
    }
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "why"},
        "spec": spec,
    }
    return str(yaml.dump(document, sort_keys=False, Dumper=_Dumper))


class _Dumper(yaml.SafeDumper):
    """Writes what is the same for both platforms twice: krew's index has no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True
