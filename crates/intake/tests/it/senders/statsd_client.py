"""Sends metrics with the Python client of StatsD: statsd_client.py udp|tcp PORT."""

import sys

from statsd import StatsClient, TCPStatsClient

kind, port = sys.argv[1], int(sys.argv[2])
client = (TCPStatsClient if kind == "tcp" else StatsClient)("127.0.0.1", port, prefix="shop")
client.incr("orders", 3)
client.decr("orders")
client.gauge("queue", 10)
client.gauge("queue", -4, delta=True)
client.gauge("queue", 5, delta=True)
client.timing("wait", 320)
client.set("users", "a")
with client.pipeline() as batch:
    batch.incr("hits", 2)
    batch.timing("wait", 5.5)
client.close()
print("sent")
