"""How a profile names a guest, and the errors if there is none."""

from __future__ import annotations

import http.server
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from plugins.registry import IN_TREE
from scheduler.configuration.load import parse
from scheduler.daemon.app.reloader import named_files
from scheduler.engine.runtime.registry import Registry
from scheduler.errors import ConfigurationError
from scheduler.extensions.wasm.guest_source import GuestArgs
from scheduler.extensions.wasm.library import GuestLibrary
from scheduler.framework import PodEvents, WaitingPods
from scheduler.framework.interface import ExtensionPoint
from tests.support.guests import EVEN_NODES, LAST_DIGIT, KeptEvents, NoWaitingPods, wat
from tests.support.offline_capabilities import OFFLINE, frameworks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scheduler.engine.runtime.framework import Framework
    from scheduler.framework import Plugin

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"


def profile(name: str, args: str = "", *, scheduler: str = "custom-scheduler") -> str:
    config = f"\n  pluginConfig: [{{name: {name!r}, args: {args}}}]" if args else ""
    return f"""
- schedulerName: {scheduler}
  plugins: {{multiPoint: {{enabled: [{{name: {name!r}}}]}}}}{config}"""


def built(folder: Path, *profiles: str, library: GuestLibrary | None = None) -> dict[str, Framework]:
    given = {**OFFLINE, PodEvents: KeptEvents(), WaitingPods: NoWaitingPods()}
    registry = Registry(IN_TREE, library or GuestLibrary())
    return frameworks(parse(HEAD + "".join(profiles), "my.yaml", folder), registry, given)


def filters(framework: Framework) -> list[str]:
    return [plugin.name for plugin in framework.plugins.at[ExtensionPoint.FILTER]]


def refusal(folder: Path, *profiles: str) -> str:
    with pytest.raises(ConfigurationError) as reported:
        built(folder, *profiles)
    return str(reported.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "even.wasm").write_bytes(EVEN_NODES)
    (tmp_path / "digit.wasm").write_bytes(LAST_DIGIT)
    return tmp_path


@pytest.mark.parametrize("url", ["even.wasm", "./even.wasm", "file://even.wasm", "file://./even.wasm"])
def test_a_guest_url_is_a_path_from_the_folder_of_the_configuration(folder: Path, url: str) -> None:
    framework = built(folder, profile("EvenNodes", f"{{guestURL: {url!r}}}"))["custom-scheduler"]

    assert filters(framework)[-1] == "EvenNodes"


