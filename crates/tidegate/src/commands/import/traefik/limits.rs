//! `rateLimit` and `inFlightReq`: policies, one for each router that uses the middleware, since Traefik counts for each apart.
//!
//! Traefik's bucket lets `burst` requests through at once and gets `average` of them back in each `period`, as a token bucket
//! does. What is a little early it holds back for up to half a second; a gateway's limit answers at once.

use serde_json::{Value, json};

use super::super::fields::{Fields, Taken};
use super::super::product::ProductTable;
use super::TraefikImporter;
use super::service::seconds_of;

impl<'y> TraefikImporter<'y> {
    pub(super) fn rate_limit(
        &mut self,
        router: &str,
        config: &Taken<'y>,
        fields: &mut Fields<'y>,
        route: &mut ProductTable,
    ) {
        let average = self.count(fields, "average", 0);
        let burst = self.count(fields, "burst", 1);
        let period = fields.take("period").map_or(Some(json!(1)), |it| seconds_of(&it, &mut self.product));
        let key = self.criterion(fields, "ip");
        let (Some(average), Some(burst), Some(period), Some(key)) = (average, burst, period, key) else {
            return;
        };
        if average == 0 {
            self.differs(config, "limits nothing, since its average is 0, and is left out");
            return;
        }
        self.differs(
            config,
            "a request beyond it is denied at once, and never held back; a /64 of IPv6 is one client",
        );
        let policy = vec![
            ("algorithm", json!("token_bucket")),
            ("limit", json!(average)),
            ("window_seconds", period),
            ("burst", json!(burst.max(1))),
            ("key", json!([key])),
        ];
        self.policy(router, config, policy, route);
    }

    pub(super) fn in_flight(
        &mut self,
        router: &str,
        config: &Taken<'y>,
        fields: &mut Fields<'y>,
        route: &mut ProductTable,
    ) {
        let amount = self.count(fields, "amount", 0);
        let key = self.criterion(fields, "host");
        if let (Some(amount), Some(key)) = (amount, key) {
            let policy =
                vec![("algorithm", json!("concurrency")), ("limit", json!(amount)), ("key", json!([key]))];
            self.policy(router, config, policy, route);
        }
    }

    /// The attribute by which a `sourceCriterion` tells clients apart. `None`: it is listed.
    fn criterion(&mut self, fields: &mut Fields<'y>, default: &str) -> Option<String> {
        let Some(taken) = fields.take("sourceCriterion") else { return Some(default.to_owned()) };
        let before = self.product.missing.len();
        let mut criterion = taken.fields(&mut self.product);
        let header = criterion.text("requestHeaderName");
        let is_host = criterion.take("requestHost").is_some_and(|host| host.is_true());
        let strategy = criterion.map("ipStrategy", &mut self.product);
        let has_strategy = strategy.is_some();
        if let Some(strategy) = strategy {
            strategy.end_strictly(&mut self.product);
        }
        criterion.end_strictly(&mut self.product);
        match (header, is_host, has_strategy) {
            _ if self.product.missing.len() > before => None,
            (Some(header), false, false) => {
                let header = header.to_ascii_lowercase();
                let name = format!("header_{}", header.replace('-', "_"));
                self.differs(
                    &taken,
                    format!("a request without {header} is not limited, unless on_no_match = \"deny\""),
                );
                if !self.product.attributes.iter().any(|(known, _)| *known == name) {
                    self.product.attributes.push((name.clone(), json!({ "header": header })));
                }
                Some(name)
            }
            (None, true, false) => Some("host".to_owned()),
            (None, false, true) => Some("ip".to_owned()),
            (None, false, false) => Some(default.to_owned()),
            _ => {
                self.lacks(&taken, "is not understood here: one criterion is");
                None
            }
        }
    }

    /// Adds the policy of a router's middleware to a route.
    fn policy(
        &mut self,
        router: &str,
        config: &Taken<'y>,
        fields: Vec<(&'static str, Value)>,
        route: &mut ProductTable,
    ) {
        let of = (router.to_owned(), config.path.clone());
        let name = self.policies.get(&of).cloned().unwrap_or_else(|| {
            let name = self.product.name(&[router, config.path.split('.').nth(2).unwrap_or_default()]);
            let mut document = ProductTable::new(config.source.clone());
            document.set("name", name.clone());
            document.fields.extend(fields);
            self.product.policies.push(document);
            name
        });
        let mut names = route.value("policies").as_array().cloned().unwrap_or_default();
        names.push(json!(name));
        route.set("policies", names);
        self.policies.insert(of, name);
    }
}
