"""A WebSocket server that says what it was asked: `PORT [SUBPROTOCOL]`, the one that it speaks."""

import asyncio
import json
import sys

import websockets


async def serve(port, subprotocols):
    async def say(socket):
        fields = socket.request.headers
        names = ["authorization", "cookie", "sec-websocket-protocol", "x-consumer-id"]
        said = {name: fields[name] for name in names if name in fields}
        await socket.send(json.dumps({"path": socket.request.path, **said}))

    async with websockets.serve(say, "127.0.0.1", port, subprotocols=subprotocols or None):
        print("ready", flush=True)
        await asyncio.Future()


port, *subprotocols = sys.argv[1:]
asyncio.run(serve(int(port), subprotocols))
