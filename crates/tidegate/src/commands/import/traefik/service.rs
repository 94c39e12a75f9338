//! Services: upstreams, made when a router uses them for the first time, and the keys of routes that lead to them.
//!
//! Traefik says with the router how often a request is tried, Tidegate with the upstream: routers of one service that say
//! different things of that are listed.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::bootstrap::percentages;
use super::super::fields::{Fields, Taken};
use super::super::product::{Product, ProductTable};
use super::TraefikImporter;

/// Most upstreams of a split.
const MOST_SHARES: usize = 20;

/// Keys of a route.
type RouteKeys = Vec<(&'static str, Value)>;

/// An upstream of a service.
#[derive(Clone, Debug)]
pub(super) struct MadeUpstream {
    name: String,
    attempts: u64,
    /// The host that its server is told in place of the client's.
    host: Option<String>,
}

impl<'y> TraefikImporter<'y> {
    /// The keys of a route whose requests go to the service `name`. `None`: it is listed.
    pub(super) fn destination(&mut self, name: &str, by: &Taken<'y>, attempts: u64) -> Option<RouteKeys> {
        let taken = self.service(name, by)?;
        let mut fields = taken.fields(&mut self.product);
        match &fields.rest()[..] {
            [("loadBalancer", _)] => {
                let made = self.balanced(name, by, attempts)?;
                let mut keys = vec![("upstream", json!(made.name))];
                keys.extend(made.host.map(|host| ("request_fields", json!({ "set": { "host": host } }))));
                Some(keys)
            }
            [("weighted", config)] => self.weighted(config, attempts),
            [("mirroring", config)] => self.mirroring(config, attempts),
            [("failover", config)] => self.failover(config, attempts),
            _ => {
                let problem = "is not understood here: a loadBalancer, weighted, mirroring or failover is";
                self.lacks(&taken, problem);
                None
            }
        }
    }

    fn service(&mut self, name: &str, by: &Taken<'y>) -> Option<Taken<'y>> {
        let found = self.services.get(name.strip_suffix("@file").unwrap_or(name)).cloned();
        match &found {
            Some(taken) => {
                self.used.insert(taken.path.clone());
            }
            None => self.lacks(by, format!("there is no service {name} in this file")),
        }
        found
    }

    /// The upstream of a service that is a `loadBalancer`.
    fn balanced(&mut self, name: &str, by: &Taken<'y>, attempts: u64) -> Option<MadeUpstream> {
        let taken = self.service(name, by)?;
        if let Some(known) = self.upstreams.get(&taken.path).cloned() {
            if known.attempts == attempts {
                return Some(known);
            }
            let problem = format!("is tried {attempts} times, and {name} {} times elsewhere", known.attempts);
            self.lacks(by, problem);
            return None;
        }
        let mut fields = taken.fields(&mut self.product);
        let balancer = fields.map("loadBalancer", &mut self.product);
        fields.end_strictly(&mut self.product);
        let upstream = self.product.name(&[name.strip_suffix("@file").unwrap_or(name)]);
        let mut document = ProductTable::new(taken.source.clone());
        document.set("name", upstream.clone());
        let Some(balancer) = balancer else {
            self.lacks(by, format!("{name} is not understood here: a loadBalancer is"));
            return None;
        };
        let host = load_balancer(balancer, &mut document, &mut self.product);
        document.set("retries", json!({ "attempts": attempts }));
        self.product.upstreams.push(document);
        let made = MadeUpstream { name: upstream, attempts, host };
        self.upstreams.insert(taken.path, made.clone());
        Some(made)
    }

    /// The same, of one that is a part of another service.
    fn part(&mut self, name: Option<&str>, by: &Taken<'y>, attempts: u64) -> Option<String> {
        let Some(name) = name else {
            self.lacks(by, "names no service");
            return None;
        };
        let made = self.balanced(name, by, attempts)?;
        if made.host.is_some() {
            self.lacks(
                by,
                format!("{name} has passHostHeader = false, which is not understood in a part of a service"),
            );
            return None;
        }
        Some(made.name)
    }

    /// The upstream of the address of a service that is asked whether a request may pass.
    pub(super) fn asked(&mut self, url: &str, by: &Taken<'y>) -> String {
        if let Some(known) = self.upstreams.get(url) {
            return known.name.clone();
        }
        let name = self.product.name(&[url.split_once("://").map_or(url, |(_, host)| host)]);
        let mut document = ProductTable::new(by.source.clone());
        document.set("name", name.clone());
        document.set("servers", json!([url]));
        self.product.upstreams.push(document);
        self.upstreams.insert(url.to_owned(), MadeUpstream { name: name.clone(), attempts: 1, host: None });
        name
    }

    fn weighted(&mut self, taken: &Taken<'y>, attempts: u64) -> Option<RouteKeys> {
        let mut fields = taken.fields(&mut self.product);
        let mut shares: Vec<(String, u64)> = Vec::new();
        let mut is_whole = true;
        for member in fields.list("services", &mut self.product) {
            let mut member_fields = member.fields(&mut self.product);
            let name = member_fields.text("name");
            let weight = member_fields.take("weight").map_or(Some(1), |weight| weight.number());
            member_fields.end_strictly(&mut self.product);
            match self.part(name, &member, attempts).zip(weight) {
                Some((upstream, _)) if shares.iter().any(|(known, _)| *known == upstream) => is_whole = false,
                Some(share) => shares.push(share),
                None => is_whole = false,
            }
        }
        fields.end(&["sticky", "healthCheck"], &mut self.product);
        let weights: Vec<u64> = shares.iter().map(|(_, weight)| *weight).collect();
        let percentages =
            percentages(&weights).filter(|_| is_whole && (1..=MOST_SHARES).contains(&shares.len()));
        let Some(percentages) = percentages else {
            let problem = format!(
                "is not understood here: up to {MOST_SHARES} services, each once, whose weights make tenths of a percent are"
            );
            self.lacks(taken, problem);
            return None;
        };
        if let [(upstream, _)] = &shares[..] {
            return Some(vec![("upstream", json!(upstream))]);
        }
        self.differs(taken, "each service gets a share of the clients, who stay there, not of the requests");
        let share = |((upstream, _), percent): (&(String, u64), Value)| json!({ "upstream": upstream, "percent": percent });
        Some(vec![("split", shares.iter().zip(percentages).map(share).collect())])
    }

    fn mirroring(&mut self, taken: &Taken<'y>, attempts: u64) -> Option<RouteKeys> {
        let mut fields = taken.fields(&mut self.product);
        let main = fields.text("service");
        let mirrors = fields.list("mirrors", &mut self.product);
        fields.end(&["mirrorBody", "maxBodySize", "healthCheck"], &mut self.product);
        let main = self.part(main, taken, attempts)?;
        let [mirror] = &mirrors[..] else {
            self.lacks(taken, "is not understood here: one mirror is");
            return None;
        };
        let mut fields = mirror.fields(&mut self.product);
        let (name, percent) = (fields.text("name"), fields.take("percent").map_or(Some(0), |it| it.number()));
        fields.end_strictly(&mut self.product);
        let upstream = self.part(name, mirror, attempts)?;
        self.differs(
            taken,
            "copies have the field tidegate-mirror, and bodies that come with the head of a request",
        );
        Some(vec![("upstream", json!(main)), ("mirror", json!({ "upstream": upstream, "percent": percent }))])
    }

    fn failover(&mut self, taken: &Taken<'y>, attempts: u64) -> Option<RouteKeys> {
        let mut fields = taken.fields(&mut self.product);
        let (main, fallback) = (fields.text("service"), fields.text("fallback"));
        fields.end(&["healthCheck"], &mut self.product);
        let main = self.part(main, taken, attempts)?;
        let fallback = self.part(fallback, taken, attempts)?;
        self.differs(
            taken,
            "the fallback takes a request that the service would answer 502, 503 or 504 for want of a server",
        );
        Some(vec![("upstream", json!(main)), ("fallback", json!({ "upstream": fallback }))])
    }
}

/// Fills in an upstream. The host that its server is told, if it is not the client's.
fn load_balancer(
    mut balancer: Fields<'_>,
    document: &mut ProductTable,
    product: &mut Product,
) -> Option<String> {
    let authorities = servers(&mut balancer, document, product);
    let strategy = balancer.take("strategy");
    let (balance, difference) = match strategy.as_ref().and_then(Taken::text) {
        None | Some("wrr") => ("round_robin", None),
        Some("p2c") => ("least_requests", None),
        Some("hrw") => ("ring_hash", Some("is ring_hash by address here: other clients meet at a server")),
        Some("leasttime") => ("peak_ewma", Some("is peak_ewma here: the time of late replies weighs more")),
        Some(_) => ("round_robin", Some("is round_robin here")),
    };
    if let Some((taken, difference)) = strategy.as_ref().zip(difference) {
        product.differs(&taken.source, &taken.path, difference);
    }
    document.set("balance", balance);
    if let Some(sticky) = balancer.take("sticky") {
        document.set("balance", "ring_hash");
        let problem = "is ring_hash here: a client stays at its server by its address, and gets no cookie";
        product.differs(&sticky.source, &sticky.path, problem);
    }
    if let Some(check) = balancer.take("healthCheck") {
        let check = health_check(&check, product);
        document.set("check", Value::Object(check));
    }
    let passes = balancer.take("passHostHeader");
    balancer.end(&["responseForwarding"], product);
    let passes = passes.filter(|it| it.text() == Some("false"))?;
    if authorities.len() != 1 {
        let problem =
            "is not understood here where there are several servers: each would be told a host of its own";
        product.lacks(&passes.source, &passes.path, problem);
    }
    authorities.into_iter().next()
}

/// The servers' hosts with their ports.
fn servers(balancer: &mut Fields<'_>, document: &mut ProductTable, product: &mut Product) -> Vec<String> {
    let (mut servers, mut authorities) = (Vec::new(), Vec::new());
    for taken in balancer.list("servers", product) {
        let mut server = taken.fields(product);
        let (url, weight) = (server.text("url"), server.take("weight").and_then(|weight| weight.number()));
        server.end_strictly(product);
        let Some((scheme, rest)) = url.and_then(|url| url.split_once("://")) else {
            product.lacks(&taken.source, &taken.path, "has no url as in http://127.0.0.1:3000");
            continue;
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() {
            product.differs(&taken.source, &taken.path, "has a path, which is left out, as Traefik does");
        }
        if scheme == "h2c" {
            document.set("protocol", "http2");
        }
        let url = format!("{}://{authority}", if scheme == "h2c" { "http" } else { scheme });
        servers.push(weight.map_or(json!(url), |weight| json!({ "url": url, "weight": weight })));
        authorities.push(authority.to_owned());
    }
    document.set("servers", servers);
    authorities
}

fn health_check(taken: &Taken<'_>, product: &mut Product) -> Map<String, Value> {
    let mut check = taken.fields(product);
    // One check decides there.
    let mut table =
        Map::from_iter([("rise", 1), ("fall", 1)].map(|(key, number)| (key.to_owned(), json!(number))));
    for (there, here, default) in [("interval", "interval_seconds", 30), ("timeout", "timeout_seconds", 5)] {
        let time = check.take(there).map_or(Some(json!(default)), |time| seconds_of(&time, product));
        table.extend(time.map(|time| (here.to_owned(), time)));
    }
    for (there, here) in [("path", "path"), ("hostname", "host")] {
        table.extend(check.text(there).map(|text| (here.to_owned(), json!(text))));
    }
    match check.take("status").and_then(|status| status.number()) {
        Some(status) => drop(table.insert("status".to_owned(), json!(status))),
        None => {
            let problem = "passes with a status of 200 to 299 here, there with one of 300 to 399, too";
            product.differs(&taken.source, &taken.path, problem);
        }
    }
    if let Some(mut headers) = check.map("headers", product) {
        let pairs = headers
            .rest()
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), json!(value.text()?))));
        table.insert("fields".to_owned(), Value::Object(pairs.collect()));
    }
    check.end(&["followRedirects", "unhealthyInterval"], product);
    table
}

