"""The files of a release: the same from each clone, complete or marked, and usable by the programs they are for."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
import yaml

from manifests.release import chart, image, krew, versions
from manifests.release.archives import INDEX, MANIFEST, Blob, OciArchive, oci_archive
from manifests.release.check import checksum_faults
from manifests.release.commands import ReleaseError
from manifests.release.source import exported
from scheduler.version import VERSION
from tests.support.helm import CHART, NAMES, helm, templated
from tests.support.image import check
from tests.support.manifests import ROOT
from tests.support.releases import REPOSITORY, commit, release

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.releases import Releases

FILES = {
    "RELEASE_NOTES.md",
    "SHA256SUMS",
    f"custom-scheduler-{VERSION}-chart.oci.tar",
    f"custom-scheduler-{VERSION}.cdx.json",
    f"custom-scheduler-{VERSION}.tgz",
    f"custom_scheduler-{VERSION}-py3-none-any.whl",
    f"custom_scheduler-{VERSION}.tar.gz",
    f"custom_scheduler_tools-{VERSION}-py3-none-any.whl",
    f"kubectl-why-{VERSION}.tar.gz",
    "release.json",
    "why.yaml",
}
LABELS = {"org.opencontainers.image.version": VERSION}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_two_clones_build_identical_files(releases: Releases) -> None:
    first, second = ({path.name: sha256(path) for path in folder.iterdir()} for folder in releases[1:])

    assert first.keys() == FILES
    assert first == second


def test_all_files_have_a_checksum(releases: Releases, tmp_path: Path) -> None:
    assert [*checksum_faults(releases.first)] == []

    shutil.copytree(releases.first, tmp_path / "files")
    (tmp_path / "files" / "why.yaml").unlink()
    (tmp_path / "files" / "more").touch()
    (tmp_path / "files" / "RELEASE_NOTES.md").write_text("changed")
    assert [*checksum_faults(tmp_path / "files")] == [
        "why.yaml is missing",
        "more has no checksum",
        "RELEASE_NOTES.md has another checksum",
    ]


def test_a_signature_of_the_checksums_needs_no_checksum(releases: Releases, tmp_path: Path) -> None:
    shutil.copytree(releases.first, tmp_path / "files")
    (tmp_path / "files" / "SHA256SUMS.sigstore.json").touch()

    assert [*checksum_faults(tmp_path / "files")] == []


def test_a_release_without_an_image_is_marked_as_incomplete(releases: Releases) -> None:
    document = json.loads((releases.first / "release.json").read_text())

    assert (document["version"], document["complete"]) == (VERSION, False)
    assert document["leftOut"] == {"image": "IMAGE is empty"}
    assert {*document["files"]} == FILES - {"SHA256SUMS", "release.json"}
    assert document["commit"] == check("git", "rev-parse", "HEAD", folder=releases.clone).strip()


def test_the_packages_have_the_time_of_the_commit(releases: Releases) -> None:
    with tarfile.open(releases.first / f"custom_scheduler-{VERSION}.tar.gz") as archive:
        times = {entry.mtime for entry in archive}
    with exported(releases.clone, VERSION) as source:
        assert times == {source.seconds}


def test_the_notes_are_the_section_of_the_changelog_with_links_to_the_tag(releases: Releases) -> None:
    notes = (releases.first / "RELEASE_NOTES.md").read_text()

    assert "### Added" in notes
    assert "## 0." not in notes.replace("### ", "")
    assert f"]({REPOSITORY}/blob/v{VERSION}/docs/install.md)" in notes
    assert "](docs/" not in notes


def test_helm_installs_the_packaged_chart_as_the_folder(releases: Releases) -> None:
    packaged = str(releases.first / f"custom-scheduler-{VERSION}.tgz")

    rendered = yaml.safe_load_all(helm("template", NAMES[0], packaged, "--namespace", NAMES[1]))

    assert [obj for obj in rendered if obj] == templated()


def test_the_chart_installs_the_image_of_the_release(tmp_path: Path) -> None:
    (tmp_path / "it.tgz").write_bytes(chart.package(CHART, 0, "registry.example.com/custom-scheduler"))

    rendered = helm("template", NAMES[0], str(tmp_path / "it.tgz"), "--namespace", NAMES[1])

    assert f"image: registry.example.com/custom-scheduler:{VERSION}\n" in rendered


def test_the_artefact_of_the_chart_is_what_helm_reads_from_a_registry(releases: Releases) -> None:
    archive = OciArchive(releases.first / f"custom-scheduler-{VERSION}-chart.oci.tar")

    (manifest,) = archive.manifests()

    assert manifest.config == yaml.safe_load((CHART / "Chart.yaml").read_text())
    ((media_type, digest),) = manifest.layers
    assert media_type == "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    assert digest == f"sha256:{sha256(releases.first / f'custom-scheduler-{VERSION}.tgz')}"
    document = json.loads(archive.blob(archive.digest))
    assert document["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    assert document["annotations"]["org.opencontainers.image.version"] == VERSION
    assert archive.digest == json.loads((releases.first / "release.json").read_text())["digests"]["chart"]


def test_each_part_of_an_oci_archive_has_the_name_of_its_digest(releases: Releases) -> None:
    with tarfile.open(releases.first / f"custom-scheduler-{VERSION}-chart.oci.tar") as archive:
        names = {entry.name for entry in archive}
        blobs = {name: archive.extractfile(name) for name in names if name.startswith("blobs/")}
        found = {name: hashlib.sha256(file.read()).hexdigest() for name, file in blobs.items() if file}

    assert names == {"index.json", "oci-layout", *blobs}
    assert len(found) == 3
    assert all(name == f"blobs/sha256/{digest}" for name, digest in found.items())


def test_the_manifest_for_krew_names_the_archive_and_its_files(releases: Releases) -> None:
    manifest = yaml.safe_load((releases.first / "why.yaml").read_text())
    archive = releases.first / f"kubectl-why-{VERSION}.tar.gz"

    assert (manifest["metadata"]["name"], manifest["spec"]["version"]) == ("why", f"v{VERSION}")
    assert manifest["spec"]["homepage"] == REPOSITORY
    with tarfile.open(archive) as packed:
        names = {entry.name: entry.mode for entry in packed}
    assert names == {"LICENSE": 0o644, "kubectl-why": 0o755}
    for platform in manifest["spec"]["platforms"]:
        assert platform["uri"] == f"{REPOSITORY}/releases/download/v{VERSION}/{archive.name}"
        assert platform["sha256"] == sha256(archive)
        assert {file["from"] for file in platform["files"]} == names.keys()
        assert platform["bin"] == "kubectl-why"
    systems = [platform["selector"]["matchLabels"] for platform in manifest["spec"]["platforms"]]
    assert systems == [{"os": "linux", "arch": "amd64"}, {"os": "linux", "arch": "arm64"}]


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """`kubectl-why` without dependencies, and with a wheel that prints how it was called."""
    wheel = tmp_path / "scheduler-1-py3-none-any.whl"
    module = "import sys\ndef kubectl_why():\n    print('why', *sys.argv[1:])\n    sys.exit(3)\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("scheduler/cli/command.py", module)
        archive.writestr(
            "scheduler-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: scheduler\nVersion: 1\n"
        )
        archive.writestr("scheduler-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("scheduler-1.dist-info/RECORD", "")
    (tmp_path / "requirements.lock").touch()
    launcher = ROOT / "manifests" / "release" / "kubectl_why.py"
    found = tmp_path / "bin" / "kubectl-why"
    found.parent.mkdir()
    found.write_bytes(krew.program(launcher, tmp_path / "requirements.lock", [wheel], 1_000_000_000))
    found.chmod(0o755)
    return found


def call(plugin: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "XDG_CACHE_HOME": str(plugin.parent / "caches"),
        "PATH": f"{plugin.parent / 'pythons'}:{os.environ['PATH']}",
        "PYTHONPATH": str(plugin.parent / "not-for-it"),
    }
    return subprocess.run(
        [sys.executable, plugin, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_kubectl_plugin_installs_its_packages_once(plugin: Path) -> None:
    first, second = call(plugin, "web", "-n", "shop"), call(plugin, "web", "-n", "shop")

    assert (first.returncode, first.stdout) == (3, "why web -n shop\n"), first.stderr
    assert first.stderr.startswith("Installing the packages of kubectl why into ")
    assert (second.returncode, second.stdout, second.stderr) == (3, "why web -n shop\n", "")
    assert len([*(plugin.parent / "caches" / "kubectl-why").iterdir()]) == 1


def test_a_failed_installation_of_the_kubectl_plugin_leaves_nothing(plugin: Path, tmp_path: Path) -> None:
    launcher = ROOT / "manifests" / "release" / "kubectl_why.py"
    (tmp_path / "requirements.lock").write_text("no-hash==1\n")
    plugin.write_bytes(krew.program(launcher, tmp_path / "requirements.lock", [], 1_000_000_000))

    done = call(plugin, "web")

    assert done.returncode == 1
    assert "error: kubectl why cannot install its packages: " in done.stderr
    assert [*(plugin.parent / "caches" / "kubectl-why").iterdir()] == []


@pytest.mark.parametrize("newer", [True, False], ids=["python3.12 is there", "no newer Python"])
def test_an_old_python_starts_a_newer_one_or_names_what_is_needed(plugin: Path, newer: bool) -> None:
    pythons = plugin.parent / "pythons"
    pythons.mkdir()
    if newer:
        (pythons / "python3.12").write_text('#!/bin/sh\necho "newer $2"\n')
        (pythons / "python3.12").chmod(0o755)
    launcher = ROOT / "manifests" / "release" / "kubectl_why.py"
    start = f"import sys; sys.version_info = (3, 9, 0); sys.argv = ['it', 'web']; import runpy; runpy.run_path({str(launcher)!r}, run_name='__main__')"

    done = subprocess.run(
        [sys.executable, "-c", start], env={"PATH": str(pythons)}, capture_output=True, text=True, check=False
    )

    if newer:
        assert (done.returncode, done.stdout) == (0, "newer web\n")
    else:
        assert done.returncode == 1
        assert done.stderr.startswith("error: kubectl why needs Python 3.11 or newer, and ")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with the files that have the version, and those that the command itself is."""
    folder = tmp_path / "clone"
    names = {*(place.path for place in versions.PLACES), "CHANGELOG.md", "Dockerfile"}
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "manifests" / "release", folder / "manifests" / "release")
    (folder / ".gitignore").write_text("__pycache__/\ndist/\n")
    commit(folder)
    return folder


