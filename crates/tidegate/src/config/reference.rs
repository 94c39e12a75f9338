//! The reference page and the JSON schema, made from the table of settings.
//!
//! Both are committed (`docs/`) and a test compares them with what this file makes.

use std::fmt::Write;

use serde_json::{Value as Json, json};
use tidegate_gateway::config::{DocumentKey, ROUTE_KEYS, UPSTREAM_KEYS, rows};
use tidegate_settings::reference::{code, properties, sections};

use super::services::SERVICES;
use super::settings::{GROUPS, TABLE};
use super::{edge, intake_lists};

const PREFACE: &str = "\
# Configuration

<!-- Made by `tidegate config reference`. Edit the table in crates/tidegate/src/config/settings.rs. -->

Every setting can be given in four places; the first that has it wins:

1. a flag: `tidegate serve --http-listen 127.0.0.1:8080`
2. the environment: `TIDEGATE_HTTP_LISTEN=127.0.0.1:8080` (an empty variable counts as unset), and for `[telemetry]`
   OpenTelemetry's own variables behind these
3. the TOML file named by `--config FILE` or `TIDEGATE_CONFIG`: `http.listen = \"127.0.0.1:8080\"`
4. the default

Secrets have no flag, because flags show in `ps`; give a store's URL with a password in the environment
or the file.

`tidegate check FILE` reports every mistake with line, column and what would be accepted, and exits
with 2 if there is one. `tidegate config explain` shows each value and where it came from.
A running server reads the file again when it changes and on SIGHUP; a file with mistakes changes
nothing. The JSON schema for editors is [tidegate.schema.json](tidegate.schema.json).

An address that other machines can reach needs a token or its like ([tokens.md](tokens.md)), or the server
refuses to start. The file may have 4 MiB.
";

const POLICIES: &str = "
## `[[policy]]` and `[[override]]`

Policies and overrides in the file are checked by the same rules as those of the admin API.
An override names a client, a policy of the file (`\"default\"` if it names none) and the numbers
that differ. Without any policy there is one called `default`: 100 requests per 60 seconds and client.

```toml
[[policy]]
name = \"api\"
match = { path = \"/v1/*\" }
key = [\"client_id\"]
algorithm = \"token_bucket\"
limit = 100
window_seconds = 60
burst = 20

[[override]]
client_id = \"partner\"
policy = \"api\"
limit = 1000
```

A policy applies to a request when every attribute under `match` fits and every one in `key` is there:

| pattern | fits |
|---|---|
| `\"GET\"` | exactly this |
| `\"/v1/*\"` | what begins so; `\"*\"` anything |
| `[\"GET\", \"HEAD\"]` | any of up to 64 |
| `{ like = \"/v1/*/edit\" }` | with anything for each `*`, wherever it stands |
| `{ not = [\"GET\", { like = \"*.js\" }] }` | anything but these, up to 256; with `like`, of what that fits |

A request that no policy applies to is answered as `on_no_match` says.

`tiers.pro = { limit = 1000 }` gives requests whose attribute `tier` is `pro` these numbers, and the policy's own where it
names none, under the same counters: who changes tier keeps what is used. The algorithm is the policy's; there are at most 64.
An override comes before a tier.

`replaces = [\"other\"]` leaves those policies out of every request to which this one applies.
`mode = \"shadow\"` counts and never denies; `on_store_failure` is `\"local\"`, `\"open\"` or `\"closed\"`.
";

const GATEWAY: &str = "
## `[[gateway.listener]]`

