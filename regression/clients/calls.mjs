// The JavaScript client against bare `fetch`. Prints rows of a table; see run.sh.
import assert from "node:assert/strict";
import { Tidegate } from "tidegate";

const [url, what] = process.argv.slice(2);
const WHO = { client_id: "user123", resource: "api" };
const ROUNDS = 7;
const CALLS = 960;
const LONG_MS = 60_000;

async function bare() {
  const response = await fetch(`${url}/v1/decisions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ attributes: WHO }),
  });
  return (await response.json()).allowed;
}

/** Makes so many calls, so many at once. */
function each(call, atOnce, count) {
  const worker = async () => {
    for (let done = 0; done < count / atOnce; done += 1) await call();
  };
  return Promise.all(Array.from({ length: atOnce }, worker));
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

/** Rounds in turns, each beginning with the other: the first is the client's, the second the bare one's. */
async function compare(name, atOnce, calls) {
  const rates = [[], []];
  const cpu = [[], []];
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const which of round % 2 ? [0, 1] : [1, 0]) {
      const began = performance.now();
      const before = process.cpuUsage();
      await each(calls[which], atOnce, CALLS);
      const { user, system } = process.cpuUsage(before);
      rates[which].push((CALLS / (performance.now() - began)) * 1000);
      cpu[which].push((user + system) / CALLS);
    }
  }
  // The first round warms up.
  const [rate, bareRate] = rates.map((found) => median(found.slice(1)));
  const [micros, bareMicros] = cpu.map((found) => median(found.slice(1)));
  const columns = [name, atOnce, Math.round(rate).toLocaleString("en"), (rate / bareRate).toFixed(2)];
  console.log(`| ${[...columns, micros.toFixed(0), (micros / bareMicros).toFixed(2)].join(" | ")} |`);
}

async function speed() {
  for (const [batch, atOnce] of [[false, 1], [false, 16], [true, 16]]) {
    const client = new Tidegate({ url, batch, deadlineMs: LONG_MS });
    assert.equal((await client.allow(WHO)).source, "server");
    const name = `JavaScript${batch ? ", batching" : ""}, beside fetch`;
    await compare(name, atOnce, [() => client.allow(WHO), bare]);
  }
}

async function frozen() {
  const client = new Tidegate({ url, breakerFailures: 1_000_000 });
  for (const [atOnce, count] of [[1, 100], [16, 1_600]]) {
    const took = [];
    await each(
      async () => {
        const began = performance.now();
        await client.allow(WHO);
        took.push(performance.now() - began);
      },
      atOnce,
      count,
    );
    took.sort((a, b) => a - b);
    const shown = [took[took.length >> 1], took[Math.floor(took.length * 0.99)], took.at(-1)];
    console.log(`| JavaScript | ${atOnce} | ${shown.map((it) => it.toFixed(1)).join(" | ")} |`);
  }
  // What is still being connected to the frozen server is not waited for.
  process.exit(0);
}

await (what === "speed" ? speed() : frozen());
