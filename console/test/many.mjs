// 10,000 policies: only the rows in sight are drawn, finding one is at once, and the page stays usable, also while limits
// change faster than it is told, and while it is told of 1,000 changes a second: each view is there then, stays, and is read anew.
// Of those that the metrics page counts together no more is said than is known.

import assert from "node:assert/strict";
import { request as ask, createServer } from "node:http";
import { scenario, until } from "./support.mjs";

const COUNT = 10_000;
/** Longest that a task of the page may compute, and the first paint may take, in milliseconds. */
const LONGEST_TASK = 50;
const FIRST_PAINT = 1_000;
/** So often it is tried: another process can slow every try down, and none makes one faster than it is. */
const TRIES = 5;
/** Most bytes of all files of the console, as they are sent. */
const FILES = 150_000;
/** Changes of clients' own limits while the page is looked at, at least, and who make them at once. */
const CHANGES = 2_000;
const WRITERS = 16;
/** Events that a page is told of each second, and how many while its list is looked at. */
const RATE = 1_000;
const TOLD = 2_000;
/** Times that a view asks at one address in a second, at most: it is told of changes four times a second, two of its parts may ask
 * there, and by the clock, too. */
const ASKED = 12;
/** Documents of a page of a list, and how many pages the policies are. */
const PAGE = 500;
const PAGES = COUNT / PAGE;

/** Each view, what it shows when the server has answered, and where it asks again at each change, if anywhere, in how many pages. The
 * changes that the page is told of have no lines in the audit log: nobody made them. */
const VIEWS = [
  ["#/", "Nothing was changed, through the API or in the file.", "/v1/audit"],
  ["#/clients", "These are the first 100 by name", "/v1/clients"],
  ["#/clients?id=a&with=path%3D%2Fp4711", "9,999 policies do not apply", "/v1/explain"],
  ["#/policies?find=p4711", "1 of 10,000 policies", "/v1/policies", PAGES],
  ["#/policies/p4711", "None of the last 1,000 changes is of this policy.", "/v1/audit"],
  ["#/playground", "10 of 20"],
  ["#/gateway", "There is no route.", "/v1/routes"],
  ["#/gateway/analytics", "The gateway has answered no such request in that time.", "/v1/analytics"],
  ["#/keys", "No policy has tiers.", "/v1/policies", PAGES],
  ["#/edge", "There is no edge in this process."],
  ["#/intake", "No metric has come since the process began.", "/v1/intake/oldest"],
  ["#/audit", "Nothing was changed. Give a client its own limit", "/v1/audit"],
  ["#/logs", "since the process began", "/v1/warnings"],
  ["#/configuration?find=listen", "TIDEGATE_HTTP_LISTEN", "/v1/settings"],
  ["#/saturation", "None. A run that is started here leaves one", "/v1/saturation"],
];

const policies = Array.from(
  { length: COUNT },
  (_, n) =>
    `[[policy]]\nname = "p${n}"\nlimit = ${(n % 4000) + 1}\nwindow_seconds = 60\nmatch = { path = "/p${n}" }\n`,
);

/** Tries until what is measured is within its bound. */
async function within(what, bound, measure) {
  const seen = [];
  while (seen.length < TRIES) {
    seen.push(await measure());
    if (seen.at(-1) <= bound) {
      console.log(`10,000 policies: ${what} ${seen.at(-1).toFixed(0)} ms`);
      return;
    }
  }
  assert.fail(`${what} is over ${bound} ms: ${seen.map((ms) => ms.toFixed(0)).join(", ")}`);
}

