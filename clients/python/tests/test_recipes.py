"""The recipes of clients/RECIPES.md: their policies on the real server, and their code as it stands there."""

from __future__ import annotations

import concurrent.futures
import pathlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support import CLIENTS, Server, server
from tidegate import Client, Decision

PAGE = (CLIENTS / "RECIPES.md").read_text()
POLICIES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config: pathlib.Path = tmp_path_factory.mktemp("recipes") / "tidegate.toml"
    config.write_text("\n".join(POLICIES))
    with server(config) as started:
        yield started


def recipe(name: str, own: Server, **given: Any) -> dict[str, Any]:
    """The names that a recipe's code defines. `given` is what the application has."""
    found = re.search(rf"<!-- recipe: {name} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    made: dict[str, Any] = {
        # With time for a busy machine; everything else is the recipe's.
        "Client": lambda **options: Client(own.url, deadline_ms=10_000, **options),
        "Decision": Decision,
        "time": time,
        **given,
    }
    exec(found[1], made)  # noqa: S102
    return made


def test_login(own: Server) -> None:
    login: Callable[[str, str, str], str] = recipe("login", own, verify=lambda _, word: word == "right")[
        "login"
    ]
    assert [login("Ann", "10.0.0.1", "right") for _ in range(7)] == ["welcome"] * 7
    assert [login("ann", f"10.0.1.{n}", "guess") for n in range(5)] == ["wrong"] * 5
    assert re.fullmatch(r"try again in \d+ s", login("ANN", "10.0.2.1", "right"))
    assert [login(f"user{n}", "10.0.3.1", "guess") for n in range(20)] == ["wrong"] * 20
    assert "try again" in login("user99", "10.0.3.1", "right")
    assert login("user99", "10.0.3.2", "right") == "welcome"


def test_login_without_the_server_denies(own: Server) -> None:
    login = recipe(
        "login", own, verify=lambda *_: True, Client=lambda **options: Client("http://127.0.0.1:1", **options)
    )["login"]
    assert "try again" in login("ann", "10.0.0.1", "right")


def test_tiers(own: Server) -> None:
    customers = {"k1": ("acme", "free"), "k2": ("apex", "pro"), "k3": ("lost", "")}
    call = recipe("tiers", own, look_up=customers.get)["call"]
    found = {key: [call(key) for _ in range(12)] for key in customers}
    assert [decision.allowed for decision in found["k1"]] == [True] * 10 + [False] * 2
    assert {(decision.allowed, decision.policy) for decision in found["k2"]} == {(True, "pro")}
    assert found["k3"][-1].policy == "free"


def test_tokens(own: Server) -> None:
    def generate(prompt: str, max_tokens: int) -> tuple[str, int]:
        if prompt == "broken":
            raise ValueError
        return f"about {prompt}", 100

    complete = recipe("tokens", own, count=len, generate=generate)["complete"]
    # 9,000 reserved and 100 used, each time.
    assert [complete("acme", "tides", 9_000) for _ in range(3)] == ["about tides"] * 3
    with pytest.raises(ValueError):  # noqa: PT011
        complete("acme", "broken", 9_000)
    assert complete("acme", "tides", 9_000) == "about tides"
    assert complete("acme", "tides", 20_000) == "too long"
    assert re.fullmatch(r"wait \d+ s", complete("acme", "tides", 9_900))
    with Client(own.url, deadline_ms=10_000) as client:
        held = [client.acquire({"client_id": "acme", "unit": "requests"}) for _ in range(2)]
        assert complete("acme", "tides", 10) == "too many requests at once"
        for permit in held:
            permit.release()
    assert complete("acme", "tides", 10) == "about tides"


def test_webhooks(own: Server) -> None:
    sent: list[str] = []
    made = recipe("webhooks", own, post=lambda receiver, _: sent.append(receiver))
    with concurrent.futures.ThreadPoolExecutor(60) as threads:
        waits = list(threads.map(lambda _: made["deliver"]("slow.example", "x"), range(60)))
    # The bucket holds 20; ten a second leave it.
    assert 20 <= waits.count(0) < 60, waits
    assert all(wait > 0 for wait in waits if wait)
    assert made["deliver"]("other.example", "x") == 0
    assert len(sent) == waits.count(0) + 1


def test_cron(own: Server) -> None:
    done: list[str] = []

    def work(job: str, renew: Callable[[], object]) -> None:
        assert renew() is not None
        assert made["run"](job) == "another runs it"
        if job == "broken" and not done:
            done.append(job)
            raise ValueError

    made = recipe("cron", own, work=work)
    assert made["run"]("report") == "ran"
    assert made["run"]("report") in ("done today", "ran")
    with pytest.raises(ValueError):  # noqa: PT011
        made["run"]("broken")
    assert made["run"]("broken") == "ran"


def test_cron_without_the_server_does_not_run(own: Server) -> None:
    made = recipe("cron", own, work=None, Client=lambda **options: Client("http://127.0.0.1:1", **options))
    assert made["run"]("report") == "another runs it"
