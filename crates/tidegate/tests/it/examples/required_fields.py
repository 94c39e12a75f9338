# Sends each example of the OpenAPI document without one field after the other: the server refuses the body
# exactly where the document's schema does.
import json
import os
import urllib.error
import urllib.request

from jsonschema import Draft202012Validator

url = os.environ["TIDEGATE_URL"]
document = json.load(open("openapi.json"))

# A policy of each algorithm with all that it may have; the document's example is one of them.
window = {"limit": 10, "window_seconds": 60}
POLICIES = [
    {"algorithm": "token_bucket", "burst": 5} | window,
    {"algorithm": "leaky_bucket", "burst": 5} | window,
    {"algorithm": "fixed_window"} | window,
    {"algorithm": "sliding_log"} | window,
    {"algorithm": "sliding_counter"} | window,
    {"algorithm": "concurrency", "limit": 10, "lease_seconds": 30},
    {"algorithm": "calendar", "limit": 10, "period": "day", "time_zone": "Europe/Lisbon"},
]
# A run, a report of one, a set of documents and a revision: not made of fields, or of fields that must fit others.
LEFT_OUT = ["/v1/saturation/run", "/v1/capacity", "/v1/candidate", "/v1/revert"]


def is_refused(method, path, body, field):
    """Whether the server refuses the body for this field."""
    request = urllib.request.Request(url + path, json.dumps(body).encode(), method=method)
    request.add_header("Content-Type", "application/json")
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as refused:
        if refused.code in (400, 422):
            return any(it["pointer"] == "/" + field for it in json.load(refused).get("errors", []))
    return False


def bodies():
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is None or path in LEFT_OUT:
                continue
            yield method.upper(), path, content["schema"], content["example"]
            if path == "/v1/policies/{name}":
                for policy in POLICIES:
                    yield method.upper(), path, content["schema"], policy


asked, differ = 0, []
for method, path, schema, example in bodies():
    validator = Draft202012Validator({**schema, "components": document["components"]})
    place = path.replace("{client_id}", "vip").replace("{name}", "tried").replace("{id}", "none")
    if not validator.is_valid(example):
        differ.append(f"{method} {place}: its example is not what its schema says")
    # Without its algorithm a policy is one of another algorithm, of which other fields are demanded.
    for without in example.keys() - {"algorithm"}:
        body = {name: value for name, value in example.items() if name != without}
        declared, refused = not validator.is_valid(body), is_refused(method, place, body, without)
        asked += 1
        if declared != refused:
            differ.append(f"{method} {place} {body}: {without} is required {declared}, refused {refused}")
# A route without an upstream of its own.
split = {"split": [{"upstream": "a", "percent": 30}, {"upstream": "b", "percent": 70}]}
route = document["paths"]["/v1/routes/{name}"]["put"]["requestBody"]["content"]["application/json"]["schema"]
if not Draft202012Validator(route).is_valid(split):
    differ.append("a route with a split is not what its schema says")
if differ:
    raise SystemExit("\n".join(differ))
print(asked, "bodies are answered as the document says")
