"""The start of every command."""

from __future__ import annotations

import errno
import gc
import os
import shlex
import subprocess
import sys
from importlib import import_module

import pytest
from click.testing import CliRunner

from scheduler.cli import main
from scheduler.cli.command import _FIRST_STEPS, COMMANDS, _commands, _run
from scheduler.version import VERSION
from tests.support.commands import run_command
from tests.support.errors import raises


def test_garbage_collection_runs_during_a_command_but_skips_its_modules(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["custom-scheduler", "run", "--help"])
    # The modules may be imported, and frozen, by an earlier test: these objects stand for them.
    before, loaded = gc.get_freeze_count(), [[] for _ in range(2000)]

    with pytest.raises(SystemExit) as ended:
        main()

    assert (ended.value.code, len(loaded)) == (0, 2000)
    assert "--kubeconfig" in capsys.readouterr().out
    assert gc.isenabled()
    assert gc.get_freeze_count() > before + 1000


_THREADS = """
import os, sys
from scheduler.cli import main
sys.argv = ["custom-scheduler", "run", "--help"]
try:
    main()
except SystemExit:
    print("threads:", len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted where Linux lists them")  # noqa: PTH112
def test_the_imports_of_run_start_no_threads() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}

    ended = subprocess.run(
        [sys.executable, "-c", _THREADS], env=environment, capture_output=True, text=True, check=True
    )

    assert ended.stdout.endswith("threads: 1\n")


def said(*words: str, **environment: str) -> str:
    done = run_command(*words, environment=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def test_without_arguments_the_help_is_printed() -> None:
    shown = said()

    assert shown == said("--help")
    assert all(f"\n  {command} " in shown for command in COMMANDS)
    assert shown.index("First steps:") > shown.index("Commands:")
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("step", _FIRST_STEPS, ids=lambda step: str(step[0]))
def test_each_first_step_is_an_existing_command(step: tuple[str, str]) -> None:
    words = [word for word in step[0].split() if not word.isupper()]

    assert "Usage:" in said(*words, "--help")


def test_the_version_is_printed() -> None:
    assert said("--version") == f"custom-scheduler {VERSION}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_instructions_are_printed_for_a_shell(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with raises(SystemExit, code=0):
        _commands.main(["completion", shell], prog_name="racks-scheduler")
    assert f"_RACKS_SCHEDULER_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("", [f"plain,{command}" for command in COMMANDS], id="commands"),
        pytest.param("run --kubec", ["plain,--kubeconfig"], id="a flag"),
        pytest.param("run --logging-format ", ["plain,text", "plain,json"], id="values of a flag"),
        pytest.param("new ", ["plain,plugin"], id="the next word"),
        pytest.param("check ", ["file,"], id="files"),
    ],
)
def test_bash_completes(
    words: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    *before, _ = f"custom-scheduler {words}".split(" ")
    monkeypatch.setenv("COMP_WORDS", f"custom-scheduler {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(before)))
    monkeypatch.setenv("_CUSTOM_SCHEDULER_COMPLETE", "bash_complete")

    with pytest.raises(SystemExit):
        _commands.main([], prog_name="custom-scheduler")

    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize("arguments", ["check", "check --convert", "check --rbac", "--help"])
def test_a_full_disk_is_reported_in_one_line(arguments: str) -> None:
    done = redirected(f"{arguments} >/dev/full")

    assert (done.returncode, done.stderr) == (
        1,
        "error: the output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("arguments", ["check --convert >&-", "check --rbac >&-", "check no-such-file 2>&-"])
def test_streams_may_be_closed(arguments: str) -> None:
    done = redirected(arguments)

    assert (done.returncode, done.stdout, done.stderr) == (2 if "no-such" in arguments else 0, "", "")


def test_a_broken_pipe_that_is_not_the_output_is_an_error() -> None:
    def hung_up() -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        _run(hung_up)


def test_a_command_whose_package_is_missing_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "scheduler.cli.demo", None)  # so that it cannot be imported
    monkeypatch.setattr("sys.argv", ["custom-scheduler", "demo", "--exit"])

    with raises(SystemExit, code=1):
        main()
    assert capsys.readouterr() == (
        "",
        "error: scheduler.cli.demo is not installed: install custom-scheduler[tools]\n",
    )


def test_a_missing_package_of_others_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.cli.command.import_module", lambda _: import_module("no_such_package"))
    monkeypatch.setattr("sys.argv", ["custom-scheduler", "demo"])

    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        main()


def redirected(arguments: str) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.quote(sys.executable)} -m scheduler {arguments}"
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("explain --server https://x --pod a --config f", "--config needs --cluster"),
        ("explain --server https://x --pod a --sequence", "--sequence needs --cluster"),
        ("explain --server https://x --pod a --scheduler-name x", "--scheduler-name needs --cluster"),
        (
            "explain --server https://x --pod a --feature-gates GangScheduling=false",
            "--feature-gates needs --cluster",
        ),
        ("explain --cluster f --token-file f", "--token-file needs --server"),
        ("explain --cluster f --insecure-skip-tls-verify", "--insecure-skip-tls-verify needs --server"),
        ("replay d --attempt 2", "--attempt and --all-nodes need --pod"),
        ("replay d --all-nodes", "--attempt and --all-nodes need --pod"),
        ("simulate f --gpu-nodes-only", "--gpu-nodes-only needs --nodes"),
    ],
)
def test_an_option_without_effect_is_refused(arguments: str, expected: str) -> None:
    answer = CliRunner().invoke(_commands, arguments.split())

    assert (answer.exit_code, expected in answer.stderr) == (2, True), answer.output


def test_a_mistyped_command_has_a_suggestion() -> None:
    done = run_command("chek", "x.yaml")

    assert done.returncode == 2
    assert b'Error: there is no command "chek", did you mean "check"?' in done.stderr


@pytest.mark.parametrize("words", [(), ("new",), ("new", "plugin"), ("check",), ("why",)], ids=" ".join)
def test_h_is_help(words: tuple[str, ...]) -> None:
    assert said(*words, "-h") == said(*words, "--help")


def test_a_default_is_shown_as_it_is_written() -> None:
    assert "[default: table]" in said("recording", "--help")


def test_the_help_of_new_has_the_whole_sentence() -> None:
    text = " ".join(said("new", "--help").split())

    assert "Write a package with a plugin, its tests, and a profile that enables it." in text
