# A client of Redis asks Tidegate: one by one, then two in a pipeline, over RESP2 and RESP3.
import os

import redis

for protocol in (2, 3):
    client = redis.Redis(port=int(os.environ["TIDEGATE_PORT"]), protocol=protocol)
    throttle = ("CL.THROTTLE", f"client-{protocol}", 2, 1, 60)
    first, second = client.execute_command(*throttle), client.execute_command(*throttle)
    pipeline = client.pipeline(transaction=False)
    pipeline.execute_command(*throttle)
    pipeline.execute_command(*throttle)
    replies = [first, second, *pipeline.execute()]
    for at, reply in enumerate(replies):
        # Seconds until all of it has come back, one minute a unit; less on a machine that stood still.
        most = 60 * min(at + 1, 3)
        if most - 30 <= reply[4] <= most:
            reply[4] = most
    print(*replies)