def refusal(clone: Path, *words: str, version: str = VERSION, **environment: str) -> str:
    done = release(clone, *words, version=version, **environment)
    assert done.returncode == 1
    assert not (clone / "dist").exists()
    return done.stderr


def test_a_tree_with_changes_is_refused(clone: Path) -> None:
    (clone / "docs" / "install.md").write_text("changed")
    (clone / "new").touch()

    assert refusal(clone) == "error: the clone has changes that are not committed: docs/install.md, new\n"


def test_a_version_that_another_commit_has_is_refused(clone: Path) -> None:
    tag = [
        "git",
        "-c",
        "user.name=test",
        "-c",
        "user.email=t@example.com",
        "tag",
        "--annotate",
        f"v{VERSION}",
        "--message=it",
    ]
    subprocess.run(tag, cwd=clone, check=True)
    with exported(clone, VERSION):
        pass  # the tag of this commit is no fault
    (clone / "new").touch()
    commit(clone)

    assert f"the tag v{VERSION} is on another commit" in refusal(clone)


def test_all_places_with_another_version_are_named_at_once(clone: Path) -> None:
    said = refusal(clone, version="9.8.7").splitlines()

    named = {line.split()[1] for line in said}
    assert named == {*(place.path for place in versions.PLACES), "CHANGELOG.md"}
    assert 'error: CHANGELOG.md has no section "## 9.8.7 (YYYY-MM-DD)"' in said