await scenario(async ({ server, tab }) => {
  const service = await server().configure(policies.join("")).start();
  const page = await tab();
  await within("the first paint after", FIRST_PAINT, async () => {
    await page.page.goto("about:blank");
    await page.open(service, "#/policies");
    await page.shows("10,000 policies");
    const painted = () => performance.getEntriesByName("first-contentful-paint")[0].startTime;
    return page.page.evaluate(painted);
  });
  const files = await page.page.evaluate(() =>
    [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
      .filter(({ name }) => !/\/(v1|metrics)\b/.test(name))
      .map(({ name, encodedBodySize }) => [new URL(name).pathname, encodedBodySize]),
  );
  const bytes = files.reduce((sum, [, size]) => sum + size, 0);
  assert.ok(
    files.some(([name, size]) => name === "/console.js" && size > 0),
    JSON.stringify(files),
  );
  assert.ok(bytes < FILES, `the console's files are ${bytes} bytes: ${JSON.stringify(files)}`);
  const drawn = () =>
    page.page.$$eval("[role=rowgroup] [role=row]", (rows) => rows.map((row) => row.innerText.split(/\s/)[0]));
  assert.ok((await drawn()).length < 100, "only what is in sight");
  assert.equal((await drawn())[0], "p0");
  await page.isAccessible("10,000 policies");
  await within("the longest task of reading them", LONGEST_TASK, () =>
    page.longestTask(async () => {
      await page.page.goto("about:blank");
      await page.open(service, "#/policies");
      await page.shows("10,000 policies");
      // By keyboard: the list scrolls, and what was far away is drawn.
      await page.page.focus("[role=table]");
      await page.page.keyboard.press("End");
      await page.shows("p9999");
      assert.ok((await drawn()).length < 100);
      await page.fill("Find", "p4711");
      await page.shows("1 of 10,000 policies");
      assert.deepEqual(await drawn(), ["p4711"]);
      await page.shows("not asked yet");
      await page.click("link", "p4711");
      await page.shows("712 per 60 s");
      await page.shows("No request has met this policy since the process began.");
    }),
  );
  const decide = async (cost) => {
    const attributes = { client_id: "b", path: "/p4711" };
    return (await service.ask("POST", "/v1/decisions", { attributes, cost })).body.allowed;
  };
  assert.deepEqual([await decide(712), await decide(1)], [true, false]);
  await page.hides("not asked yet");
  await page.shows("counted together with others");
  assert.doesNotMatch(await page.text(), /\d denied/);
  await page.open(service, "#/policies?find=p4711");
  await page.shows("among others");
  await page.isAccessible("a policy among others");
  await page.open(service, "#/clients?id=a&with=path%3D%2Fp4711");
  await page.shows("A request of a would be allowed now.");
  await page.shows("9,999 policies do not apply");
  let limit = 1_000;
  await within("the longest task beside changes", LONGEST_TASK, () =>
    page.longestTask(() => besideChanges(page, service, ++limit)),
  );
  await within(`the longest task beside ${RATE} events per second`, LONGEST_TASK, () =>
    page.longestTask(() => besideEvents(page, service)),
  );
  await eachBesideEvents(page, service);
});

/** The list is there, and stays as things are, while changes come faster than the time that it takes to read it. */
async function besideChanges(page, service, limit) {
  await page.page.goto("about:blank");
  let [made, isShown] = [0, false];
  const began = Date.now();
  const change = async (writer) => {
    for (let n = 0; made < CHANGES || !isShown; n += 1) {
      const limits = { p7: { limit: (n % 900) + 1 } };
      const { status } = await service.ask("PUT", `/v1/clients/c${writer}-${n % 50}/limits`, limits);
      assert.equal(status, 200);
      made += 1;
    }
  };
  const writers = Promise.all(Array.from({ length: WRITERS }, (_, writer) => change(writer)));
  try {
    await page.open(service, "#/policies?find=p4711");
    await page.shows("1 of 10,000 policies");
    const changed = { limit, window_seconds: 60, match: { path: "/p4711" } };
    assert.equal((await service.ask("PUT", "/v1/policies/p4711", changed)).status, 200);
    // While the changes go on.
    await page.shows(`${limit.toLocaleString("en")} per 60 s`);
    await page.open(service, "#/");
    await page.shows("more, or still more");
  } finally {
    isShown = true;
    await writers;
  }
  console.log(`beside ${((1000 * made) / (Date.now() - began)).toFixed(0)} changes per second`);
}

/** The page is told of `RATE` changes per second by the clock, and goes on as things are. */
async function besideEvents(page, service) {
  await whileTold(page, service, TOLD, async (told, heard) => {
    await page.open(told, "#/policies?find=p4711");
    await page.shows("1 of 10,000 policies");
    await until(
      () => `${heard()} of ${TOLD} events came to the page`,
      () => heard() > TOLD,
    );
    await page.shows("1 of 10,000 policies");
    await page.click("link", "p4711");
    await page.shows("per 60 s");
  });
}

/** Each view comes while the page is told of changes without an end, stays, and is read anew; no task of it is too long. */
async function eachBesideEvents(page, service) {
  await whileTold(page, service, Infinity, async (told, heard) => {
    for (const [address, text, asked, pages = 1] of VIEWS) {
      const what = `the longest task of ${address} beside ${RATE} events per second`;
      await within(what, LONGEST_TASK, async () => {
        // Where nothing of the view is there yet, also when it is tried again.
        await page.open(told, "#/no-such");
        await page.shows("There is no such view.");
        return page.longestTask(() => settles(page, { server: told, address, text, asked, pages, heard }));
      });
    }
  });
}

/** What the view shows is there, does not go while more and more changes, and is asked for again, as often as is good. */
async function settles(page, { server, address, text, asked, pages, heard }) {
  const began = performance.now();
  const requests = new Map();
  const answers = new Map();
  const abandoned = [];
  let isThere = false;
  const pathOf = (request) => new URL(request.url()).pathname;
  const count = (counts, request) => counts.set(pathOf(request), (counts.get(pathOf(request)) ?? 0) + 1);
  const listeners = {
    // The pages of a list are asked for one after the other, as fast as they come.
    request: (request) => !request.url().includes(`?limit=${PAGE}`) && count(requests, request),
    requestfinished: (request) => isThere && count(answers, request),
    requestfailed: (request) => isThere && abandoned.push(pathOf(request)),
  };
  for (const [event, listener] of Object.entries(listeners)) page.page.on(event, listener);
  try {
    await page.open(server, address);
    await page.shows(text);
    isThere = true;
    const [before, seen] = [heard(), () => answers.get(asked) ?? 0];
    await until(
      () => `${address}: ${heard() - before} events, ${asked} was answered ${seen()} times`,
      () => heard() - before > RATE && (asked === undefined || seen() > pages),
    );
    assert.ok((await page.text()).includes(text), `${address}: ${text} is there no longer`);
  } finally {
    for (const [event, listener] of Object.entries(listeners)) page.page.off(event, listener);
  }
  assert.deepEqual(abandoned, [], `${address}: asked for, and not waited for`);
  const most = ASKED * (1 + (performance.now() - began) / 1000);
  const often = [...requests].filter(([, times]) => times > most);
  assert.deepEqual(often, [], `${address}: asked for more than ${most.toFixed(0)} times`);
}

/** Has the page told of that many changes meanwhile, `RATE` in a second. */
async function whileTold(page, service, most, run) {
  await page.page.goto("about:blank");
  const server = await teller(service, most);
  const session = await page.page.createCDPSession();
  let heard = 0;
  session.on("Network.eventSourceMessageReceived", () => {
    heard += 1;
  });
  try {
    await session.send("Network.enable");
    await run(server, () => heard);
  } finally {
    await session.detach();
    await page.page.goto("about:blank");
    server.close();
  }
}

/** Stands before the server, passes on what it is asked, and tells of more changes than any disk takes. */
async function teller(service, most) {
  const timers = new Set();
  const tell = (reply) => {
    const began = performance.now();
    let sent = 0;
    const say = (told) => {
      sent += 1;
      const data = { revision: 1_000_000 + sent, more: 0, ...told };
      reply.write(`event: configuration\nid: ${sent}-0\ndata: ${JSON.stringify(data)}\n\n`);
    };
    reply.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    say({ all: true, changed: [] });
    const timer = setInterval(() => {
      const due = Math.min((RATE * (performance.now() - began)) / 1000, most);
      while (sent <= due) say({ all: false, changed: [{ kind: "override", name: `c${sent}` }] });
    }, 5);
    timers.add(timer);
    reply.on("close", () => clearInterval(timer));
  };
  const server = createServer((asked, reply) => {
    if (asked.url.startsWith("/v1/events")) return tell(reply);
    const { url: path, method, headers } = asked;
    const passed = ask(new URL(path, service.url), { method, headers }, (answer) => {
      reply.writeHead(answer.statusCode, answer.headers);
      answer.pipe(reply);
    });
    passed.on("error", () => reply.destroy());
    asked.pipe(passed);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => {
    for (const timer of timers) clearInterval(timer);
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, close };
}
