// With tokens: signing in, what a reader may not, and a token that is taken away in mid-session (faults 51, 74).

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { scenario } from "./support.mjs";

const token = (name, secret, scopes) =>
  `[[token]]\nname = "${name}"\nscopes = ${JSON.stringify(scopes)}\nsha256 = "${createHash("sha256").update(secret).digest("hex")}"\n`;

const [READER, ADMIN] = ["the-secret-of-the-reader", "the-secret-of-the-admin"];
const reader = token("reader", READER, ["read"]);
const admin = token("admin-anna", ADMIN, ["read", "configure"]);

await scenario(async ({ server, tab }) => {
  const service = await server()
    .configure(reader + admin)
    .start();
  const page = await tab();
  await page.open(service, "#/clients?id=user123");
  await page.shows("Token");
  await page.isAccessible("sign-in");
  await page.says(".curl pre", `curl -X POST ${service.url}/v1/session -H "authorization: Bearer $TOKEN"`);
  await page.fill("Token", "a-secret-that-is-none");
  await page.click("button", "Sign in");
  await page.shows("You are not signed in.");

  await page.fill("Token", READER);
  await page.click("button", "Sign in");
  // Back where it began, as who it is; what it may not do is not offered.
  await page.shows("A request of user123 would be allowed now.");
  await page.shows("reader (read only)");
  assert.doesNotMatch(await page.text(), /Give it its own limit/);
  assert.equal(await page.page.evaluate(() => document.cookie), "", "the cookie is out of scripts' reach");
  const cookies = await page.page.browserContext().cookies();
  assert.deepEqual(
    cookies.map(({ name, httpOnly, sameSite }) => [name, httpOnly, sameSite]),
    [["tidegate_session", true, "Strict"]],
  );
  assert.equal(
    await page.page.evaluate(
      (secret) => JSON.stringify({ ...localStorage, ...sessionStorage }).includes(secret),
      READER,
    ),
    false,
  );
  await page.click("button", "Sign out");
  await page.shows("Token");

  await page.fill("Token", ADMIN);
  await page.click("button", "Sign in");
  await page.shows("admin-anna");
  await page.click("button", "Give it its own limit");
  await page.fill("Limit", "500");
  await page.says(".edit .curl pre", /-H "authorization: Bearer \$TOKEN"/);
  await page.click("button", "Save");
  await page.shows("500 per 60 s the client's own");
  await page.hides("What is as everyone's follows everyone's.");
  const told = await service.ask("GET", "/v1/audit", undefined, { authorization: `Bearer ${ADMIN}` });
  assert.equal(told.body.at(-1).actor, "admin-anna");

  // The token is taken away while the page is open: the next request is refused, and the page asks to sign in.
  service.configure(reader);
  service.process.kill("SIGHUP");
  await page.shows("The session is over, or its token was taken away. Sign in again.");
  await page.fill("Token", READER);
  await page.click("button", "Sign in");
  await page.shows("reader (read only)");
});