Where clients of the gateway connect ([gateway.md](gateway.md)). Up to 64; without one, no route has an effect.
A changed listener takes effect with the file, without a restart, as changed routes and upstreams do ([what happens to
connections](gateway.md#changed-listeners)).

| key | default | accepted | what it is |
|---|---|---|---|
| `listen` | required | an address and a port | address of the listener, which may be public |
| `half_closed_seconds` | 0.5 | 0 to 3600 | how long a client of HTTP/1.1 that has closed its side after its request is still answered, until the next bytes of the reply. One that has left looks the same: after this time its server's work ends, too |
| `proxy_protocol_from` | none | a list of up to 100 addresses or networks | proxies in front, each of whose connections begins with a header of the PROXY protocol, version 1 or 2; connections from elsewhere, and those without a whole header within 3 s, are closed |
| `tls_certificate` | none | a file | PEM file with the certificate that it shows; clients must then speak TLS |
| `tls_key` | none | a file | PEM file with the certificate's private key, not encrypted |
| `tls_pairs` | none | a list of up to 1,000 `{ certificate = \"...\", key = \"...\" }` | more certificates, each shown to clients that ask for a name in it; `*.` stands for one label, exact names come first, no two have the same one |
| `tls_acme` | false | true, false | whether it shows the certificates that are ordered for `acme.names`; clients must then speak TLS, and who asks for another name is shown `tls_certificate` |
| `tls_client_ca` | none | a file | PEM file with the authorities of clients' certificates (mTLS) |
| `tls_client_auth` | `\"required\"` | `\"required\"`, `\"optional\"` | whether every client must show such a certificate, or only where a route asks for one (`auth = \"certificate\"`). A bad certificate is refused in both |
| `tls_min_version` | `\"1.2\"` | `\"1.2\"`, `\"1.3\"` | the oldest version of TLS that clients may speak; who speaks older ones alone is refused in the handshake |
| `redirect_to_https` | none | a port | this listener has no routes: every request is answered 308 to `https://` on this port of the same host |
| `hsts_seconds` | none | 0 to 315360000 | `Strict-Transport-Security` on every reply, in place of what a server says: so long a browser uses TLS alone for this host; 0 takes that back |
| `hsts_subdomains` | false | true, false | whether that holds for all names below the host |
";

const ATTRIBUTES: &str = "
## `[attributes]`

Policies look at attributes. Who asks `POST /api/v1/ratelimit` or `POST /v1/decisions` states them in the
body, and Envoy states them as the entries of a descriptor. A proxy that asks `/v1/check` passes on what its
client wrote, so there each attribute has one source, and what comes under its name from elsewhere is not
looked at:

```toml
[attributes.check]
client_id = { header = \"x-api-key\" }
tenant = { path_part = 1 }          # `acme` of /acme/orders

[attributes.grpc]
proxy = \"address\"
```

| source | value | `check` | `grpc` | `gateway` |
|---|---|---|---|---|
| `{ header = \"x-api-key\" }` | the header field of the request, or the metadata of the call | yes | yes | yes |
| `{ cookie = \"session\" }` | the cookie | yes | | yes |
| `{ path_part = 1 }` | this part, from 1 to 32, of the path that the proxy states (`http.proxy_headers`) or that is proxied | yes | | yes |
| `{ query = \"client\" }` | the parameter of `/v1/check?client=...`, which the proxy must escape, or of the proxied request | yes | | yes |
| `\"address\"` | the client's address (`http.trusted_proxy_hops`, `gateway.trusted_proxy_hops`), or Envoy's; an IPv6 one as its /64 | yes | yes | yes |
| `\"tls_name\"` | the name in the certificate that the proxy, Envoy or the client showed: its first URI (a SPIFFE ID is one), or else its first DNS name; needs `tls_client_ca` on the listener | yes | yes | yes |

Without an entry of their own, `path` and `method` are what `http.proxy_headers` says, and `ip` and
`client_id` are the address. `client_id` is the address also where its source has no value. A field, cookie
or parameter that is there twice is refused with 400, and so is a parameter of `/v1/check` that is no source.
For requests that a route of the gateway limits, `route`, `host`, `method` and `path` are those of the request. Where it
asks for an API key, `api_key` is the key's id, `consumer` who uses it and `tier` its tier, and where it asks for a JWT,
`jwt.attributes` are its claims, and `forward_auth.attributes` what another service says, whatever sources say;
`client_id` is the key's id in the place of the address.
In `[attributes.grpc]` a name takes the place of a descriptor's entry of that name, in every descriptor.
RESP has no attributes: its commands bring their key and their limit along.

A client can write any value into a header field or a cookie. Where a value is not checked before the limit,
make a second policy with `key = [\"ip\"]`, so that inventing values gains nothing.
";

const TOKENS: &str = "
## `[[token]]`

Who may do what, with a token of which the file has the digest only; [tokens.md](tokens.md) says what each
scope is for, and how a token is sent. Up to 64.

```toml
[[token]]
name = \"checkout\"              # what the audit log says; not \"admin\", \"default\", \"edge\", \"grpc\" or \"local\"
scopes = [\"decide\", \"refund\"]  # and \"read\", \"configure\", \"ingest\"
sha256 = \"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\"
```
";

/// The reference page, as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut page = PREFACE.to_owned();
    sections(&mut page, TABLE, GROUPS);
    page.push_str(POLICIES);
    page.push_str(GATEWAY);
    keys(&mut page, "`[[upstream]]`", UPSTREAM_KEYS);
    keys(&mut page, "`[[route]]`", ROUTE_KEYS);
    page.push_str(edge::REFERENCE);
    page.push_str(intake_lists::REFERENCE);
    page.push_str(ATTRIBUTES);
    page.push_str(TOKENS);
    page
}

/// The JSON schema (draft 2020-12) of the file.
#[must_use]
pub fn schema() -> Json {
    let mut properties = properties(TABLE, GROUPS);
    for table in SERVICES.iter().flat_map(|service| service.tables) {
        match table.path.split_once('.') {
            Some((group, list)) => properties[group]["properties"][list] = (table.schema)(),
            None => drop(properties.insert(table.path.to_owned(), (table.schema)())),
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tidegate configuration file",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

/// A table of the keys of a document.
fn keys(page: &mut String, title: &str, keys: &'static [DocumentKey]) {
    // Invariant: writing to a String cannot fail.
    let _infallible =
        writeln!(page, "\n## {title}\n\n| key | default | accepted | what it is |\n|---|---|---|---|");
    for (path, key) in rows(keys) {
        let default = if key.default.is_empty() { "required" } else { key.default };
        let (path, accepted, doc) = (code(&path), key.accepted(), key.doc.trim());
        let _infallible = writeln!(page, "| {path} | {default} | {accepted} | {doc} |");
    }
}
