"""The version in all its places: `python -m manifests.release.versions VERSION` sets it (`make version`).

`scheduler/version.py` is the source. The other places are read by programs that cannot import it, or by people.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from manifests.release.commands import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


class Place(NamedTuple):
    """A file that has the version.

    Attributes:
        path: relative to the repository.
        pattern: finds the version in the file, as its only group; lines are matched one by one.
    """

    path: str
    pattern: str


PLACES: Final = (
    Place("scheduler/version.py", r'^VERSION = "(.*)"$'),
    Place("scheduler/tools/pyproject.toml", r'"custom-scheduler==([^"]*)"'),
    Place("manifests/base/kustomization.yaml", r"^  newTag: (.*)$"),
    Place("manifests/examples/extender/kustomization.yaml", r"^  newTag: (.*)$"),
    Place("manifests/chart/Chart.yaml", r"^(?:version|appVersion): (.*)$"),
    Place("docs/install.md", r"(?:^VERSION=|^custom-scheduler:|newTag: \.\*/newTag: (?!1\.0\.0))([\d.]+)"),
    Place("docs/operating.md", r"^Binary version: (.*)$"),
)


def faults_of(folder: Path, version: str) -> Iterator[str]:
    """Yield each reason why the files in a folder are not those of a release.

    Args:
        folder: the repository.
        version: of the release.
    """
    if not _VERSION.fullmatch(version):
        yield f"VERSION must have the form 0.2.0, was {version!r}"
        return
    for path, pattern in PLACES:
        found = re.findall(pattern, (folder / path).read_text(), re.MULTILINE)
        if not found:
            yield f"{path} has no version"
        yield from (
            f"{path} has the version {each}, not {version}"
            for each in dict.fromkeys(found)
            if each != version
        )
    if _section_of(folder, version) is None:
        yield f'CHANGELOG.md has no section "## {version} (YYYY-MM-DD)"'


def notes_of(folder: Path, version: str, repository: str) -> str:
    """Return the notes of a release: its section of the CHANGELOG.

    Args:
        folder: the repository.
        version: of the release.
        repository: address to which links to files lead; without it they stay relative.

    Raises:
        ReleaseError: the CHANGELOG has no such section.
    """
    section = _section_of(folder, version)
    if section is None:
        raise ReleaseError(f"CHANGELOG.md has no section of {version}")
    if not repository:
        return section
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({repository}/blob/v{version}/", section)


def _section_of(folder: Path, version: str) -> str | None:
    text = (folder / "CHANGELOG.md").read_text()
    found = re.search(
        rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)\n+(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    return None if found is None else f"{found[1].rstrip()}\n"


def set_version(folder: Path, version: str) -> None:
    """Write a version into all its places, except for the CHANGELOG, whose section is written by hand."""
    for path, pattern in PLACES:
        file = folder / path
        file.write_text(
            re.sub(
                pattern,
                lambda match: (
                    match[0][: match.start(1) - match.start()]
                    + version
                    + match[0][match.end(1) - match.start() :]
                ),
                file.read_text(),
                flags=re.MULTILINE,
            )
        )


def main() -> None:
    """Set the version that is the argument."""
    version = sys.argv[1] if len(sys.argv) > 1 else ""
    if not _VERSION.fullmatch(version):
        sys.exit(f"error: VERSION must have the form 0.2.0, was {version!r}")
    set_version(Path(), version)


if __name__ == "__main__":
    main()
