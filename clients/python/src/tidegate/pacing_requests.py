"""Pacing for `requests`: `session.mount("https://", PacedAdapter())`. Needs `tidegate[requests]`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from .pacing import Pacer


class PacedAdapter(HTTPAdapter):
    """Waits before a request as the last responses asked, and repeats safe ones that were denied."""

    def __init__(self, pacer: Pacer | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._pacer = pacer or Pacer()

    def send(  # noqa: PLR0917
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: float | tuple[float, float] | tuple[float, None] | None = None,
        verify: bool | str = True,
        cert: bytes | str | tuple[bytes | str, bytes | str] | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Sends a request when it is time."""
        pacer = self._pacer
        origin = "/".join((request.url or "").split("/", 3)[:3])
        done = 0
        while True:
            time.sleep(pacer.before(origin))
            response = super().send(request, stream, timeout, verify, cert, proxies)
            fields = {name.lower(): value for name, value in response.headers.items()}
            pacer.after(origin, response.status_code, fields)
            has_body = request.body is not None
            if not pacer.repeats(request.method or "", response.status_code, fields, done, has_body=has_body):
                return response
            response.close()
            done += 1
