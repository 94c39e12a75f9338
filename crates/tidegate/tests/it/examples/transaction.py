# A client of Redis with its default pipeline, which stands between MULTI and EXEC, over RESP2 and RESP3.
import os

import redis

for protocol in (2, 3):
    client = redis.Redis(port=int(os.environ["TIDEGATE_PORT"]), protocol=protocol)
    pipeline = client.pipeline()
    for _ in range(4):
        pipeline.execute_command("CL.THROTTLE", f"client-{protocol}", 2, 1, 3600)
    pipeline.ping()
    pipeline.execute_command("THROTTLE", "other", 0, 1, 60)
    *limited, pong, wrong = pipeline.execute(raise_on_error=False)
    print([reply[:3] for reply in limited], pong, type(wrong).__name__)
    # More than are decided at once.
    pipeline = client.pipeline()
    for at in range(500):
        pipeline.execute_command("CL.THROTTLE", f"many-{protocol}-{at % 7}", 99, 1, 3600)
    print(sum(reply[0] == 0 for reply in pipeline.execute()))
    try:
        client.pipeline().execute_command("GET", "key").execute()
    except redis.ResponseError as error:
        print(error)
