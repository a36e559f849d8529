"""The client of the process that forks commands: `python -IS forked_command.py SOCKET PROGRAM ARGUMENT...`.

It runs in place of each command, so it imports modules in C only: it starts in 10 ms.
"""

import _signal
import _socket
import os
import sys

ANSWER_BYTES = 8
_FORWARDED = (
    _signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2,
    _signal.SIGTSTP, _signal.SIGCONT,
)  # fmt: skip
# No program can forward SIGSTOP, and the kernel may ignore SIGTSTP.
_SENT = {_signal.SIGTSTP: _signal.SIGSTOP}


def request(arguments, folder, environment):  # noqa: ANN001 - typing takes 10 ms to import
    """Return the message that asks for a command: its length, folder, number of arguments, arguments and environment."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    text = "\0".join([folder, str(len(arguments)), *arguments, *variables])
    encoded = text.encode(errors="surrogateescape")
    return len(encoded).to_bytes(ANSWER_BYTES, "big") + encoded


def number(answer):  # noqa: ANN001
    """Return the number in an answer: first the id of the forked process, then its exit status as `Popen.returncode`."""
    return int.from_bytes(answer, "big", signed=True)


def _main(path, *arguments):  # noqa: ANN001, ANN002, ANN202
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _FORWARDED)  # until the process is known that receives them
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(path)
    streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2))
    asked = request(arguments, os.getcwd(), os.environ)  # noqa: PTH109
    sent = connection.sendmsg([asked], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    while sent < len(asked):
        sent += connection.send(asked[sent:])
    process = number(connection.recv(ANSWER_BYTES))
    for name in _FORWARDED:
        _signal.signal(name, lambda received, _: os.kill(process, _SENT.get(received, received)))
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _FORWARDED)
    status = number(connection.recv(ANSWER_BYTES))
    if status < 0:
        if -status != _signal.SIGKILL:
            _signal.signal(-status, _signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    _main(*sys.argv[1:])