def test_a_guest_url_may_be_absolute(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")

    assert built(elsewhere, profile("EvenNodes", f"{{guestURL: 'file://{folder}/even.wasm'}}"))


def test_a_path_that_ends_in_wasm_names_a_guest_after_its_file(folder: Path) -> None:
    framework = built(folder, profile("./even.wasm"))["custom-scheduler"]

    assert filters(framework)[-1] == "even"


def test_a_guest_named_by_its_path_takes_arguments_but_no_url(folder: Path) -> None:
    assert built(folder, profile("even.wasm", "{guestConfig: x}"))
    assert "profiles[0].pluginConfig[0].args.guestURL: the plugin's name 'even.wasm' already is" in refusal(
        folder, profile("even.wasm", "{guestURL: even.wasm}")
    )


def test_profiles_share_a_guest_with_different_arguments(folder: Path) -> None:
    frameworks = built(
        folder,
        profile("EvenNodes", "{guestURL: even.wasm}"),
        profile("EvenNodes", "{guestURL: even.wasm, sample: 5}", scheduler="other"),
    )

    samples = [
        getattr(plugin, "sample", None)
        for framework in frameworks.values()
        for plugin in framework.plugins.all()
        if plugin.name == "EvenNodes"
    ]
    assert samples == [None, 5]


def test_a_name_belongs_to_one_guest_in_all_profiles(folder: Path) -> None:
    reported = refusal(
        folder,
        profile("Mine", "{guestURL: even.wasm}"),
        profile("Mine", "{guestURL: digit.wasm}", scheduler="other"),
    )

    assert reported.endswith(
        "profiles[1].pluginConfig[0].args: 'Mine' is another guest in an earlier profile; "
        "use a different name"
    )


ARGS = "profiles[0].pluginConfig[0].args"


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        pytest.param(
            "Mine",
            "{guestURL: none.wasm}",
            f"{ARGS}.guestURL: wasm: error reading guestURL none.wasm: No such file or directory",
            id="no such file",
        ),
        pytest.param(
            "Mine",
            "{guestURL: 'oci://x/y'}",
            f"{ARGS}.guestURL: wasm: error reading guestURL oci://x/y: unsupported URL scheme: oci",
            id="another scheme",
        ),
        pytest.param("Mine", "{guestURL: ''}", f"{ARGS}.guestURL: wasm: guestURL is required", id="empty"),
        pytest.param("Mine", "{guestUrl: even.wasm}", 'did you mean "guestURL"?', id="misspelt"),
        pytest.param("Mine", "{guestURL: even.wasm, guestCfg: x}", 'did you mean "guestConfig"?', id="typo"),
        pytest.param("Mine", "{guestURL: even.wasm, logSeverity: 4}", f"{ARGS}.logSeverity: ", id="severity"),
        pytest.param("Mine", "{guestURL: even.wasm, sample: 0}", f"{ARGS}.sample: ", id="no sample"),
        pytest.param(
            "Mine",
            "{guestURL: even.wasm, timeLimit: 1h}",
            f"{ARGS}.timeLimit: must be more than 0s and at most 5s, was 1h0m0s",
            id="too much time",
        ),
        pytest.param(
            "Mine",
            "{guestURL: even.wasm, memoryLimit: 5Gi}",
            f"{ARGS}.memoryLimit: must be a quantity from 64Ki to 4Gi, was '5Gi'",
            id="too much memory",
        ),
        pytest.param(
            "Mine", "{guestURL: text.wasm}", f"{ARGS}.guestURL: wasm: cannot be compiled: ", id="text"
        ),
        pytest.param(
            "Mine",
            "{guestURL: empty.wasm}",
            f"{ARGS}.guestURL: wasm: guest doesn't export memory[memory]; "
            "wasm: guest does not export any plugin functions",
            id="an empty module",
        ),
        pytest.param(
            "Mine",
            "{guestURL: typed.wasm}",
            "wasm: export score must be of type () -> (i64), was () -> (i32)",
            id="a function of another type",
        ),
        pytest.param(
            "Mine",
            "{guestURL: late.wasm}",
            "wasm: filter, score, reserve, permit or bind must be exported",
            id="late",
        ),
        pytest.param(
            "none.wasm", "", "profiles[0].plugins: wasm: error reading guestURL none.wasm", id="by path"
        ),
        pytest.param("NodeNames", "", "did you mean 'NodeName'?", id="no guest at all"),
        pytest.param(
            "NodeName",
            "{guestURL: even.wasm}",
            f"{ARGS}.guestURL: unknown field",
            id="an in-tree plugin's name",
        ),
    ],
)
def test_an_invalid_guest_is_reported_with_its_field(
    folder: Path, name: str, args: str, expected: str
) -> None:
    (folder / "text.wasm").write_text("hello")
    (folder / "empty.wasm").write_bytes(b"\0asm\1\0\0\0")
    (folder / "typed.wasm").write_bytes(wat('(func (export "score") (result i32) (i32.const 0))'))
    (folder / "late.wasm").write_bytes(wat('(func (export "prescore") (result i32) (i32.const 0))'))

    assert expected in refusal(folder, profile(name, args))


def test_without_the_extra_a_guest_is_refused_with_the_install_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The decoder looks for the module of the arguments.
    kept = {GuestLibrary.__module__, GuestArgs.__module__}
    for module in sys.modules.keys() - kept:
        if module.startswith(("wasmtime", "scheduler.extensions.wasm.")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "wasmtime", None)

    assert refusal(folder, profile("EvenNodes", "{guestURL: even.wasm}")).endswith(
        f"{ARGS}.guestURL: the guest 'EvenNodes' needs WebAssembly, which is optional: "
        "pip install 'custom-scheduler[wasm]'"
    )
    assert built(folder, "- schedulerName: custom-scheduler")  # a profile without guests does not need it


