"""How an address is written where it names a client: as the server writes it for `/v1/check`."""

from __future__ import annotations

import ipaddress
import re

_PORT = re.compile(r"\[(?P<six>[^]]*)\](:\d+)?|(?P<four>[\d.]+):\d+")


def peer_name(text: str) -> str:
    """The address of a peer: an IPv6 one as its /64, since that is what one customer has.

    What is no address stays as it is.
    """
    found = _PORT.fullmatch(text)
    bare = (found["six"] or found["four"] or "") if found else text
    try:
        address = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    network = ipaddress.IPv6Address(int(address) >> 64 << 64)
    return f"{network}/64"


def says(forwarded: str, address: str) -> bool:
    """Whether a field `X-Forwarded-For` has this address."""
    wanted = peer_name(address)
    return any(peer_name(entry.strip()) == wanted for entry in forwarded.split(","))
