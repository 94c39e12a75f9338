// Certificates by name, the one that ends first at the top, and on the overview, where something is to be done.

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { scenario } from "./support.mjs";

/** A certificate that signed itself, of this name and for so many days; its files. */
function certificate(folder, name, days) {
  const [pem, key] = [join(folder, `${name}.pem`), join(folder, `${name}.key`)];
  const words = `req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days ${days} -subj /CN=${name} -addext subjectAltName=DNS:${name}`;
  execFileSync("openssl", [...words.split(" "), "-keyout", key, "-out", pem], { stdio: "pipe" });
  return { pem, key };
}

await scenario(async ({ server, tab }) => {
  const service = server();
  const pairs = [
    certificate(service.folder, "long.example", 300),
    certificate(service.folder, "short.example", 5),
  ].map(({ pem, key }) => `{ certificate = "${pem}", key = "${key}" }`);
  const client = certificate(service.folder, "client", 100);
  await service
    .configure(
      `gateway.listener = [{ listen = "127.0.0.1:0", tls_pairs = [${pairs}] }]\nroute = [{ name = "a", respond = {} }]\n` +
        `upstream = [{ name = "billing", servers = ["https://127.0.0.1:1"], tls = { certificate_file = "${client.pem}", key_file = "${client.key}" } }]\n`,
    )
    .start();
  const page = await tab();
  await page.open(service, "#/configuration");
  await page.shows("3 certificates");
  await page.says(
    "ul.plain > li:first-child",
    /^! ?good for (4 d 23 h|5 d) short\.example, listener gateway\[0\]/,
  );
  await page.says(
    "ul.plain > li:nth-child(2)",
    /^✓ ?good for (99 d 23 h|100 d) upstream billing, shown to its servers/,
  );
  await page.says(
    "ul.plain > li:last-child",
    /^✓ ?good for (299 d 23 h|300 d) long\.example, listener gateway\[0\]/,
  );
  await page.shows(`short.example, listener gateway[0], from ${join(service.folder, "short.example.pem")}`);
  await page.isAccessible("certificates");
  await page.open(service, "#/");
  await page.shows("certificate of short.example, listener gateway[0] ends in");
  const phone = await tab({ width: 390, height: 844, scheme: "dark" });
  await phone.open(service, "#/configuration");
  await phone.shows("short.example");
  await phone.fits("certificates on a telephone");
});
