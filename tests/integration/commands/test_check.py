"""`custom-scheduler check` as a process: its output and exit status."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple, Protocol

import pytest
import yaml

from scheduler.configuration.load import load, parse
from scheduler.tools.simulator.access.authentication import write_kubeconfig
from scheduler.tools.simulator.server import ApiServer
from tests.integration.commands.test_check_live import placed_by, taken
from tests.support.builders import pod_object
from tests.support.commands import run_command

pytestmark = pytest.mark.run(by=asyncio.run)

ROOT = Path(__file__).parents[3]
GROUP = "kubescheduler.config.k8s.io"
POLICY = json.dumps(
    {"kind": "Policy", "apiVersion": "v1", "priorities": [{"name": "MostRequestedPriority", "weight": 2}]}
)
BY_CONFIG_MAP = "algorithmSource: {policy: {configMap: {namespace: kube-system, name: rules}}}"


STILLBORN = """
from scheduler.framework import FilterPlugin


class Stillborn(FilterPlugin):
    name = "Stillborn"
    api_version = 1

    def __init__(self) -> None:
        raise RuntimeError("no licence")

    def filter_node(self, state, pod, node):
        return None
"""


PREFERS = """
from scheduler.framework import ScorePlugin


class Prefers(ScorePlugin):
    name = "Prefers"
    api_version = 1

    def score_node(self, state, pod, node):
        return 1
