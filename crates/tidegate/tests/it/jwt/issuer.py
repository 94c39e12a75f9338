"""An issuer of JWTs, by PyJWT: makes keys, publishes the public ones, and signs what it is told.

Each line of the input is a JSON object; each gives one line.

  {"publish": ["rs", "es"]}                         the JWKS of these keys
  {"key": "rs", "claims": {...}, "header": {...}}   a token; with "confused", signed with a public key for a secret

The first two letters of a key's name say of which kind it is.
"""

import base64
import hashlib
import hmac
import json
import sys

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ALGORITHMS = {
    "rs": ("RS256", lambda: rsa.generate_private_key(65537, 2048)),
    "es": ("ES256", lambda: ec.generate_private_key(ec.SECP256R1())),
    "ed": ("EdDSA", ed25519.Ed25519PrivateKey.generate),
    "hs": ("HS256", lambda: "a secret of the operator that has more than 32 bytes"),
}
keys = {}


def key(name):
    if name not in keys:
        keys[name] = ALGORITHMS[name[:2]][1]()
    return keys[name]


def jwk(name):
    algorithm = ALGORITHMS[name[:2]][0]
    public = key(name) if algorithm == "HS256" else key(name).public_key()
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(public, as_dict=True)
    made.pop("key_ops", None)
    return {**made, "kid": name, "alg": algorithm, "use": "sig"}


def encoded(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=")


def confused(name, claims):
    """A token whose HMAC has a public key for its secret."""
    public = key(name).public_key()
    secret = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head = json.dumps({"alg": "HS256", "typ": "JWT", "kid": name}).encode()
    message = encoded(head) + b"." + encoded(json.dumps(claims).encode())
    return (message + b"." + encoded(hmac.digest(secret, message, hashlib.sha256))).decode()


for line in sys.stdin:
    asked = json.loads(line)
    if "publish" in asked:
        said = json.dumps({"keys": [jwk(name) for name in asked["publish"]]})
    elif asked.get("confused"):
        said = confused(asked["key"], asked["claims"])
    elif asked["key"] == "none":
        said = jwt.encode(asked["claims"], None, algorithm="none", headers=asked.get("header"))
    else:
        name = asked["key"]
        head = {"kid": name, **asked.get("header", {})}
        said = jwt.encode(asked["claims"], key(name), algorithm=ALGORITHMS[name[:2]][0], headers=head)
    print(said, flush=True)
