// A client's id is what a stranger chose. It is shown as text, and runs nothing (fault 51).

import assert from "node:assert/strict";
import { scenario } from "./support.mjs";

const HOSTILE = `"><img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`;

await scenario(async ({ server, tab }) => {
  const service = await server().start();
  assert.ok((await service.spend(HOSTILE, 102)) > 0);
  const page = await tab();
  await page.open(service);
  await page.shows(HOSTILE);
  await page.open(service, `#/clients?${new URLSearchParams({ id: HOSTILE })}`);
  await page.shows(`${HOSTILE} is denied by the policy default`);
  await page.click("button", "Give it its own limit");
  await page.fill("Limit", "300");
  await page.click("button", "Save");
  await page.shows("300 per 60 s the client's own");
  await page.click("link", "Audit");
  await page.shows(HOSTILE);
  await page.open(service, `#/policies/${encodeURIComponent(HOSTILE)}`);
  await page.shows(`There is no policy ${HOSTILE} in force.`);
  const [title, elements] = await page.page.evaluate(() => [
    document.title,
    document.querySelectorAll("img[src=x], script:not([src])").length,
  ]);
  assert.ok(!title.startsWith("owned"), title);
  assert.equal(elements, 0);

  // Nor would the page run what somebody got into it, or be a frame of another's page.
  const { headers } = await fetch(service.url);
  const policy = headers.get("content-security-policy");
  for (const part of [
    "default-src 'none'",
    "script-src 'self'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
  ]) {
    assert.ok(policy.includes(part), policy);
  }
  assert.ok(!policy.includes("unsafe"), policy);
  const smuggled = page.page.evaluate(() => {
    const button = document.createElement("button");
    button.setAttribute("onclick", "document.title='owned'");
    document.body.append(button);
    button.click();
  });
  await assert.rejects(smuggled, /requires 'TrustedScript' assignment/);
  assert.ok(!(await page.page.title()).startsWith("owned"));
  page.wrong = page.wrong.filter((text) => !text.includes("TrustedScript"));
});
