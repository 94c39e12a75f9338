// Where there is nothing yet the page says what to do; where something fails, what happened and what to try. By itself it goes
// on when the server is back.

import { scenario } from "./support.mjs";

/** Each view of a server that nobody has used. */
const EMPTY = [
  ["#/", "Nobody has asked for a decision yet. Try it: curl -X POST"],
  ["#/clients", "No client has limits of its own. Look at one to give it some."],
  ["#/policies?find=no-such", "No policy has “no-such” in it."],
  ["#/policies/no-such", "There is no policy no-such in force. All policies"],
  ["#/policies/default", "It was never changed through the API."],
  ["#/playground?pattern=hand", "Click “Ask once”, as fast as you like."],
  ["#/gateway", "There is no route. Declare [[upstream]] and [[route]] in the file"],
  ["#/edge", "There is no edge in this process. Declare edge.listener and [[edge.backend]]"],
  ["#/intake", "No metric has come since the process began. Prometheus sends by remote_write"],
  ["#/audit", "Nothing was changed. Give a client its own limit, and it is here."],
  ["#/configuration?find=no-such", "No setting has “no-such” in it."],
  ["#/saturation", "None. A run that is started here leaves one"],
  ["#/no-such", "There is no such view. Begin at the overview."],
];

const AWAY = "The server cannot be reached. See that it runs";

/** Each view of a server that is away. */
const FAILING = [
  ["#/clients?id=a", "What would become of its requests is not known."],
  ["#/policies", "The policies cannot be read."],
  ["#/policies/default", "The policy cannot be read."],
  ["#/gateway", "The routes cannot be read."],
  ["#/audit", "The changes cannot be read."],
  ["#/configuration", "The settings cannot be read."],
  ["#/saturation", "Runs and reports of this server are not known."],
  ["#/logs", "The log cannot be read."],
];

await scenario(async ({ server, tab }) => {
  const service = await server().start();
  const page = await tab();
  for (const [view, text] of EMPTY) {
    await page.open(service, view);
    await page.shows(text);
  }
  const played = await tab();
  await played.open(service, "#/no-such");
  await service.stop();
  await played.open(service, "#/playground");
  await played.shows(`The server did not try it. ${AWAY} and what is so now, then try again.`);
  await page.page.bringToFront();
  await page.shows("The connection to the server is lost.");
  for (const [view, wrong] of FAILING) {
    await page.open(service, view);
    await page.shows(`${wrong} ${AWAY}; this page asks again by itself.`);
  }
  await page.isAccessible("a view of a server that is away");
  await service.start();
  await page.shows("since the process began");
  await page.hides(AWAY);
  await played.page.bringToFront();
  await played.shows("10 of 20");
  await played.hides(AWAY);
});