@pytest.mark.parametrize("version", ["", "0.2", "v0.2.0", "0.2.0-rc1"])
def test_a_version_of_another_form_is_refused(clone: Path, version: str) -> None:
    assert refusal(clone, version=version) == f"error: VERSION must have the form 0.2.0, was {version!r}\n"


def test_a_section_without_a_date_is_refused(clone: Path) -> None:
    changelog = clone / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f"## {VERSION} (", f"## {VERSION} (unreleased, "))
    commit(clone)

    assert refusal(clone) == f'error: CHANGELOG.md has no section "## {VERSION} (YYYY-MM-DD)"\n'


def test_all_places_have_the_version_of_the_program() -> None:
    assert [*versions.faults_of(ROOT, VERSION)] == []


def test_a_new_version_is_written_into_all_places(clone: Path) -> None:
    subprocess.run([sys.executable, "-m", "manifests.release.versions", "9.8.7"], cwd=clone, check=True)

    assert [*versions.faults_of(clone, "9.8.7")] == ['CHANGELOG.md has no section "## 9.8.7 (YYYY-MM-DD)"']
    chart_file = yaml.safe_load((clone / "manifests" / "chart" / "Chart.yaml").read_text())
    assert (chart_file["version"], chart_file["appVersion"]) == ("9.8.7", "9.8.7")


def pinned(clone: Path) -> None:
    dockerfile = clone / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace("@run-make-image", f"@sha256:{'1b' * 32}"))
    commit(clone)


def test_a_base_without_a_digest_is_refused(clone: Path) -> None:
    assert "the base image in the Dockerfile has no digest: run `make base-image`" in refusal(
        clone, "--image=it"
    )


@pytest.mark.parametrize("without_buildx", [True, False], ids=["docker without buildx", "no docker"])
def test_the_program_that_is_missing_for_the_image_is_named(
    clone: Path, tmp_path: Path, without_buildx: bool
) -> None:
    pinned(clone)
    bin_folder = programs(tmp_path, "git", **({"docker": "exit 1"} if without_buildx else {}))

    assert refusal(clone, "--image=it", PATH=str(bin_folder)) == (
        "error: the image needs docker with buildx, or podman, and neither is installed; "
        f"`make release VERSION={VERSION} IMAGE=` leaves the image out\n"
    )


