// Each target of clients/targets.json, as a socket sends it, through each framework: with a limit of 0 no handler is reached.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { serve as serveHono } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { Tidegate } from "tidegate";
import * as forExpress from "tidegate/express";
import * as forFastify from "tidegate/fastify";
import * as forHono from "tidegate/hono";
import { CLIENTS, text, withServer } from "./support.mjs";

const { config, parts, targets } = JSON.parse(readFileSync(join(CLIENTS, "targets.json"), "utf8"));
const REACHED = "the handler";

async function onExpress(options, mounted) {
  const app = express();
  const pay = (_, response) => response.send(REACHED);
  const api = express.Router();
  if (mounted) api.use(forExpress.tidegate(options));
  else app.use(forExpress.tidegate(options));
  api.all("/pay", pay);
  app.use("/api", api);
  app.all("/pay", pay);
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { port: server.address().port, close: () => server.close() };
}

/** As Connect does: it takes the prefix off the URL, and keeps the whole. */
async function onNode(options, mounted) {
  const limited = forExpress.tidegate(options);
  const server = createServer((request, response) => {
    if (mounted && request.url.startsWith("/api/")) {
      request.originalUrl = request.url;
      request.url = request.url.slice("/api".length);
    }
    limited(request, response, () => {
      const [path] = request.url.toLowerCase().split(/[?#]/, 1);
      response.statusCode = path === "/pay" || path === "/api/pay" ? 200 : 404;
      response.end(response.statusCode === 200 ? REACHED : "");
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { port: server.address().port, close: () => server.close() };
}

const onFastify = (routerOptions) => async (options, mounted) => {
  const app = fastify({ routerOptions });
  const pay = async () => REACHED;
  if (!mounted) await app.register(forFastify.tidegate, options);
  await app.register(
    async (api) => {
      if (mounted) await api.register(forFastify.tidegate, options);
      api.all("/pay", pay);
    },
    { prefix: "/api" },
  );
  app.all("/pay", pay);
  await app.listen({ port: 0, host: "127.0.0.1" });
  return { port: app.server.address().port, close: () => app.close() };
};

async function onHono(options, mounted) {
  const app = new Hono();
  const api = new Hono();
  const header = (request, name) => request.headers.get(name);
  const given = { ...options, skip: (request) => header(request, "x-skip") !== null };
  if (mounted) api.use(forHono.tidegate(given));
  else app.use(forHono.tidegate(given));
  api.all("/pay", (c) => c.text(REACHED));
  app.route("/api", api);
  app.all("/pay", (c) => c.text(REACHED));
  let server;
  const port = await new Promise((resolve) => {
    server = serveHono({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, (info) => resolve(info.port));
  });
  return { port, close: () => server.close() };
}

const nameOf = ({ method = "GET", target }) => `${method} ${target}`;

/** A target with its parts written out, below a prefix. */
function written(target, prefix) {
  const whole = target.replaceAll("{p}", prefix).replaceAll("{P}", prefix.toUpperCase());
  return Object.entries(parts).reduce((made, [name, part]) => made.replace(name, text(part)), whole);
}

const FRAMEWORKS = {
  express: onExpress,
  node: onNode,
  fastify: onFastify({}),
  "fastify-lenient": onFastify({
    caseSensitive: false,
    ignoreDuplicateSlashes: true,
    ignoreTrailingSlash: true,
    useSemicolonDelimiter: true,
  }),
  hono: onHono,
};

/** The status of a response, its content type, and whether a handler made it. */
async function send(port, target, { method = "GET", headers = {} }, skip) {
  const fields = { host: "x.example", connection: "close", ...headers, ...(skip && { "x-skip": "1" }) };
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  const socket = connect(port, "127.0.0.1");
  socket.write(`${method} ${target} HTTP/1.1\r\n${lines.join("")}\r\n`, "latin1");
  let received = "";
  socket.setEncoding("latin1");
  try {
    for await (const piece of socket) received += piece;
  } catch {
    // A server may reset what it refuses.
  }
  return {
    status: Number(/^HTTP\/1\.1 (\d+)/.exec(received)?.[1]),
    isProblem: /content-type: application\/problem\+json/i.test(received),
    reached: received.includes(REACHED),
  };
}

async function expectCounted(port, target, how) {
  const free = await send(port, target, how, true);
  const limited = await send(port, target, how, false);
  const shown = `${how.method ?? "GET"} ${target.slice(0, 60)}: ${JSON.stringify([free, limited])}`;
  assert(!limited.reached, `reached, and not counted: ${shown}`);
  assert(!limited.isProblem || limited.status === 429, `not its user's mistake: ${shown}`);
  if (free.reached) assert.equal(limited.status, 429, shown);
  return free.reached;
}

for (const [name, start] of Object.entries(FRAMEWORKS)) {
  test(`no target reaches a handler uncounted: ${name}`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "tidegate-"));
    const path = join(folder, "tidegate.toml");
    writeFileSync(path, config);
    try {
      await withServer(async ({ url }) => {
        const client = new Tidegate({ url, deadlineMs: 20_000 });
        const skip = ({ headers }) => headers["x-skip"] !== undefined;
        const root = await start({ client, skip, key: () => "root" }, false);
        const mounted = await start({ client, skip, key: () => "mounted" }, true);
        const reaching = [];
        try {
          for (const { target, what: _, reached: __, ...how } of targets) {
            const at = (prefix) => written(target, prefix);
            if (await expectCounted(root.port, at(""), how)) reaching.push(nameOf({ target, ...how }));
            await expectCounted(root.port, at("/api"), how);
            if (at("") !== at("/api")) await expectCounted(mounted.port, at("/api"), how);
          }
        } finally {
          await root.close();
          await mounted.close();
        }
        const expected = targets.filter(({ reached }) => reached.includes(name)).map(nameOf);
        assert.deepEqual(reaching, expected);
      }, path);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
}
