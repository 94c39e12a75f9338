// For how long certificates are good, as the metrics page says it.

import type { Reading } from "./metrics";

/** What ends sooner should have been renewed, in seconds. */
export const CERTIFICATE_SOON = 14 * 86_400;

export interface Certificate {
  /** Whose it is, in words. */
  of: string;
  /** One of its names, if it is told apart by it. */
  name: string | undefined;
  /** The listener that shows it; `undefined` of one that is had by ACME, or that servers are shown. */
  server: string | undefined;
  /** For how many seconds it is good. */
  left: number;
  /** Its files as they are now were refused, and the ones before are in force. */
  isRefused: boolean;
}

/** Those that listeners show, those that servers are shown, and those that are had by ACME; what ends first is first. Of a
 * listener that has more of them than have numbers of their own there is the one that ends first, too. */
export function certificates(reading: Reading): Certificate[] {
  const of = (family: string) => reading.families.get(family) ?? [];
  const named = of("tidegate_tls_certificate_name_seconds_left");
  const isRefused = (server: string) =>
    of("tidegate_tls_last_reload_successful").some(
      ({ labels, value }) => labels.server === server && value !== 1,
    );
  const all = [
    ...named.map(({ labels: { server = "", name = "" }, value }) => ({
      of: `${name}, listener ${server}`,
      name,
      server,
      left: value,
      isRefused: isRefused(server),
    })),
    ...of("tidegate_tls_certificate_seconds_left")
      .filter(
        ({ labels, value }) =>
          !named.some((it) => it.labels.server === labels.server && it.value <= value + 1),
      )
      .map(({ labels: { server = "" }, value }) => ({
        of: `listener ${server}`,
        name: undefined,
        server,
        left: value,
        isRefused: isRefused(server),
      })),
    ...of("tidegate_upstream_certificate_seconds_left").map(({ labels: { upstream = "" }, value }) => ({
      of: `upstream ${upstream}, shown to its servers`,
      name: undefined,
      server: undefined,
      left: value,
      isRefused: of("tidegate_upstream_certificate_last_reload_successful").some(
        ({ labels, value }) => labels.upstream === upstream && value !== 1,
      ),
    })),
    ...of("tidegate_acme_certificate_seconds_left").map(({ labels, value }) => ({
      of: `${labels.name}, by ACME`,
      name: labels.name,
      server: undefined,
      left: value,
      isRefused: false,
    })),
  ];
  return all.sort((a, b) => a.left - b.left);
}