/// A time as Traefik writes it, in seconds; anything else is listed.
pub(super) fn seconds_of(taken: &Taken<'_>, product: &mut Product) -> Option<Value> {
    let time = taken.text().and_then(seconds);
    if time.is_none() {
        product.lacks(&taken.source, &taken.path, "is no time as in 10s");
    }
    time
}

/// `90`, `10s`, `1m30s`, `500ms`.
fn seconds(text: &str) -> Option<Value> {
    if let Ok(whole) = text.parse::<u64>() {
        return Some(json!(whole));
    }
    let (mut milliseconds, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let (number, units) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?);
        let end = units.find(|letter: char| letter.is_ascii_digit()).unwrap_or(units.len());
        let unit = match &units[..end] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        milliseconds = milliseconds.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        rest = &units[end..];
    }
    let is_whole = milliseconds.is_multiple_of(1_000);
    let time = Duration::from_millis(milliseconds);
    (!text.is_empty()).then(|| if is_whole { json!(time.as_secs()) } else { json!(time.as_secs_f64()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_go_or_whole_seconds() {
        for (text, expected) in [
            ("90", Some(json!(90))),
            ("10s", Some(json!(10))),
            ("1m30s", Some(json!(90))),
            ("500ms", Some(json!(0.5))),
            ("1h", Some(json!(3600))),
            ("", None),
            ("s", None),
            ("10", Some(json!(10))),
            ("10s5", None),
            ("-1s", None),
            ("1d", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
