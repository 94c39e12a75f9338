// A client of WebSocket as browsers are: it breaks off if it offers subprotocols and is told of none, or of another one.
// `node websocket_client.mjs URL [SUBPROTOCOL...]` says the one that was agreed on and the first message, or why there is none.

import { createRequire } from "node:module";

const require = createRequire(new URL("../../../../../.npm/", import.meta.url));
const { WebSocket } = require("ws");

const [url, ...offered] = process.argv.slice(2);
const socket = new WebSocket(url, offered);
socket.on("error", (error) => {
  console.log(JSON.stringify({ error: error.message }));
  process.exit(0);
});
socket.on("message", (message) => {
  console.log(JSON.stringify({ agreed: socket.protocol, heard: JSON.parse(message) }));
  process.exit(0);
});