def programs(folder: Path, *linked: str, **written: str) -> Path:
    """Return a folder with links to programs of this machine, and with shell scripts."""
    found = folder / "programs"
    found.mkdir()
    for name in linked:
        path = shutil.which(name)
        assert path is not None
        (found / name).symlink_to(path)
    for name, script in written.items():
        (found / name).write_text(f"#!/bin/sh\n{script}\n")
        (found / name).chmod(0o755)
    return found


def image_archive(path: Path, *platforms: str, **changes: object) -> Path:
    """Write an archive of an image that is as expected, but for what is changed in its configuration."""
    config = {
        "User": "65532:65532",
        "Entrypoint": ["custom-scheduler"],
        "Cmd": ["run"],
        "Labels": LABELS,
        **changes,
    }
    blobs, listed = [], []
    for platform in platforms:
        system, architecture = platform.split("/")
        about = Blob.json(
            "application/vnd.oci.image.config.v1+json", {"config": config, "architecture": architecture}
        )
        document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": about.descriptor(), "layers": []}
        manifest = Blob.json(MANIFEST, document)
        blobs += about, manifest
        listed.append(manifest.descriptor(platform={"os": system, "architecture": architecture}))
    index = Blob.json(INDEX, {"schemaVersion": 2, "mediaType": INDEX, "manifests": listed})
    path.write_bytes(oci_archive([*blobs, index], VERSION, 0))
    return path


@pytest.mark.parametrize(
    ("platforms", "changes", "faults"),
    [
        (("linux/amd64", "linux/arm64"), {}, []),
        (("linux/amd64",), {}, ["it is not for linux/arm64"]),
        (("linux/amd64", "linux/arm64", "linux/riscv64"), {}, ["it is for linux/riscv64 too"]),
        (
            ("linux/amd64", "linux/arm64"),
            {"User": ""},
            [f"User for {platform} is , not 65532:65532" for platform in image.PLATFORMS],
        ),
        (
            ("linux/amd64", "linux/arm64"),
            {"Labels": None},
            [
                f"the label {next(iter(LABELS))} for {platform} is None, not {VERSION}"
                for platform in image.PLATFORMS
            ],
        ),
    ],
    ids=["as expected", "a platform is missing", "one too many", "as root", "no labels"],
)
def test_an_image_that_is_not_as_expected_is_refused(
    platforms: tuple[str, ...], changes: dict[str, object], faults: list[str], tmp_path: Path
) -> None:
    archive = image_archive(tmp_path / "it.tar", *platforms, **changes)

    assert [*image.faults_of(archive, LABELS)] == faults


BUILDERS = {
    "docker": (
        'for word; do case "$word" in --output=type=oci,dest=*) file=${word#*dest=}; cp image "${file%%,*}";; esac; done',
        [
            (
                "buildx build --platform=linux/amd64,linux/arm64 --provenance=false "
                "--label=org.opencontainers.image.version={version} --output=type=oci,dest={into},name=registry/it:9 ."
            ),
        ],
    ),
    "podman": (
        'for word; do case "$word" in oci-archive:*) file=${word#*:}; cp image "${file%:*}";; esac; done',
        [
            "rmi --force --ignore localhost/custom-scheduler-release",
            (
                "build --platform=linux/amd64,linux/arm64 --manifest=localhost/custom-scheduler-release "
                "--label=org.opencontainers.image.version={version} ."
            ),
            "manifest push --all localhost/custom-scheduler-release oci-archive:{into}:9",
            "manifest rm localhost/custom-scheduler-release",
        ],
    ),
}


@pytest.mark.parametrize("program", BUILDERS)
@pytest.mark.parametrize("is_whole", [True, False], ids=["both platforms", "one platform"])
def test_docker_or_podman_builds_the_image_for_both_platforms(
    program: str, is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, expected = BUILDERS[program]
    source, into = tmp_path / "source", tmp_path / "image.oci.tar"
    source.mkdir()
    image_archive(source / "image", *image.PLATFORMS[: 2 if is_whole else 1])
    shutil.copy(ROOT / "Dockerfile", source)
    script = f'echo "$@" >> asked\n{copies}'
    monkeypatch.setenv("PATH", f"{programs(tmp_path, **{program: script})}:/usr/bin:/bin")

    if is_whole:
        image.build(program, source, into, "registry/it:9", LABELS)
    else:
        with pytest.raises(ReleaseError, match="the image is not as expected: it is not for linux/arm64"):
            image.build(program, source, into, "registry/it:9", LABELS)

    asked = (source / "asked").read_text().splitlines()
    assert asked == [words.format(version=VERSION, into=into) for words in expected]
    assert into.read_bytes() == (source / "image").read_bytes()
