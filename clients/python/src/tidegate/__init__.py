"""Asks Tidegate, a rate-limit service, and is never the reason of an outage.

```python
from tidegate import Client

limits = Client()
if not limits.allow({"client_id": "user123", "resource": "api"}).allowed: ...
```
"""

from ._async_client import AsyncClient, AsyncPermit
from ._client import Client, Permit
from ._options import Fallback
from ._types import (
    Attributes,
    Decision,
    Event,
    Explanation,
    Failure,
    FieldError,
    InvalidRequest,
    Lease,
    Limits,
    Mode,
    Part,
    PolicyExplanation,
    Problem,
    Refunded,
    Renewed,
    Request,
    RequestLimits,
    Source,
    Stats,
    TidegateError,
    Unavailable,
)

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncPermit",
    "Attributes",
    "Client",
    "Decision",
    "Event",
    "Explanation",
    "Failure",
    "Fallback",
    "FieldError",
    "InvalidRequest",
    "Lease",
    "Limits",
    "Mode",
    "Part",
    "Permit",
    "PolicyExplanation",
    "Problem",
    "Refunded",
    "Renewed",
    "Request",
    "RequestLimits",
    "Source",
    "Stats",
    "TidegateError",
    "Unavailable",
]