class Files(http.server.BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        self.send_response(200 if self.path == "/even.wasm" else 404)
        self.end_headers()
        if self.path == "/even.wasm":
            self.wfile.write(EVEN_NODES)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def web() -> Iterator[str]:
    Files.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_guest_is_fetched_from_the_web(folder: Path, web: str) -> None:
    framework = built(folder, profile("EvenNodes", f"{{guestURL: '{web}/even.wasm'}}"))["custom-scheduler"]

    assert filters(framework)[-1] == "EvenNodes"


def test_a_status_other_than_200_is_reported(folder: Path, web: str) -> None:
    reported = refusal(folder, profile("EvenNodes", f"{{guestURL: '{web}/odd.wasm'}}"))

    assert reported.endswith(f"wasm: error reading guestURL {web}/odd.wasm: received 404 status code")


def test_an_unreachable_server_is_reported(folder: Path) -> None:
    reported = refusal(folder, profile("EvenNodes", "{guestURL: 'http://127.0.0.1:9/x.wasm'}"))

    assert "wasm: error reading guestURL http://127.0.0.1:9/x.wasm: " in reported
    assert "Connection refused" in reported


def test_a_prepared_guest_is_not_fetched_again(folder: Path, web: str) -> None:
    library = GuestLibrary()
    mine = profile("EvenNodes", f"{{guestURL: '{web}/even.wasm'}}")
    library.prepare(parse(HEAD + mine, "my.yaml", folder))

    built(folder, mine, library=library)

    assert Files.asked == ["/even.wasm"]


def test_a_guest_that_could_not_be_prepared_is_reported_when_the_profile_is_built(
    folder: Path, web: str
) -> None:
    library = GuestLibrary()
    mine = profile("EvenNodes", f"{{guestURL: '{web}/odd.wasm'}}")
    library.prepare(parse(HEAD + mine, "my.yaml", folder))

    with pytest.raises(ConfigurationError, match="received 404 status code"):
        built(folder, mine, library=library)
    assert Files.asked == ["/odd.wasm"]


def test_the_files_of_guests_are_followed_with_the_configuration(folder: Path) -> None:
    text = (
        profile("EvenNodes", "{guestURL: 'file://even.wasm'}")
        + """
- schedulerName: other
  plugins: {multiPoint: {enabled: [{name: digit.wasm}, {name: Web}]}}
  pluginConfig: [{name: Web, args: {guestURL: 'http://127.0.0.1/x.wasm'}}]"""
    )

    followed = named_files(parse(HEAD + text, "my.yaml", folder))

    assert followed == [folder / "even.wasm", folder / "digit.wasm"]


def test_a_guest_with_a_sample_runs_after_all_other_filters(folder: Path) -> None:
    first = """
- schedulerName: custom-scheduler
  plugins: {filter: {enabled: [{name: EvenNodes}, {name: NodeName}]}, multiPoint: {enabled: [{name: EvenNodes}]}}
  pluginConfig: [{name: EvenNodes, args: {guestURL: even.wasm%s}}]"""

    at_will = filters(built(folder, first % "")["custom-scheduler"])
    sampled = filters(built(folder, first % ", sample: 10")["custom-scheduler"])

    assert at_will[0] == "EvenNodes"
    assert sampled == [*at_will[1:], "EvenNodes"]


def test_an_installed_plugin_takes_precedence_over_a_guest_of_its_name(folder: Path) -> None:
    class Known(Registry):
        def knows(self, name: str) -> bool:
            return name == "Mine" or super().knows(name)

        def find(self, reference: str, folder: Path | None = None) -> type[Plugin]:
            return IN_TREE["NodeName"] if reference == "Mine" else super().find(reference, folder)

    found = Known(IN_TREE, GuestLibrary()).find_for(
        "Mine", {"guestURL": "even.wasm"}, folder=folder, path="p", args_path="a"
    )

    assert found is IN_TREE["NodeName"]
