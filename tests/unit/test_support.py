"""What tests use: programs, shared folders, the order and reports of tests, ports, virtual time, commands of documents and shells."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from pathlib import Path

import pytest

from scheduler.worker_thread import THREAD_NAME, in_a_thread
from tests.support import virtual_time
from tests.support.binaries import needed_binary
from tests.support.documented_commands import commands, missing
from tests.support.image import built_once
from tests.support.manifests import ROOT
from tests.support.order_of_tests import BOARD, LONG, PAGES, long_first, together
from tests.support.ports import free_port
from tests.support.terminal import terminal


def test_a_forked_worker_writes_no_logs_to_files_of_its_controller() -> None:
    files = [each for each in logging.getLogger().handlers if isinstance(each, logging.FileHandler)]

    assert len(files) == 1, "the one of pytest in this process"


def test_an_installed_program_is_found() -> None:
    assert Path(needed_binary("sh", "every system")).is_file()


def test_a_missing_program_skips_the_test_and_names_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(
        pytest.skip.Exception, match="no-such-program is not installed; it comes with a package"
    ):
        needed_binary("no-such-program", "a package")


def test_in_ci_a_missing_program_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match="no-such-program is not installed"):
        needed_binary("no-such-program", "a package")


def test_a_shared_folder_is_built_once_and_removed_by_its_last_user(tmp_path: Path) -> None:
    built: list[Path] = []
    with built_once(tmp_path / "state", built.append) as first:
        with built_once(tmp_path / "state", built.append) as second:
            assert second == first
        assert first.is_dir()

    assert built == [first]
    assert not first.exists()


def test_a_shared_folder_that_could_not_be_built_is_removed_and_built_again(tmp_path: Path) -> None:
    tried: list[Path] = []

    def fail(folder: Path) -> None:
        tried.append(folder)
        raise ValueError

    with pytest.raises(ValueError), built_once(tmp_path / "state", fail):  # noqa: PT011 - the one above
        pass

    assert [folder.exists() for folder in tried] == [False]
    with built_once(tmp_path / "state", tried.append) as folder:
        assert tried[1] == folder


def test_modules_with_long_tests_begin_all_parts_in_turn() -> None:
    short = [f"tests/unit/test_{module}.py::{number}" for module in "ab" for number in range(4)]
    hostile = [f"tests/hostile/test_hostile.py::{number}" for number in range(2)]
    pages = [f"{PAGES}::{number}" for number in range(2)]

    ordered = long_first([*hostile, *pages, *short], together, 2)

    assert ordered == [pages[0], *hostile, *short[:3], pages[1], *short[3:]]


def test_modules_that_share_a_browser_stay_together() -> None:
    board = [f"{BOARD}/{module}.py::{number}" for module in "ab" for number in range(2)]
    short = [f"tests/unit/{module}.py::0" for module in "cdef"]

    assert long_first([*board, *short], together, 2) == [*board, *short]


def test_one_process_runs_all_tests_with_long_ones_first() -> None:
    assert long_first(["tests/a.py::0", "tests/process/b.py::0"], together, 1) == [
        "tests/process/b.py::0",
        "tests/a.py::0",
    ]


def test_the_folders_of_long_tests_exist() -> None:
    assert [folder for folder in LONG if not (ROOT / folder).is_dir()] == []
    assert (ROOT / PAGES).is_file()
    assert BOARD in LONG


def test_no_connection_is_accepted_before_the_server_listens() -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", free_port()))


def test_another_socket_cannot_be_bound_to_the_port() -> None:
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", free_port()))


async def test_a_server_can_listen_on_the_port() -> None:
    port = free_port()
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", port) as server:
        assert server.sockets[0].getsockname()[1] == port


async def test_a_read_takes_no_time_even_if_it_ends_while_the_loop_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends, first_look = threading.Event(), iter([True])

    def ends_meanwhile() -> bool:
        threads = [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]
        if threads and next(first_look, False):
            return True
        ends.set()
        for thread in threads:
            thread.join()
        return False

    monkeypatch.setattr(virtual_time, "_is_reading", ends_meanwhile)

    await asyncio.wait_for(in_a_thread(ends.wait, "reading", gives_up=False), 1.0)

    assert asyncio.get_running_loop().time() == 0.0


async def test_a_condition_is_looked_at_again_once_something_could_have_changed_it() -> None:
    loop, looks = asyncio.get_running_loop(), []
    one, other = socket.socketpair()

    async def look() -> None:
        await virtual_time.next_poll(0.01)
        looks.append(round(loop.time(), 3))

    async def answer() -> None:
        await loop.sock_recv(other, 1)
        await asyncio.sleep(1.234)

    one.setblocking(False)
    other.setblocking(False)
    with one, other:
        timer = loop.call_later(60, str)
        task = asyncio.create_task(answer())
        await look()  # the task has not begun
        one.send(b" ")
        await look()  # the data has not been read
        await look()
        await look()
        timer.cancel()
        await look()  # no timer is left
        await task

    assert looks == [0.01, 0.02, 1.25, 60.0, 60.01]


async def test_a_condition_is_looked_at_last_at_its_deadline() -> None:
    loop = asyncio.get_running_loop()
    timer = loop.call_later(60, str)
    await virtual_time.next_poll(0.1, loop.time() + 0.75)
    timer.cancel()

    assert loop.time() == pytest.approx(0.8)


async def test_an_async_test_runs_in_virtual_time() -> None:
    await asyncio.sleep(3600.0)

    assert asyncio.get_running_loop().time() == 3600.0


@pytest.mark.run(by=asyncio.run)
async def test_an_async_test_runs_with_the_function_of_its_mark() -> None:
    assert not isinstance(asyncio.get_running_loop(), virtual_time.VirtualTimeLoop)


def test_a_missing_output_line_is_reported():
    assert missing(("b  c",), "a\nb c\n") == []
    assert missing(("d", "a"), "a\nd\n") == ["a"]


def test_commands_are_the_lines_of_console_blocks(tmp_path: Path):
    document = tmp_path / "a.md"
    document.write_text("```sh\nnot this\n```\n\n```console\n$ one\nshown\n$ two\n```\n")

    assert [(command.text, command.shown) for command in commands(document)] == [
        ("one", ("shown",)),
        ("two", ()),
    ]


@pytest.mark.run(by=asyncio.run)
async def test_a_shell_keeps_exported_variables_and_returns_the_status_of_a_command(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        await shell.run("export A=b")
        assert (await shell.run("echo $A")).printed.split() == ["b"]
        assert (await shell.run("ls no-such-file | cat")).status == 2
        assert (await shell.run("ls manifests/base/kustomization.yaml")).status == 0


def test_workers_send_one_report_of_a_test_that_passed(request: pytest.FixtureRequest):
    hooks = request.config.hook.pytest_runtest_protocol.get_hookimpls()

    assert "pytest_runtest_protocol_with_one_report" in {hook.function.__name__ for hook in hooks}
