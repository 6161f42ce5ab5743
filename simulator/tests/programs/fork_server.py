"""Python processes that begin with their imports done: one process imports, and forks for every run.

A run has what a process of its own has: arguments, environment, folder, streams, __main__, exit status, and
an end with atexit and all. Only what happens while the modules are imported happened before. A test that is
about imports starts a Python.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import types

STREAMS = 3
ANSWER = struct.Struct("i")  # a run's process, then its status


class ForkServer:
    """A Python that has imported these modules, for runs like those of subprocess.run."""

    def __init__(self, python, modules, env=None):
        self.python = str(python)
        self._socket, theirs = socket.socketpair()
        with theirs:
            handle = theirs.fileno()
            command = [self.python, __file__, str(handle), *modules]
            self._process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, pass_fds=[handle])

    def run(self, *arguments, env=None, cwd=None, timeout=300, stdout=None):
        """Run Python with these arguments and return its result. stdout may be a file descriptor."""
        arguments = [str(argument) for argument in arguments]
        wanted = {"arguments": arguments, "env": dict(env or os.environ), "cwd": str(cwd or os.getcwd())}
        with open(os.devnull) as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            streams = [nothing.fileno(), out.fileno() if stdout is None else stdout, err.fileno()]
            socket.send_fds(self._socket, [b"."], streams)
            self._socket.sendall(json.dumps(wanted).encode() + b"\n")
            status = self._wait(arguments, timeout)
            printed = []
            for stream in (out, err):
                stream.seek(0)
                printed.append(stream.read().decode())
        return subprocess.CompletedProcess(arguments, status, *printed)

    def _wait(self, arguments, timeout):
        child = self._answer()
        ended, *_ = select.select([self._socket], [], [], timeout)
        if not ended:
            os.kill(child, signal.SIGKILL)
        status = self._answer()
        if not ended:
            raise subprocess.TimeoutExpired(arguments, timeout)
        return status

    def _answer(self):
        said = self._socket.recv(ANSWER.size, socket.MSG_WAITALL)
        assert said, f"{self.python} ended before its run did"
        return ANSWER.unpack(said)[0]

    def close(self):
        """End the server."""
        self._socket.close()
        self._process.wait()


# ---- in the server ---------------------------------------------------------------------------------


def next_run(asked):
    """Return the next program to run, in a new process for every run. The server itself never returns."""
    requests = asked.makefile()
    while True:
        _, streams, *_ = socket.recv_fds(asked, 1, STREAMS)
        line = requests.readline()
        if not line:
            os._exit(0)
        child = os.fork()
        if not child:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
        for stream in streams:
            os.close(stream)
        if not child:
            requests.close()
            asked.close()
            return json.loads(line)
        asked.sendall(ANSWER.pack(child))
        _, status = os.waitpid(child, 0)
        asked.sendall(ANSWER.pack(os.waitstatus_to_exitcode(status)))


def become(arguments, env, cwd):
    """This process is now a Python that was started so."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    first, *rest = arguments
    if first == "-m":
        sys.path[0] = cwd
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        sys.path[0], name = "", "<string>"
        source, *rest = rest
    else:
        sys.path[0], name = os.path.dirname(first), first
        main.__file__ = first
        with open(first, encoding="utf-8") as file:
            source = file.read()
    sys.argv = [first, *rest]
    exec(compile(source, name, "exec"), vars(main))


if __name__ == "__main__":
    handle, *names = sys.argv[1:]
    for wanted in names:
        importlib.import_module(wanted)
    gc.freeze()  # or a run's end looks through all that was imported
    become(**next_run(socket.socket(fileno=int(handle))))
