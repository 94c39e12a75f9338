// The JavaScript client against bare `fetch` and bare `node:http`. Prints rows of a table; see run.sh.
import assert from "node:assert/strict";
import { Agent, request } from "node:http";
import { Tidegate } from "tidegate";

const [url, what, server, ...faulty] = process.argv.slice(2);
const WHO = { client_id: "user123", resource: "api" };
const ROUNDS = 7;
const CALLS = 960;
/** So many calls of each are made before any is measured: the first ones compile. */
const WARM = 9_600;
const LONG_MS = 60_000;

async function byFetch() {
  const response = await fetch(`${url}/v1/decisions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ attributes: WHO }),
  });
  return (await response.json()).allowed;
}

const { hostname, port } = new URL(url);
const agent = new Agent({ keepAlive: true });

function byNode() {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json" };
    const options = { agent, hostname, port, path: "/v1/decisions", method: "POST", headers };
    const asked = request(options, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (piece) => {
        text += piece;
      });
      response.on("end", () => resolve(JSON.parse(text).allowed));
      response.on("error", reject);
    });
    asked.on("error", reject);
    asked.end(JSON.stringify({ attributes: WHO }));
  });
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
  for (const call of calls) await each(call, atOnce, WARM);
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const which of round % 2 ? [0, 1] : [1, 0]) {
      const began = performance.now();
      const before = process.cpuUsage();
      await each(calls[which], atOnce, CALLS);
      const { user, system } = process.cpuUsage(before);
      rates[which].push((CALLS / (performance.now() - began)) * 1000);
      cpu[which].push((user + system) / CALLS);
    }
  }
  const [rate, bareRate] = rates.map(median);
  const [micros, bareMicros] = cpu.map(median);
  const columns = [name, atOnce, Math.round(rate).toLocaleString("en"), (rate / bareRate).toFixed(2)];
  console.log(`| ${[...columns, micros.toFixed(0), (micros / bareMicros).toFixed(2)].join(" | ")} |`);
}

async function speed() {
  const [plain, together] = [false, true].map((batch) => new Tidegate({ url, batch, deadlineMs: LONG_MS }));
  for (const client of [plain, together]) assert.equal((await client.allow(WHO)).source, "server");
  for (const [name, mine, beside, other, atOnce] of [
    ["", plain, "fetch", byFetch, 1],
    ["", plain, "fetch", byFetch, 16],
    ["", plain, "node:http", byNode, 1],
    ["", plain, "node:http", byNode, 16],
    [", batching", together, "fetch", byFetch, 16],
    [", batching", together, "the same without", () => plain.allow(WHO), 16],
  ]) {
    await compare(`JavaScript${name}, beside ${beside}`, atOnce, [() => mine.allow(WHO), other]);
  }
}

/** Milliseconds of each of so many calls, so many at once; sorted. */
async function timed(call, atOnce, count) {
  const took = [];
  const measured = async () => {
    const began = performance.now();
    await call();
    took.push(performance.now() - began);
  };
  await each(measured, atOnce, count);
  return took.sort((a, b) => a - b);
}

/** Prints how late calls end that are given no answer. As many others only wait for a timer at the same time. */
async function show(name, client, atOnce, count) {
  const timer = () => new Promise((resolve) => setTimeout(resolve, 50));
  const both = [() => client.allow(WHO), timer].map((call) => timed(call, atOnce, count));
  const [took, waited] = await Promise.all(both);
  const [p99, machine] = [took, waited].map((times) => times[Math.floor(count * 0.99)]);
  const shown = [took[count >> 1], p99, took.at(-1), machine].map((it) => it.toFixed(1));
  console.log(`| JavaScript, ${name} | ${[atOnce, ...shown, (p99 / machine).toFixed(2)].join(" | ")} |`);
}

/** The first server stops in the middle of the calls, as it would in production: what compiles has compiled by then. */
async function late() {
  const client = new Tidegate({ url, breakerFailures: 1_000_000 });
  await each(() => client.allow(WHO), 16, 1_600);
  process.kill(Number(server), "SIGSTOP");
  await show("frozen", client, 1, 200);
  await show("frozen", client, 16, 3_200);
  for (const [name, other] of faulty.map((fault) => fault.split("="))) {
    await show(name, new Tidegate({ url: other, breakerFailures: 1_000_000 }), 16, 800);
  }
  // What is still being connected to the frozen server is not waited for.
  process.exit(0);
}

await (what === "speed" ? speed() : late());
