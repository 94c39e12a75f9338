"""A wire with a delay: a TUN device whose packets come back later, with their two addresses swapped.

What is sent from 10.77.0.1 to 10.77.0.2 arrives at 10.77.0.1 as if 10.77.0.2 had sent it, so that one
machine is both ends of a long way. Swapping leaves every checksum as it is. Needs CAP_NET_ADMIN in its
network namespace, and nothing but the standard library.

    delay.py MILLISECONDS
"""

import collections
import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
# Packets on the wire at a time; more are lost, as on a real one.
MOST = 100_000


def main() -> None:
    delay = float(sys.argv[1]) / 1e3
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", b"wire", IFF_TUN | IFF_NO_PI))
    print("ready", flush=True)
    wire: collections.deque[tuple[float, bytes]] = collections.deque()
    while True:
        wait = max(0.0, wire[0][0] - time.monotonic()) if wire else None
        select.select([tun], [], [], wait)
        now = time.monotonic()
        while wire and wire[0][0] <= now:
            os.write(tun, wire.popleft()[1])
        try:
            while len(wire) < MOST:
                packet = os.read(tun, 65_536)
                # IPv4 only: source at 12, destination at 16.
                if packet[0] >> 4 == 4:
                    swapped = packet[:12] + packet[16:20] + packet[12:16] + packet[20:]
                    wire.append((now + delay, swapped))
        except BlockingIOError:
            pass


main()
