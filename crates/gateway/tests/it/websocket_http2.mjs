// A WebSocket client over HTTP/2 (RFC 8441): Node's HTTP/2 by prior knowledge, and the frames of `ws`. `node websocket_http2.mjs PORT`
// does and says what `websocket.py ask PORT` does, or says the status of a reply that opens nothing.

import http2 from "node:http2";
import { createRequire } from "node:module";
import { once } from "node:events";

const require = createRequire(new URL("../../../../.npm/", import.meta.url));
const { Receiver, Sender } = require("ws");

const [port, path = "/chat"] = process.argv.slice(2);
const session = http2.connect(`http://127.0.0.1:${port}`);
const [settings] = await once(session, "remoteSettings");
if (!settings.enableConnectProtocol) throw new Error("extended CONNECT is not offered");

const stream = session.request(
  {
    ":method": "CONNECT",
    ":protocol": "websocket",
    ":scheme": "http",
    ":authority": `127.0.0.1:${port}`,
    ":path": path,
    "sec-websocket-version": "13",
  },
  { endStream: false },
);
const [head] = await once(stream, "response");
if (head[":status"] !== 200) {
  console.log(head[":status"]);
  process.exit(0);
}
for (const name of ["upgrade", "connection", "sec-websocket-accept"]) {
  if (name in head) throw new Error(`${name} is of HTTP/1.1`);
}

const sender = new Sender(stream, {});
const receiver = new Receiver({ isServer: false });
stream.pipe(receiver);
const options = { compress: false, fin: true, mask: true };
for (const text of ["one", "two", "three"]) {
  sender.send(text, { ...options, binary: false });
  const [data] = await once(receiver, "message");
  if (data.toString() !== text) throw new Error(`${data} is not ${text}`);
}
const large = Buffer.alloc(1_000_000, Buffer.from([...Array(250).keys()]));
sender.send(large, { ...options, binary: true });
const [received] = await once(receiver, "message");
if (!large.equals(received)) throw new Error("the bytes differ");
sender.ping(Buffer.from("ping"), true);
const [answer] = await once(receiver, "pong");
if (answer.toString() !== "ping") throw new Error(`${answer} is no answer to ping`);
sender.close(1000, "", true);
const [code] = await once(receiver, "conclude");
// The server's side ends with it, and then this one.
stream.resume();
if (!stream.readableEnded) await once(stream, "end");
stream.end();
console.log(`3 texts, ${received.length} bytes, pong, closed with ${code}`);
session.close();
