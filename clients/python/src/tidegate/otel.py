"""OpenTelemetry for a client: `Client(on_event=metrics(), headers=trace_context)`. Needs `tidegate[otel]`."""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.metrics import Meter, get_meter
from opentelemetry.propagate import inject

from ._types import Event


def metrics(meter: Meter | None = None) -> Callable[[Event], None]:
    """Makes a hook that counts and times calls. No attribute's value becomes a label."""
    meter = meter or get_meter("tidegate")
    calls = meter.create_counter("tidegate.client.calls", "{call}", "Calls, a batch's decisions each.")
    duration = meter.create_histogram("tidegate.client.duration", "s", "How long calls took.")

    def record(event: Event) -> None:
        labels = {"operation": event.operation, "outcome": event.outcome}
        for name, value in (("source", event.source), ("failure", event.failure), ("policy", event.policy)):
            if value is not None:
                labels[name] = value
        calls.add(event.count, labels)
        duration.record(event.duration_ms / 1000, labels)

    return record


def trace_context() -> dict[str, str]:
    """The fields that make a call part of the current trace, `traceparent` by default."""
    fields: dict[str, str] = {}
    inject(fields)
    return fields
