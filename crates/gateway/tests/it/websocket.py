"""A WebSocket server that echoes, and a client that asks it: `serve PORT`, `ask PORT`."""

import asyncio
import sys

import websockets


async def serve(port):
    async def echo(socket):
        async for message in socket:
            await socket.send(message)

    async with websockets.serve(echo, "127.0.0.1", port, max_size=None):
        print("ready", flush=True)
        await asyncio.Future()


async def ask(port):
    async with websockets.connect(f"ws://127.0.0.1:{port}/chat", max_size=None) as socket:
        for text in ["one", "two", "three"]:
            await socket.send(text)
            assert await socket.recv() == text
        large = bytes(range(250)) * 4_000
        await socket.send(large)
        received = await socket.recv()
        assert received == large
        pong = await socket.ping()
        await pong
    print(f"3 texts, {len(received)} bytes, pong, closed with {socket.close_code}")


command, port = sys.argv[1:]
asyncio.run({"serve": serve, "ask": ask}[command](int(port)))
