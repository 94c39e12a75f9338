"""Processes that the rows of the edge start: nodes of Tidegate, PostgreSQL, and a backend that sends back what comes."""

import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait(what, holds, patience=PATIENCE, pause=0.005):
    """Looks until something holds; how long that took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > patience:
            raise SystemExit(f"in vain: {what}")
        time.sleep(pause)
    return time.monotonic() - began


def echo():
    """The port of a backend in this process that sends back what comes, on as many connections as there are."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    listener.setblocking(False)
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    held = {}

    def serve():
        while True:
            for number, _ in poll.poll():
                if number == listener.fileno():
                    try:
                        while True:
                            stream, _ = listener.accept()
                            held[stream.fileno()] = stream
                            poll.register(stream.fileno(), select.EPOLLIN)
                    except BlockingIOError:
                        continue
                stream = held[number]
                try:
                    came = stream.recv(65536)
                    if came:
                        stream.sendall(came)
                except OSError:
                    came = b""
                if not came:
                    poll.unregister(number)
                    held.pop(number).close()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


class Node:
    """`tidegate serve` with a file, in a folder of its own."""

    def __init__(self, program, folder, file, environment=None, socket_3=None):
        self.folder, self.pages = pathlib.Path(folder), free_port()
        self.folder.mkdir()
        (self.folder / "node.toml").write_text(
            f'data_dir = "{self.folder}/data"\nlog.level = "warn"\nmemory.snapshot = false\nintake.listen = "off"\n'
            f'http.listen = "127.0.0.1:{self.pages}"\ngrpc.listen = "127.0.0.1:0"\nresp.listen = "127.0.0.1:0"\n{file}'
        )
        command, passed = [program, "serve", "--config", str(self.folder / "node.toml")], ()
        if socket_3 is not None:
            # As a service manager passes a socket on.
            number = socket_3.fileno()
            script = f'exec 3<&{number}; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$0" "$@"'
            command, passed = ["sh", "-c", script, *command], (number,)
        self.log = open(self.folder / "log", "wb+")
        self.child = subprocess.Popen(
            command, stdout=self.log, stderr=self.log, pass_fds=passed, env={**os.environ, **(environment or {})}
        )
        wait(f"{program} starts: {self.said}", lambda: "try it:" in self.said() or self.child.poll() is not None)
        if self.child.poll() is not None:
            raise SystemExit(f"{program} does not start: {self.said()}")

    def said(self):
        return (self.folder / "log").read_text(errors="replace")

    def ask(self, method, url, body=None):
        """Status and JSON of a reply."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, None

    def metric(self, series):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.pages}/metrics", timeout=30) as page:
            found = re.search(rf"^{re.escape(series)} (\S+)$", page.read().decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def stop(self):
        self.child.terminate()

    def end(self):
        if self.child.poll() is None:
            self.child.terminate()
        try:
            self.child.wait(40)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Postgres:
    """A cluster in a folder; `None` from `installed` where PostgreSQL is not installed."""

    @staticmethod
    def installed():
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        return str(found[-1].parent) if found else (os.path.dirname(shutil.which("postgres") or "") or None)

    def __init__(self, folder):
        self.bin, self.port, self.folder = self.installed(), free_port(), pathlib.Path(folder)
        self.folder.mkdir()
        self.user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.getuid() == 0 else []
        if self.user:
            shutil.chown(self.folder, "postgres", "postgres")
        initdb = [f"{self.bin}/initdb", "-D", f"{self.folder}/data", "-A", "trust", "-U", "postgres", "--no-sync"]
        subprocess.run([*self.user, *initdb], check=True, capture_output=True)
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres"
        self.start()

    def start(self):
        """Starts it; returns when it answers."""
        command = [f"{self.bin}/postgres", "-D", f"{self.folder}/data", "-p", str(self.port)]
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
        command += [word for setting in settings for word in ("-c", setting)]
        self.child = subprocess.Popen(
            [*self.user, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        ready = [f"{self.bin}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        wait("PostgreSQL starts", lambda: subprocess.run(ready).returncode == 0)

    def family(self):
        """It and its processes."""
        children = pathlib.Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()
        return [self.child.pid, *map(int, children)]

    def signal(self, number):
        for pid in self.family():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def crash(self):
        """Kills it and its processes, as a crash of the machine would."""
        self.signal(signal.SIGSTOP)
        pids = self.family()
        self.signal(signal.SIGKILL)
        self.child.wait()
        wait("its processes end", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids[1:]))

    def end(self):
        if self.child.poll() is None:
            self.signal(signal.SIGCONT)
            self.child.send_signal(signal.SIGINT)
            self.child.wait(30)
