"""The examples of the READMEs, run as they stand there: from an empty folder to a 429, in a minute."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from support import BINARY, CLIENTS, ROOT, server, until

MARK = "<!-- run by clients/python/tests/test_readme.py -->"
FASTAPI = "<!-- run by clients/python/tests/test_readme.py: fastapi -->"
POLICIES = "<!-- run by clients/python/tests/test_readme.py: policies -->"


def block(page: pathlib.Path, mark: str) -> str:
    found = re.search(re.escape(mark) + r"\n```[a-z]+\n(.*?)```", page.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def example() -> str:
    return block(CLIENTS / "python/README.md", MARK)


def status(port: int) -> str:
    asked = subprocess.run(
        ["curl", "-si", f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=False
    )
    return asked.stdout


def install(folder: pathlib.Path) -> None:
    """Installs the wheel that the README names. Others are where these tests have them."""
    readme = (CLIENTS / "python/README.md").read_text()
    found = re.search(r"^pip install (target/dist/\S+\.whl)$", readme, re.MULTILINE)
    assert found is not None
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--target", str(folder), str(ROOT / found[1])], check=True)


def test_the_example_ends_in_a_429_within_a_minute(tmp_path: pathlib.Path) -> None:
    began = time.monotonic()
    install(tmp_path / "site")
    free = "127.0.0.1:0"
    log = tmp_path / "server"
    with log.open("w") as said:
        command = [BINARY, "serve", "--data-dir", str(tmp_path / "data"), "--http-listen", free]
        server = subprocess.Popen(
            [*command, "--grpc-listen", free, "--resp-listen", free, "--intake-listen", "off"], stdout=said
        )
        try:

            def address() -> str:
                found = re.search(r"decision API +(http://\S+)", log.read_text())
                return found[1] if found else ""

            url = until(address)
            code = example().replace("http://127.0.0.1:4000", url).replace("port=8000", "port=0")
            # It counts on every request being asked, also on a busy machine.
            code = code.replace(f'Client("{url}")', f'Client("{url}", deadline_ms=10_000)')
            (tmp_path / "app.py").write_text(code)
            run(tmp_path)
        finally:
            server.kill()
            server.wait()
    assert time.monotonic() - began < 60


def run(folder: pathlib.Path) -> None:
    with (folder / "said").open("w+") as said:
        environment = os.environ | {"PYTHONPATH": str(folder / "site")}
        app = subprocess.Popen([sys.executable, "app.py"], cwd=folder, stderr=said, env=environment)
        try:

            def port() -> int:
                found = re.search(r"Running on http://127\.0\.0\.1:(\d+)", (folder / "said").read_text())
                return int(found[1]) if found else 0

            listening = until(port)
            replies = [status(listening) for _ in range(101)]
        finally:
            app.kill()
            app.wait()
    assert all(reply.startswith("HTTP/1.1 200") for reply in replies[:100])
    assert replies[100].startswith("HTTP/1.1 429 Too Many Requests")
    assert re.search(r"(?mi)^retry-after: \d+\r?$", replies[100])
    assert re.search(r'(?mi)^ratelimit: "default";r=0;t=\d+\r?$', replies[100])
    assert "application/problem+json" in replies[100]


def test_fastapi_is_limited_as_the_first_page_shows(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = tmp_path / "tidegate.toml"
    defaults.write_text("# The defaults: 100 requests a minute for each client.\n")
    with server(defaults) as started:
        monkeypatch.setenv("TIDEGATE_URL", started.url)
        made: dict[str, Any] = {"FastAPI": FastAPI}
        exec(block(ROOT / "README.md", FASTAPI), made)  # noqa: S102
        with TestClient(made["app"]) as browser:
            # A request that takes longer than the deadline, on a busy machine, is allowed and not counted.
            answers = (browser.get("/").status_code for _ in range(1000))
            allowed = next(count for count, answer in enumerate(answers) if answer == 429)
    assert allowed >= 100


def test_the_migration_pages_command_writes_good_policies(tmp_path: pathlib.Path) -> None:
    command = block(CLIENTS / "python/MIGRATION.md", POLICIES)
    programs = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-ec", command], cwd=tmp_path, env=os.environ | {"PATH": programs}, check=True, timeout=60
    )
    checked = subprocess.run(
        [BINARY, "check", "tidegate.toml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert checked.stdout.endswith("tidegate.toml: good (policies: 2, overrides: 0)\n"), checked.stdout