"""


class Written(Protocol):
    """Writes a configuration, from what follows apiVersion and kind."""

    def __call__(self, body: str, version: str = "v1") -> Path: ...


class Said(NamedTuple):
    """What the command left behind."""

    code: int
    out: str
    told: list[str]


def check(*arguments: str | Path, stdin: bytes = b"") -> Said:
    done = run_command("check", *arguments, stdin=stdin)
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode().splitlines())


def without_notes(told: list[str]) -> list[str]:
    return [line for line in told if not line.startswith("warning: ")]


@pytest.fixture
def write(tmp_path: Path) -> Written:
    def written(body: str, version: str = "v1") -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(
            f"apiVersion: {GROUP}/{version}\nkind: KubeSchedulerConfiguration\n{dedent(body)}",
            encoding="utf-8",
        )
        return path

    return written


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "config").glob("*.yaml")))
def test_the_shipped_files_can_be_run(name: str) -> None:
    done = check(f"config/{name}")
    assert done.code == 0, done.told
    assert done.out.startswith(f"config/{name}: valid, profiles ")


def test_a_valid_file_is_reported_with_its_profiles(write: Written) -> None:
    path = write("profiles: [{schedulerName: a}, {schedulerName: b}]")
    done = check(path)
    assert (done.code, done.out) == (0, f"{path}: valid, profiles a, b\n")


def test_errors_of_fields_and_of_plugins_are_reported_together(write: Written) -> None:
    path = write(
        """
        paralelism: 3
        podMaxBackoffSeconds: 0
        profiles:
        - plugins: {filter: {enabled: [{name: Nope}]}}
          pluginConfig:
          - {name: NodeAffinity, args: {addedAfinity: {}}}
          - {name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}
        """
    )
    done = check(path)
    assert (done.code, done.out) == (2, "")
    faults = without_notes(done.told)
    assert {line.removeprefix(f"error: {path}: ").partition(": ")[0] for line in faults} == {
        "paralelism",
        "podMaxBackoffSeconds",
        "profiles[0].plugins",
        "profiles[0].pluginConfig[1].args.hardPodAffinityWeight",
        "profiles[0].pluginConfig[0].args.addedAfinity",
    }


def test_errors_of_every_stage_are_reported_together_and_apart_from_warnings(
    write: Written, tmp_path: Path
) -> None:
    (tmp_path / "stillborn.py").write_text(STILLBORN)
    path = write(
        """
        paralelism: 3
        enableProfiling: false
        podMaxBackoffSeconds: 0
        profiles:
        - plugins:
            multiPoint: {enabled: [{name: stillborn.py}, {name: absent.py}]}
            score: {enabled: [{name: NodeUnschedulable}, {name: unread.py}]}
            bind: {disabled: [{name: "*"}]}
          pluginConfig:
          - {name: NodeResourceFit}
          - {name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}
          - {name: NodeLoad}
        extenders: [{urlPrefix: nowhere}]
        """
    )
    done = check(path)
    kinds = [
        line.removeprefix(f"{kind}: {path}: ").split(": ")[0]
        for line in done.told
        for kind in [line.split(": ")[0]]
    ]
    assert (done.code, done.out) == (2, "")
    assert [line.split(": ")[0] for line in done.told] == ["warning"] + 10 * ["error"]
    assert kinds[0] == "enableProfiling"
    assert sorted(kinds[1:]) == [
        "extenders[0].urlPrefix",
        "paralelism",
        "podMaxBackoffSeconds",
        "profiles[0].pluginConfig[0].name",
        "profiles[0].pluginConfig[1].args.hardPodAffinityWeight",
        "profiles[0].plugins",  # absent.py
        "profiles[0].plugins",  # unread.py
        "profiles[0].plugins",  # stillborn.py
        "profiles[0].plugins.bind",
        "profiles[0].plugins.score",
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("NodeResourceFit", 'no plugin is called "NodeResourceFit", did you mean "NodeResourcesFit"?', id="near"),
        pytest.param("Tetris", 'no plugin is called "Tetris"', id="far"),
    ],
)  # fmt: skip
def test_arguments_for_an_unknown_plugin_are_refused(write: Written, name: str, expected: str) -> None:
    path = write(f"profiles: [{{pluginConfig: [{{name: {name}, args: {{}}}}]}}]")
    assert check(path) == Said(2, "", [f"error: {path}: profiles[0].pluginConfig[0].name: {expected}"])


@pytest.mark.parametrize("name", ["NodeLoad", "elsewhere.py", "package.module:Class"])
def test_arguments_for_a_plugin_that_is_not_enabled_have_no_effect(write: Written, name: str) -> None:
    path = write(f"profiles: [{{pluginConfig: [{{name: '{name}', args: {{}}}}]}}]")
    done = check(path)
    assert done.code == 0
    assert done.told == [
        f'warning: {path}: profiles[0].pluginConfig[0]: has no effect: the profile does not enable "{name}"'
    ]


def test_the_protection_of_a_plugin_that_does_not_preempt_has_no_effect(write: Written) -> None:
    plugins = "plugins: {postFilter: {disabled: [{name: '*'}], enabled: [{name: CapacityScheduling}]}}"
    of = "{{name: {}, args: {{protection: {{minRunTime: {{preemption: 1h}}}}}}}}".format
    path = write(
        f"profiles: [{{{plugins}, pluginConfig: [{of('DefaultPreemption')}, {of('CapacityScheduling')}]}}]"
    )
    done = check(path)
    assert done.code == 0
    assert done.told == [
        (
            f"warning: {path}: profiles[0].pluginConfig[0].args.protection: "
            'has no effect: the profile does not enable "DefaultPreemption" at postFilter'
        )
    ]


def test_a_plugin_that_cannot_be_built_is_an_error(write: Written, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STILLBORN)
    done = check(write("profiles: [{plugins: {filter: {enabled: [{name: mine.py}]}}}]"))
    assert done.code == 2
    assert "no licence" in without_notes(done.told)[0]


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        pytest.param("def version(self): return 'now'", "version: a whole number is expected, was 'now'", id="type"),
        pytest.param("def versions(self): return 1", "versions: the contract has no such member; did you mean version?", id="name"),
    ],
)  # fmt: skip
def test_a_wrong_function_is_reported_with_its_file_and_what_is_expected(
    write: Written, tmp_path: Path, member: str, expected: str
) -> None:
    (tmp_path / "mine.py").write_text(f"{PREFERS}\n    {member}\n")

    done = check(write("profiles: [{plugins: {score: {enabled: [{name: mine.py}]}}}]"))

    assert done.code == 2
    told = "\n".join(without_notes(done.told))
    assert "profiles[0].plugins: plugin mine.py: " in told
    assert expected in told


def test_errors_of_plugins_have_their_place_in_a_file_of_an_old_version(write: Written) -> None:
    path = write(
        """
        plugins: {score: {disabled: [{name: NodeResourcesLeastAllocated}], enabled: [{name: NodeResourcesMostAllocated}]}}
        pluginConfig:
        - {name: NodeLabel, args: {}}
        - {name: NodeResourcesMostAllocated, args: {resources: [{name: cpu, weight: 101}]}}
        """,
        "v1alpha1",
    )
    done = check(path)
    assert done.code == 2
    assert [line for line in done.told if "pluginConfig[1].args.resources[0].weight: " in line]


def test_notes_are_printed_and_are_no_errors(write: Written) -> None:
    path = write("healthzBindAddress: 0.0.0.0:10251", "v1beta2")
    done = check(path)
    assert done.code == 0
    assert [
        line for line in done.told if line.startswith(f"warning: {path}: healthzBindAddress: has no effect: ")
    ]
    assert done.out.endswith(f"; apiVersion {GROUP}/v1beta2, --convert prints it as {GROUP}/v1\n")


def test_a_file_of_an_old_version_is_printed_in_the_current_version(write: Written) -> None:
    path = write("algorithmSource: {provider: ClusterAutoscalerProvider}\nschedulerName: mine", "v1alpha1")
    done = check("--convert", path)
    assert done.code == 0
    assert done.out.startswith(f"apiVersion: {GROUP}/v1\nkind: KubeSchedulerConfiguration\n")
    assert parse(done.out) == load(path)


def test_an_invalid_file_is_not_converted(write: Written) -> None:
    done = check("--convert", write("disablePreemption: 3", "v1beta1"))
    assert (done.code, done.out) == (2, "")


def test_a_file_may_be_standard_input() -> None:
    done = check("-", stdin=POLICY.encode())
    assert done.code == 0
    assert done.out.startswith("standard input: valid, profiles custom-scheduler; apiVersion v1, ")
    assert check("-", stdin=b"\xff").told == ["error: standard input: not UTF-8: byte 0"]


@pytest.mark.parametrize("as_config_map", [True, False])
def test_a_policy_in_a_config_map_is_given_as_a_file(
    write: Written, tmp_path: Path, as_config_map: bool
) -> None:
    given = tmp_path / "rules.yaml"
    config_map = {"kind": "ConfigMap", "metadata": {"name": "rules"}, "data": {"policy.cfg": POLICY}}
    given.write_text(json.dumps(config_map) if as_config_map else POLICY)

    done = check("--convert", "--policy-config-map", given, write(BY_CONFIG_MAP, "v1alpha1"))

    assert done.code == 0, done.told
    assert "MostAllocated" in done.out


def test_without_the_policy_file_the_flag_for_it_is_named(write: Written) -> None:
    path = write(BY_CONFIG_MAP, "v1alpha1")
    done = check(path)
    assert done.code == 2
    missing, way = done.told
    assert missing.startswith(
        f"error: {path}: algorithmSource.policy.configMap: the policy in ConfigMap kube-system/rules was"
    )
    assert way == f"error: {path}: --policy-config-map FILE gives it to check"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            {"metadata": {"name": "other"}, "data": {"policy.cfg": POLICY}},
            "metadata: must be ConfigMap kube-system/rules, which the configuration names, "
            "was ConfigMap kube-system/other",
            id="another one",
        ),
        pytest.param(
            {"data": {"policy.yaml": POLICY}}, "data: has no key policy.cfg; it has policy.yaml", id="key"
        ),
        pytest.param({}, "data: has no key policy.cfg; it has none", id="empty"),
    ],
)
def test_a_config_map_without_the_policy_is_refused(
    write: Written,
    tmp_path: Path,
    given: dict[str, object],
    expected: str,
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"kind": "ConfigMap", **given}))
    done = check("--policy-config-map", file, write(BY_CONFIG_MAP, "v1alpha1"))
    assert (done.code, done.told) == (2, [f"error: {file}: {expected}"])


def test_an_unreferenced_config_map_is_refused(write: Written, tmp_path: Path) -> None:
    done = check("--policy-config-map", tmp_path / "x", write(""))
    assert done.code == 2
    assert "is not needed" in done.told[0]


def test_a_missing_file_is_reported() -> None:
    assert check("nowhere.yaml") == Said(
        2, "", ["error: nowhere.yaml: cannot be read: No such file or directory"]
    )


# What it says of roles, sizes and clusters.


def test_the_roles_of_a_file_and_of_the_defaults_are_printed(write: Written) -> None:
    defaults = check("--rbac")
    assert (defaults.code, defaults.told) == (0, [])
    assert defaults.out == (ROOT / "manifests" / "base" / "rbac.yaml").read_text()

    path = write("profiles: [{plugins: {multiPoint: {disabled: [{name: DefaultPreemption}]}}}]")
    for arguments in (("--config", path), (path,)):
        own = check("--rbac", *arguments, "--service-account", "team/mine", "--config-map", "team/rules")
        assert own.code == 0
        assert "DefaultPreemption" not in own.out
        assert "metadata: {name: mine, namespace: team}" in own.out
        assert "resourceNames: [rules]" in own.out


def test_a_plugin_that_names_a_malformed_right_is_an_error(write: Written, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        dedent(
            """
            from scheduler.framework import Needs, ScorePlugin


            class Mine(ScorePlugin):
                name = "Mine"
                api_version = 1
                needs = Needs(rights=frozenset({"secrets"}))

                def score_node(self, state, pod, node):
                    return 0
            """
        )
    )
    done = check("--rbac", write("profiles: [{plugins: {multiPoint: {enabled: [{name: mine.py}]}}}]"))
    assert done.code == 2
    assert done.told[-1].endswith("with an optional /subresource, was 'secrets'")


def test_a_plugin_that_may_call_the_api_server_without_named_rights_is_reported(
    write: Written, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        dedent(
            """
            from scheduler.framework import ApiGet, ScorePlugin


            class Mine(ScorePlugin):
                name = "Mine"
                api_version = 1

                def __init__(self, *, api: ApiGet) -> None:
                    self._api = api

                def score_node(self, state, pod, node):
                    return 0
            """
        )
    )
    done = check("--rbac", write("profiles: [{plugins: {multiPoint: {enabled: [{name: mine.py}]}}}]"))
    assert done.code == 0
    assert done.told == [
        "warning: plugin Mine sends requests to the API server, but its `needs` list no rights"
    ]


def test_a_size_is_printed_as_a_patch() -> None:
    done = check("--size", "5000")
    assert done.code == 0
    assert "kind: Deployment\nmetadata: {name: custom-scheduler, namespace: kube-system}\n" in done.out
    assert check("--size", "many").code == 2


@pytest.mark.parametrize(
    "arguments", [("--rbac", "--live"), ("--convert", "--size", "5"), ("a.yaml", "--config", "b.yaml")]
)
def test_conflicting_flags_are_refused(arguments: tuple[str, ...]) -> None:
    done = check(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "cannot be combined with" in done.told[0]


def test_an_unreachable_server_is_reported(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", None, "nobody")
    done = check("--live", "--kubeconfig", kubeconfig)
    assert (done.code, done.out) == (1, "")
    assert done.told[0].startswith("error: the API server does not answer: POST ")


async def test_missing_rights_and_a_taken_lease_have_their_own_exit_status(tmp_path: Path) -> None:
    """Three runs against one cluster: without roles, with those that are printed, and with somebody else at work."""
    user = ("--as", "system:serviceaccount:kube-system:custom-scheduler")

    async with ApiServer(tls=True, rbac=True) as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "admin")

        async def live() -> Said:
            return await asyncio.to_thread(check, "--live", "--kubeconfig", kubeconfig, *user)

        bare = await live()
        assert bare.code == 3
        lines = bare.out.splitlines()
        count = len(taken())
        assert lines[0] == f"rights: {count} of {count} are missing"
        assert "missing: delete pods (DefaultPreemption)" in lines
        assert (
            'missing: update leases.coordination.k8s.io "custom-scheduler" in kube-system (leader election)'
            in lines
        )
        advice = lines.index(
            "add these rules to the ClusterRole custom-scheduler, or apply the output of --rbac:"
        )
        assert lines[advice + 1 : advice + 3] == ["# the cluster", "- apiGroups: ['']"]

        for obj in yaml.safe_load_all(check("--rbac").out):
            plural = f"{obj['kind'].lower()}s.rbac.authorization.k8s.io"
            server.store.create(plural, obj, namespace=obj["metadata"].get("namespace", ""))
        well = await live()
        assert (well.code, well.told) == (0, [])
        assert well.out.splitlines() == [
            "rights: complete",
            "kinds: the API server, v1.36.2, serves them all",
            "names: no other scheduler uses the lease or these schedulerNames",
        ]

        account = {"serviceAccountName": "other"}
        other = pod_object("other", namespace="kube-system")
        server.store.create("pods", other | {"spec": other["spec"] | account}, namespace="kube-system")
        placed_by(server, "custom-scheduler", "other")
        beside = await live()
        assert beside.code == 4
        assert (
            "the pod kube-system/other of ServiceAccount other places pods of that name as well" in beside.out
        )


def test_arguments_of_a_plugin_that_cannot_be_loaded_are_no_second_error(
    write: Written, tmp_path: Path
) -> None:
    (tmp_path / "team_fence.py").write_text("raise RuntimeError")
    path = write(
        "profiles: [{plugins: {multiPoint: {enabled: [{name: team_fence.py}]}}, "
        "pluginConfig: [{name: TeamFence, args: {label: x}}]}]"
    )

    errors = check(path).told

    assert len(errors) == 1
    assert "team_fence.py" in errors[0]


@pytest.mark.parametrize(
    ("flag", "printed"),
    [
        ("--karpenter", "# Karpenter needs no settings for this profile.\n"),
        ("--cluster-autoscaler", "# Cluster Autoscaler needs no settings for this profile.\n"),
    ],
)
def test_settings_of_an_autoscaler_are_printed_and_unknown_rules_are_warnings(
    write: Written, flag: str, printed: str
) -> None:
    file = write("profiles: [{plugins: {multiPoint: {enabled: [{name: CapacityScheduling}]}}}]")
    done = check(flag, file)
    assert (done.code, done.out) == (0, printed)
    begins = f"warning: {file}: profiles[0]: CapacityScheduling rejects pods or nodes, and "
    assert [line for line in done.told if line.startswith(begins)]
