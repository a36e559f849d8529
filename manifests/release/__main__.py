"""Builds the files of a release from the commit that is checked out: `make release VERSION=0.2.0`."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from manifests.release import chart, image, krew
from manifests.release.archives import OciArchive, extract
from manifests.release.commands import ReleaseError, run
from manifests.release.source import Source, exported
from manifests.release.versions import faults_of, notes_of

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parents[2]
NAME: Final = "custom-scheduler"
CHECKSUMS: Final = "SHA256SUMS"
MANIFEST: Final = "release.json"


class Release(NamedTuple):
    """A release that is being built.

    Attributes:
        version: of the release.
        source: its commit.
        into: folder of its files.
        image: name of the image without a tag; empty if it is left out.
        repository: address of the project; empty if it is not known.
    """

    version: str
    source: Source
    into: Path
    image: str
    repository: str

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the release."""
        (self.into / name).write_bytes(content)


@click.command("python -m manifests.release")
@click.argument("version")
@click.option(
    "--image", "image_name", default="", help="Name of the image, without a tag; empty leaves the image out."
)
@click.option(
    "--repository", default="", help="Address of the project, to which the manifest for krew leads."
)
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    help="Folder of the files, by default dist/VERSION. It is replaced.",
)
def main(version: str, image_name: str, repository: str, into: Path | None) -> None:
    """Build the files of the release VERSION."""
    folder = (into or ROOT / "dist" / version).resolve()
    try:
        left_out = _build(version, image_name, repository.rstrip("/"), folder)
    except ReleaseError as error:
        sys.exit(f"error: {error}")
    for path in sorted(folder.iterdir()):
        click.echo(f"{path.stat().st_size:>12,}  {path.name}")
    if left_out:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        click.echo(f"The release {version} is incomplete. Left out: {reasons}.")
    else:
        click.echo(f"The release {version} is complete.")


def _build(version: str, image_name: str, repository: str, folder: Path) -> dict[str, str]:
    """Build a release; return what is left out, with reasons. A folder with half of a release is never left."""
    with exported(ROOT, version) as source:
        faults = [*faults_of(source.folder, version)]
        if faults:
            raise ReleaseError("\nerror: ".join(faults))
        program = image.builder(source.folder, version) if image_name else ""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as name:
            made = Path(name) / "files"
            made.mkdir()
            release = Release(version, source, made, image_name, repository)
            left_out = _build_files(release, program)
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
    return left_out


def _build_files(release: Release, program: str) -> dict[str, str]:
    stages: dict[str, Callable[[Release], None]] = {
        "packages": _packages,
        "software bill of materials": _sbom,
        "chart": _chart,
        "kubectl plugin": _plugin,
    }
    for name, build in stages.items():
        click.echo(f"Building the {name}", err=True)
        build(release)
    left_out = {}
    if program:
        click.echo("Building the image", err=True)
        _image(release, program)
    else:
        left_out["image"] = "IMAGE is empty"
    if not release.repository:
        left_out["why.yaml"] = "REPOSITORY is not set"
    notes = notes_of(release.source.folder, release.version, release.repository)
    release.write("RELEASE_NOTES.md", notes.encode())
    _list_files(release, left_out)
    return left_out


def _packages(release: Release) -> None:
    """Build the source archive, and from its files the wheels of both packages."""
    hatch = (sys.executable, "-m", "hatchling", "build", "--directory", release.into, "--target")
    environment = {"SOURCE_DATE_EPOCH": str(release.source.seconds)}
    run(*hatch, "sdist", folder=release.source.folder, environment=environment)
    (archive,) = release.into.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as name, tarfile.open(archive) as packed:
        extract(packed, name)
        (unpacked,) = Path(name).iterdir()
        for package in (unpacked, unpacked / "scheduler" / "tools"):
            run(*hatch, "wheel", folder=package, environment=environment)


def _sbom(release: Release) -> None:
    """List the Python packages of the image."""
    into = release.into / f"{NAME}-{release.version}.cdx.json"
    # Uses the environment that runs this.
    here = ("--old-file=.venv/dev", f"BIN={Path(sys.executable).parent}")
    environment = {"SOURCE_DATE_EPOCH": str(release.source.seconds)}
    run("make", *here, "sbom", f"SBOM={into}", folder=release.source.folder, environment=environment)


def _chart(release: Release) -> None:
    folder, seconds = release.source.folder / "manifests" / "chart", release.source.seconds
    content = chart.package(folder, seconds, release.image)
    release.write(f"{NAME}-{release.version}.tgz", content)
    release.write(
        _archive_of("chart", release), chart.artefact(folder, content, seconds, release.source.date)
    )


def _plugin(release: Release) -> None:
    source, seconds = release.source.folder, release.source.seconds
    launcher = source / "manifests" / "release" / "kubectl_why.py"
    content = krew.program(launcher, source / "requirements.lock", release.into.glob("*.whl"), seconds)
    packed = krew.archive(content, source / "LICENSE", seconds)
    name = f"{krew.PROGRAM}-{release.version}.tar.gz"
    release.write(name, packed)
    if release.repository:
        address = f"{release.repository}/releases/download/v{release.version}/{name}"
        release.write(
            "why.yaml", krew.manifest(packed, address, release.repository, release.version).encode()
        )


def _image(release: Release, program: str) -> None:
    labels = {
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.revision": release.source.commit,
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": release.version,
    }
    if release.repository:
        labels["org.opencontainers.image.source"] = release.repository
    into = release.into / _archive_of("image", release)
    image.build(program, release.source.folder, into, f"{release.image}:{release.version}", labels)


def _archive_of(kind: str, release: Release) -> str:
    return f"{NAME}-{release.version}-{kind}.oci.tar"


def _list_files(release: Release, left_out: dict[str, str]) -> None:
    """Write the manifest of the release, and the checksums of all files."""
    digests = {
        kind: OciArchive(release.into / _archive_of(kind, release)).digest
        for kind in ("chart", "image")
        if (release.into / _archive_of(kind, release)).exists()
    }
    document = {
        "version": release.version,
        "commit": release.source.commit,
        "date": release.source.date,
        "complete": not left_out,
        "leftOut": left_out,
        "digests": digests,
        "files": sorted(path.name for path in release.into.iterdir()),
    }
    release.write(MANIFEST, f"{json.dumps(document, indent=2)}\n".encode())
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(release.into.iterdir())
    ]
    release.write(CHECKSUMS, "".join(lines).encode())


if __name__ == "__main__":
    main()
