"""Runs of Python without the cost of imports: a server process imports modules once and forks for every run.

A run has its own arguments, environment, working directory, streams, __main__, exit status and atexit
functions, but the modules are already imported when it starts. A test of imports therefore starts a new
Python process.
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
ANSWER = struct.Struct("i")  # for each run two answers: its process id, then its exit status


class ForkServer:
    """A Python process that has imported the modules and starts runs like those of subprocess.run."""

    def __init__(self, python, modules, env=None):
        self.python = str(python)
        self._socket, server_socket = socket.socketpair()
        with server_socket:
            handle = server_socket.fileno()
            command = [self.python, __file__, str(handle), *modules]
            self._process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, pass_fds=[handle])

    def run(self, *arguments, env=None, cwd=None, timeout=300, stdout=None):
        """Run Python with these arguments and return its result. stdout may be a file descriptor."""
        arguments = [str(argument) for argument in arguments]
        request = {"arguments": arguments, "env": dict(env or os.environ), "cwd": str(cwd or os.getcwd())}
        with open(os.devnull) as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            streams = [nothing.fileno(), out.fileno() if stdout is None else stdout, err.fileno()]
            socket.send_fds(self._socket, [b"."], streams)
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            status = self._wait(arguments, timeout)
            printed = []
            for stream in (out, err):
                stream.seek(0)
                printed.append(stream.read().decode(errors="replace"))
        return subprocess.CompletedProcess(arguments, status, *printed)

    def _wait(self, arguments, timeout):
        child = self._receive()
        readable, *_ = select.select([self._socket], [], [], timeout)
        if not readable:
            os.kill(child, signal.SIGKILL)
        status = self._receive()
        if not readable:
            raise subprocess.TimeoutExpired(arguments, timeout)
        return status

    def _receive(self):
        answer = self._socket.recv(ANSWER.size, socket.MSG_WAITALL)
        assert answer, f"{self.python} ended before its run did"
        return ANSWER.unpack(answer)[0]

    def close(self):
        """End the server."""
        self._socket.close()
        self._process.wait()


# ---- in the server ---------------------------------------------------------------------------------


def next_run(server_socket):
    """Fork a process for every request and return the request in that process, never in the server."""
    requests = server_socket.makefile()
    while True:
        _, streams, *_ = socket.recv_fds(server_socket, 1, STREAMS)
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
            server_socket.close()
            return json.loads(line)
        server_socket.sendall(ANSWER.pack(child))
        _, status = os.waitpid(child, 0)
        server_socket.sendall(ANSWER.pack(os.waitstatus_to_exitcode(status)))


def run_in_this_process(arguments, env, cwd):
    """Do what a new Python process with these arguments, environment and working directory would do."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    program, *rest = arguments
    if program == "-m":
        sys.path[0] = cwd
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if program == "-c":
        sys.path[0], name = "", "<string>"
        source, *rest = rest
    else:
        sys.path[0], name = os.path.dirname(program), program
        main.__file__ = program
        with open(program, encoding="utf-8") as file:
            source = file.read()
    sys.argv = [program, *rest]
    exec(compile(source, name, "exec"), vars(main))


if __name__ == "__main__":
    handle, *names = sys.argv[1:]
    for name in names:
        importlib.import_module(name)
    gc.freeze()  # so that the collection at a run's end does not visit the imported objects
    run_in_this_process(**next_run(socket.socket(fileno=int(handle))))
