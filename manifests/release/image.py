"""The image of a release, for both platforms, as an OCI archive: built by docker with buildx, or by podman."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from manifests.release.archives import OciArchive
from manifests.release.commands import ReleaseError, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PLATFORMS: Final = ("linux/amd64", "linux/arm64")
_LIST: Final = "localhost/custom-scheduler-release"
"""Name of podman's list of images, one for each platform."""


def builder(source: Path, version: str) -> str:
    """Return the program that builds the image: docker or podman.

    Args:
        source: folder with the Dockerfile.
        version: of the release, for the message.

    Raises:
        ReleaseError: there is neither, or the Dockerfile has no digest of its base.
    """
    without = f"`make release VERSION={version} IMAGE=` leaves the image out"
    if not re.search(r"^ARG BASE=\S+@sha256:", (source / "Dockerfile").read_text(), re.MULTILINE):
        raise ReleaseError(
            f"the base image in the Dockerfile has no digest: run `make base-image` and commit the Dockerfile; {without}"
        )
    docker = shutil.which("docker")
    if docker:
        asked = subprocess.run([docker, "buildx", "version"], capture_output=True, check=False)  # noqa: S603
        if asked.returncode == 0:
            return "docker"
    if shutil.which("podman"):
        return "podman"
    raise ReleaseError(f"the image needs docker with buildx, or podman, and neither is installed; {without}")


def build(program: str, source: Path, into: Path, name: str, labels: Mapping[str, str]) -> None:
    """Build the image.

    Args:
        program: docker or podman.
        source: folder with the Dockerfile.
        into: the OCI archive.
        name: of the image, with its tag.
        labels: of the image.

    Raises:
        ReleaseError: the program fails, or the image is not as expected.
    """
    platforms = f"--platform={','.join(PLATFORMS)}"
    labelled = [f"--label={label}={text}" for label, text in labels.items()]
    if program == "docker":
        # Provenance is attested by the workflow for the archive as a whole.
        output = f"--output=type=oci,dest={into},name={name}"
        run(
            "docker",
            "buildx",
            "build",
            platforms,
            "--provenance=false",
            *labelled,
            output,
            ".",
            folder=source,
        )
    else:
        # podman adds to a list of images that is there, so that of an interrupted build is removed.
        run("podman", "rmi", "--force", "--ignore", _LIST, folder=source)
        run("podman", "build", platforms, f"--manifest={_LIST}", *labelled, ".", folder=source)
        destination = f"oci-archive:{into}:{name.rpartition(':')[2]}"
        run("podman", "manifest", "push", "--all", _LIST, destination, folder=source)
        run("podman", "manifest", "rm", _LIST, folder=source)
    faults = [*faults_of(into, labels)]
    if faults:
        raise ReleaseError(f"the image is not as expected: {'; '.join(faults)}")


def faults_of(archive: Path, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield each difference between an OCI archive and the image that is expected.

    Args:
        archive: of the image.
        labels: that it must have.
    """
    found = {manifest.platform: manifest.config for manifest in OciArchive(archive).manifests()}
    for platform in PLATFORMS:
        if platform not in found:
            yield f"it is not for {platform}"
            continue
        config = found[platform].get("config", {})
        expected = {"User": "65532:65532", "Entrypoint": ["custom-scheduler"], "Cmd": ["run"]}
        yield from (
            f"{field} for {platform} is {config.get(field)}, not {value}"
            for field, value in expected.items()
            if config.get(field) != value
        )
        of_image = config.get("Labels") or {}
        yield from (
            f"the label {label} for {platform} is {of_image.get(label)}, not {text}"
            for label, text in labels.items()
            if of_image.get(label) != text
        )
    yield from (
        f"it is for {platform or 'no platform'} too" for platform in found if platform not in PLATFORMS
    )
