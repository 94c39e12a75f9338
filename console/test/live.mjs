// A page that is open and that nobody touches: who is denied most and who is nearest to a limit are listed as it happens, the
// numbers of the overview go along, by one stream of events.

import assert from "node:assert/strict";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { scenario, until } from "./support.mjs";

const FILE = `
[[policy]]
name = "hourly"
limit = 100
window_seconds = 3600
`;

/** The entries of a list, by its heading. */
const entries = (title) => `::-p-xpath(//section[header/h2='${title}']//ol/li)`;

/** The rows of a table, by the same. */
const rows = (title) => `::-p-xpath(//section[header/h2='${title}']//tbody/tr)`;

/** A page, and what it lists, which is waited for. */
class Watched {
  constructor(tab) {
    this.tab = tab;
    this.streams = 0;
    tab.page.on("request", (request) => {
      this.streams += new URL(request.url()).pathname === "/v1/events" ? 1 : 0;
    });
  }

  /** Opens the view, which is the last time that somebody touches it. */
  async open(service, address) {
    await this.tab.open(service, address);
    await this.tab.page.evaluate(() => {
      globalThis.isAsOpened = true;
      for (const kind of ["pointerdown", "keydown", "focusin", "hashchange"])
        addEventListener(kind, () => {
          globalThis.isAsOpened = false;
        });
    });
  }

  /** Waits until these are the entries, in this order. */
  async lists(selector, patterns) {
    let seen;
    const read = (parts) => parts.map((part) => part.innerText.replace(/\s+/g, " ").trim());
    await until(
      () => `${selector}: ${JSON.stringify(seen)} is not ${patterns}`,
      async () => {
        seen = await this.tab.page.$$eval(selector, read);
        return seen.length === patterns.length && patterns.every((it, place) => it.test(seen[place]));
      },
    );
  }

  async isUntouched() {
    assert.equal(await this.tab.page.evaluate(() => globalThis.isAsOpened), true);
    assert.equal(this.streams, 1, "streams of events");
  }
}

/** Asks once by `CL.THROTTLE`; what was answered. */
function throttle(address) {
  const { hostname: host, port } = new URL(`tcp://${address}`);
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port: Number(port) }, () =>
      socket.write("CL.THROTTLE gamma 15 30 60\r\n"),
    );
    socket.on("error", reject).once("data", (data) => {
      socket.destroy();
      resolve(data.toString());
    });
  });
}

/** A field of a protobuf message that is a text or a message. */
const field = (number, bytes) => Buffer.concat([Buffer.from([8 * number + 2, bytes.length]), bytes]);

/** Asks once by gRPC, as Envoy does; the status of the call. */
function shouldRateLimit(address) {
  const entry = Buffer.concat([field(1, Buffer.from("client_id")), field(2, Buffer.from("delta"))]);
  const message = Buffer.concat([field(1, Buffer.from("edge")), field(2, field(1, entry))]);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return new Promise((resolve, reject) => {
    const session = connectHttp2(`http://${address}`).on("error", reject);
    const call = session.request({
      ":method": "POST",
      ":path": "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
      "content-type": "application/grpc",
      te: "trailers",
    });
    call.on("trailers", (fields) => {
      session.close();
      resolve(fields["grpc-status"]);
    });
    call
      .on("error", reject)
      .resume()
      .end(Buffer.concat([head, message]));
  });
}

await scenario(async ({ server, tab }) => {
  const service = await server().configure(FILE).start();
  const clients = new Watched(await tab());
  const [denied, near] = [entries("Most denied clients"), entries("Nearest to a limit")];
  await clients.open(service, "#/clients");
  await clients.tab.shows("No client was denied since the process began.");
  await clients.tab.shows("No client has used half of a limit.");
  // The server looks at one decision in eight for it.
  const [near50, near100] = [(left) => left <= 50, (left) => left === 0];
  const times = { alpha: 0, beta: 0 };
  const spend = async (client, number) => {
    times[client] += await service.spend(client, number);
  };
  const seen = async (client, isNear) => {
    let found;
    await until(`the server has seen ${client}`, async () => {
      const { body } = await service.ask("GET", "/v1/nearest-clients");
      found = body.find((it) => it.client_id === client && isNear(it.remaining));
      if (!found) await spend(client, 1);
      return found;
    });
    return new RegExp(`^${client} under hourly ${100 - found.remaining} of 100$`);
  };
  await spend("alpha", 55);
  await clients.lists(near, [await seen("alpha", near50)]);
  await clients.lists(denied, []);
  // Somebody else is nearer, and denied.
  await spend("beta", 101);
  await clients.lists(near, [await seen("beta", near100), /^alpha /]);
  await clients.lists(denied, [new RegExp(`^beta by hourly ${times.beta}$`)]);
  // Then the first one is, and more often.
  await spend("alpha", 50 + times.beta);
  const full = await seen("alpha", near100);
  await clients.lists(near, [full, /^beta /]);
  const both = () => ["alpha", "beta"].map((client) => new RegExp(`^${client} by hourly ${times[client]}$`));
  assert.ok(times.alpha > times.beta);
  await clients.lists(denied, both());
  // Who starts anew is near no more; that it was denied stays so.
  assert.equal((await service.ask("DELETE", "/v1/clients/beta/usage")).status, 200);
  await clients.lists(near, [full]);
  await clients.lists(denied, both());
  await clients.isUntouched();

  // The same on the overview, with the numbers by policy and by protocol.
  const overview = new Watched(await tab());
  await overview.open(service, "#/");
  const policy = () => new RegExp(`^hourly .* ${times.alpha + times.beta}$`);
  await overview.lists(denied, both());
  await overview.lists(rows("By policy"), [policy()]);
  await overview.lists(rows("By protocol"), [
    /^HTTP .* [1-9]\d+$/,
    /^gRPC .* 0$/,
    /^RESP .* 0$/,
    /^Intake, batches .* 0$/,
  ]);
  assert.match(await throttle(service.resp), /^\*5\r\n:0\r\n/);
  assert.equal(await shouldRateLimit(service.grpc), "0");
  await spend("alpha", 4);
  await overview.lists(denied, both());
  await overview.lists(rows("By policy"), [policy(), /^CL\.THROTTLE .* 0$/]);
  await overview.lists(rows("By protocol"), [
    /^HTTP .* [1-9]\d+$/,
    /^gRPC .* 1$/,
    /^RESP .* 1$/,
    /^Intake, batches .* 0$/,
  ]);
  // Some of the last ten seconds' are allowed, and some are not.
  await until("rates, the share denied and the times are shown", async () => {
    await service.spend("alpha", 1);
    await service.spend("epsilon", 1);
    const now = await overview.tab.line("[aria-label=Now]");
    return /^Requests per second[\d.,]*[1-9].*Denied[1-9][\d.]* %.*p50[<\s]*\d.*p99[<\s]*\d/.test(now);
  });
  await overview.isUntouched();
});
