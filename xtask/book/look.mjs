// What a reader of the book does, in Debian's Chromium, from the disk and without a network: opens it, searches, follows what
// is found, reads by day and by night, looks at every page in a window and on a telephone. `cargo xtask book --look` runs it; pictures go beside the book.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [html, packages, pictures] = process.argv.slice(2);
const puppeteer = createRequire(join(packages, "any.js"))("puppeteer-core");
/** Longest wait for what must become so, on a machine that is busy. */
const PATIENCE = 60_000;

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  // It ends with this process, however that ends.
  pipe: true,
  args: ["--no-sandbox", "--disable-gpu"],
});

/** A tab in which every address but the disk's is a mistake. */
async function open(page, scheme) {
  const tab = await browser.newPage();
  tab.setDefaultTimeout(PATIENCE);
  const wrong = [];
  tab.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  tab.on("request", (request) => {
    if (!/^(file|data):/.test(request.url())) wrong.push(`asks ${request.url()}`);
  });
  await tab.setViewport({ width: 1280, height: 900 });
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await tab.goto(pathToFileURL(join(html, page)).href);
  return { tab, wrong };
}

/** How bright the page's ground is, of 255. */
const brightness = (tab) =>
  tab.evaluate(() => {
    const [red, green, blue] = getComputedStyle(document.documentElement).backgroundColor.match(/\d+/g).map(Number);
    return (red + green + blue) / 3;
  });

try {
  const day = await open("index.html", "light");
  assert.ok((await brightness(day.tab)) > 200, "the page is dark by day");
  await day.tab.screenshot({ path: join(pictures, "light.png") });

  // The search, which has to find a word of a page that is not this one.
  await day.tab.keyboard.press("s");
  await day.tab.waitForSelector("#mdbook-searchbar, #searchbar", { visible: true });
  await day.tab.type("#mdbook-searchbar, #searchbar", "quarantine");
  await day.tab.waitForFunction(() => document.querySelector("#mdbook-searchresults a, #searchresults a"));
  await day.tab.screenshot({ path: join(pictures, "search.png") });
  const results = await day.tab.$$eval("#mdbook-searchresults a, #searchresults a", (links) =>
    links.map((link) => link.href),
  );
  assert.ok(results.some((link) => link.includes("/docs/")), `found: ${results}`);
  await Promise.all([
    day.tab.waitForNavigation(),
    day.tab.click("#mdbook-searchresults a, #searchresults a"),
  ]);
  assert.match(await day.tab.$eval("main", (main) => main.innerText), /quarantine/i);
  assert.deepEqual(day.wrong, []);

  // A page with a diagram and tables, by night.
  const night = await open("docs/intake.html", "dark");
  assert.ok((await brightness(night.tab)) < 80, "the page is light by night");
  await night.tab.$eval("main img", (image) => image.scrollIntoView());
  const drawn = await night.tab.$$eval("main img", (images) => images.map((image) => image.naturalWidth));
  assert.ok(drawn.length > 0 && drawn.every((width) => width > 0), `pictures: ${drawn}`);
  await night.tab.screenshot({ path: join(pictures, "dark.png") });
  assert.deepEqual(night.wrong, []);

  // Every page but the decisions, in a window and on a telephone: its pictures are there, and nothing makes the page wider than the
  // window; wide tables and blocks of code scroll by themselves.
  const { tab: reader, wrong } = await open("index.html", "light");
  const contents = await reader.$$eval("nav a", (links) => links.map((link) => link.href.split("#")[0]));
  const pages = [...new Set(contents)].filter((page) => page.endsWith(".html") && !page.includes("/decisions/"));
  assert.ok(pages.length > 40, `pages in the contents: ${pages.length}`);
  for (const width of [1280, 390]) {
    await reader.setViewport({ width, height: 900 });
    for (const page of pages) {
      await reader.goto(page);
      const [wide, missing] = await reader.evaluate(() => [
        document.documentElement.scrollWidth,
        [...document.querySelectorAll("main img")]
          .filter((image) => image.naturalWidth === 0)
          .map((image) => image.src),
      ]);
      assert.ok(wide <= width, `${page} is ${wide} wide in a window of ${width}`);
      assert.deepEqual(missing, [], `${page} lacks pictures`);
    }
  }
  assert.deepEqual(wrong, []);
  console.log(`${results.length} places found for one word, ${pages.length} pages looked at; light and dark are in ${pictures}`);
} finally {
  await browser.close();
}
