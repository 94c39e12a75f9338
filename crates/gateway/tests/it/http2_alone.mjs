// A server that speaks HTTP/2 alone, over TLS: `node http2_alone.mjs PORT CERTIFICATE KEY`. It refuses a handshake that offers no h2.

import fs from "node:fs";
import http2 from "node:http2";

const [port, certificate, key] = process.argv.slice(2);
const pair = { cert: fs.readFileSync(certificate), key: fs.readFileSync(key) };
const server = http2.createSecureServer(pair, (request, reply) => reply.end(`HTTP/${request.httpVersion}`));
server.listen(Number(port), "127.0.0.1", () => console.log("ready"));
