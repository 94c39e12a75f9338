# The client that openapi-python-client makes of the OpenAPI document, against the service that it describes.
import os

from tidegate_client import AuthenticatedClient, Client
from tidegate_client.api.configuration import audit, get_policy, list_policies, put_client_limits, put_policy
from tidegate_client.api.decisions import decide, explain, refund
from tidegate_client.api.permits import acquire_permit, release_permit, renew_permit
from tidegate_client.api.simple import configure, configure_client, get_client_config, rate_limit
from tidegate_client.models import (
    ClientLimits,
    ConfigureBody,
    ConfigureClientBody,
    DecisionBody,
    DecisionBodyAttributes,
    PolicyDocument,
    PolicyDocumentMatch,
    Problem,
    RateLimitBody,
)

url = os.environ["TIDEGATE_URL"]
anybody = Client(base_url=url)
operator = AuthenticatedClient(base_url=url, token=os.environ["TIDEGATE_TOKEN"])


def asking(**attributes):
    return DecisionBody(attributes=DecisionBodyAttributes.from_dict(attributes))


refused = configure.sync_detailed(client=anybody, body=ConfigureBody(window_seconds=60, request_per_window=2))
print(int(refused.status_code), type(refused.parsed) is Problem)
configure.sync(client=operator, body=ConfigureBody(window_seconds=60, request_per_window=2))
for _ in range(3):
    reply = rate_limit.sync(client=anybody, body=RateLimitBody(client_id="a", resource="r"))
    print(reply.allowed, reply.remaining, bool(reply.retry_after))

own = ConfigureClientBody(client_id="vip", window_seconds=60, request_per_window=9)
print(configure_client.sync(client=operator, body=own).status)
print(get_client_config.sync("vip", client=operator).custom)

slots = PolicyDocument(limit=1, algorithm="concurrency", lease_seconds=30, match=PolicyDocumentMatch.from_dict({"path": "/slow"}), key=[])
put_policy.sync("slots", client=operator, body=slots)
print(sorted(listed.policy["name"] for listed in list_policies.sync(client=operator).policies))
print(get_policy.sync("slots", client=operator)["limit"])
put_client_limits.sync("b", client=operator, body=ClientLimits.from_dict({"default": {"limit": 5}}))

one = decide.sync(client=anybody, body=asking(client_id="b"))
print(one.allowed, one.policy, one.remaining)
print([reply.remaining for reply in decide.sync(client=anybody, body=[asking(client_id="b")] * 2)])
print(refund.sync(client=operator, body=asking(client_id="b")).policies)
print(explain.sync(client=operator, client_id="b").allowed)

slow = asking(path="/slow")
permit = acquire_permit.sync(client=anybody, body=slow).permit
print(acquire_permit.sync(client=anybody, body=slow).allowed)
print(renew_permit.sync(permit, client=anybody).lease_ms)
print(int(release_permit.sync_detailed(permit, client=anybody).status_code))
print([(entry.actor, entry.action, entry.name) for entry in audit.sync(client=operator)])
