// What reaches the server, by its own metrics: how many connections and requests calls take.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Tidegate } from "tidegate";
import { TOKEN, until, withServer } from "./support.mjs";

const WHO = { client_id: "a", resource: "ten" };

/** The sum of the lines of the server's metrics page that begin with a name and have some text. */
async function metric(url, name, has) {
  const page = await (await fetch(`${url}/metrics`)).text();
  const lines = page.split("\n").filter((line) => line.startsWith(name) && line.includes(has));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

for (const [sender, fetch] of Object.entries({ node: undefined, fetch: globalThis.fetch })) {
  for (const atOnce of [1, 16]) {
    test(`connections are kept, ${atOnce} at once, by ${sender}`, () =>
      withServer(async ({ url }) => {
        const client = new Tidegate({ url, token: TOKEN, deadlineMs: 60_000, maxConnections: atOnce, fetch });
        const ask = async () => {
          for (let call = 0; call < 100; call += 1) {
            assert.equal((await client.allow(WHO, { peek: true })).source, "server");
          }
        };
        await Promise.all(Array.from({ length: atOnce }, ask));
        const made = await metric(url, "tidegate_connections_accepted_total", '"api"');
        // One more may have been made to read the metrics.
        assert(made >= 1 && made <= atOnce + 1, `${made} connections`);
      }));
  }

  test(`more calls than connections wait for one, by ${sender}`, () =>
    withServer(async ({ url }) => {
      const client = new Tidegate({ url, token: TOKEN, deadlineMs: 60_000, maxConnections: 4, fetch });
      const found = await Promise.all(Array.from({ length: 400 }, () => client.allow(WHO, { peek: true })));
      assert(found.every(({ source }) => source === "server"));
      const made = await metric(url, "tidegate_connections_accepted_total", '"api"');
      assert(made <= 5, `${made} connections`);
    }));
}

test("a client that is closed gives its connections back", () =>
  withServer(async ({ url }) => {
    const client = new Tidegate({ url, token: TOKEN, deadlineMs: 60_000 });
    await Promise.all(Array.from({ length: 8 }, () => client.allow(WHO, { peek: true })));
    const open = () => metric(url, "tidegate_connections_open", '"api"');
    // One more reads the metrics.
    assert((await open()) > 1);
    client.close();
    await until(async () => (await open()) === 1);
    assert.equal((await client.allow(WHO, { peek: true })).source, "server");
  }));

test("batching sends fewer requests", () =>
  withServer(async ({ url }) => {
    const client = new Tidegate({ url, token: TOKEN, deadlineMs: 10_000, batch: true });
    const found = await Promise.all(Array.from({ length: 200 }, () => client.allow(WHO, { peek: true })));
    assert(found.every(({ source }) => source === "server"));
    const sent = await metric(url, "tidegate_http_requests_total", '"/v1/decisions"');
    assert(sent >= 1 && sent <= 3, `${sent} requests`);
  }));

test("more than a thousand requests are asked in parts", () =>
  withServer(async ({ url }) => {
    const client = new Tidegate({ url, token: TOKEN, deadlineMs: 10_000 });
    const requests = Array.from({ length: 2_500 }, (_, n) => ({
      attributes: { client_id: `${n}`, resource: "ten" },
    }));
    const found = await client.batch(requests);
    assert.equal(found.length, 2_500);
    assert(found.every(({ remaining, source }) => remaining === 9 && source === "server"));
    assert.equal(await metric(url, "tidegate_http_requests_total", '"/v1/decisions"'), 3);
  }));
