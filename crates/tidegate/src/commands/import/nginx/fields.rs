//! `proxy_set_header` and `add_header`: what requests and replies are sent on with.
//!
//! A route sets fields to fixed values. Of the variables that people use here, most say what Tidegate's servers are told
//! anyway; those that say something else are listed.

use serde_json::{Map, Value, json};

use super::super::product::ProductTable;
use super::Importer;
use super::files::Node;
use super::forward::ProxyPass;
use super::scope::Scope;

/// Fields that servers are told whatever the route says, with the variables that say the same.
const TOLD: [(&str, &[&str]); 9] = [
    ("host", &["$host", "$http_host"]),
    ("x-forwarded-for", &["$proxy_add_x_forwarded_for", "$remote_addr"]),
    ("x-forwarded-proto", &["$scheme"]),
    ("x-forwarded-host", &["$host", "$http_host"]),
    ("x-request-id", &["$request_id"]),
    ("upgrade", &["$http_upgrade"]),
    ("connection", &["", "close", "upgrade", "keep-alive", "$connection_upgrade", "$http_connection"]),
    ("content-length", &["$content_length"]),
    ("te", &["$http_te"]),
];

impl<'n> Importer<'n> {
    pub(super) fn request_fields(
        &mut self,
        target: &ProxyPass<'n>,
        scope: &Scope<'n>,
        route: &mut ProductTable,
    ) {
        let (mut set, mut remove) = (Map::new(), Vec::new());
        let mut names_host = false;
        for node in scope.all("proxy_set_header") {
            let [name, value] = node.words()[..] else {
                self.product.lacks(&node.source(), &node.name, "is not understood here");
                continue;
            };
            let field = name.to_ascii_lowercase();
            names_host |= field == "host";
            let is_told = TOLD.iter().any(|(told, values)| *told == field && values.contains(&value));
            let is_kept = value.strip_prefix("$http_").is_some_and(|it| it.replace('_', "-") == field);
            if is_told || is_kept {
                self.told(node, &field, value);
            } else if value.is_empty() {
                remove.push(json!(field));
            } else if field == "host" && value == "$proxy_host" {
                set.insert(field, json!(target.host()));
            } else if field == "x-real-ip" && value == "$remote_addr" {
                let problem = "is not sent: X-Forwarded-For ends with the same address";
                self.product.differs(&node.source(), name, problem);
            } else if !value.contains('$') {
                set.insert(field, json!(value));
            } else if !self.is_answered(scope, &field, value) {
                let problem = format!("{value} is not understood here for {name}");
                self.product.lacks(&node.source(), &node.name, problem);
            }
        }
        if !names_host {
            set.insert("host".to_owned(), json!(target.host()));
        }
        put(route, "request_fields", set, "set", remove);
    }

    /// What differs although the name and the variable are the same.
    fn told(&mut self, node: &Node, field: &str, value: &str) {
        if field == "x-forwarded-for" && value == "$proxy_add_x_forwarded_for" {
            let problem = "what clients write into it is taken off, unless gateway.trusted_proxy_hops is set";
            self.product.differs(&node.source(), "x-forwarded-for", problem);
        }
    }

    /// Whether `value` is a variable that `auth_request_set` takes from the field of the same name: `auth.rs` says that.
    fn is_answered(&self, scope: &Scope<'n>, field: &str, value: &str) -> bool {
        scope.all("auth_request_set").iter().any(|node| match node.words()[..] {
            [variable, answer] => {
                variable == value
                    && answer.strip_prefix("$upstream_http_").is_some_and(|it| it.replace('_', "-") == field)
            }
            _ => false,
        })
    }

    pub(super) fn response_fields(&mut self, scope: &Scope<'n>, route: &mut ProductTable) {
        let mut add = Map::new();
        for node in scope.all("add_header") {
            let (name, value) = match node.words()[..] {
                [name, value, "always"] => (name, value),
                [name, value] => {
                    let problem = format!("{name} is added to replies of any status");
                    self.product.differs(&node.source(), &node.name, problem);
                    (name, value)
                }
                _ => ("", "$"),
            };
            let field = name.to_ascii_lowercase();
            if value.contains('$') || add.contains_key(&field) {
                let problem = format!("{name} is not understood here: one value without variables is");
                self.product.lacks(&node.source(), &node.name, problem);
            } else if !value.is_empty() {
                add.insert(field, json!(value));
            }
        }
        let hidden = scope.all("proxy_hide_header");
        let hidden =
            hidden.iter().filter_map(|node| node.argument()).map(|name| json!(name.to_ascii_lowercase()));
        let hidden: Vec<Value> = hidden.collect();
        put(route, "response_fields", add, "add", hidden);
    }
}

fn put(
    route: &mut ProductTable,
    key: &'static str,
    pairs: Map<String, Value>,
    how: &str,
    remove: Vec<Value>,
) {
    let mut edits = Map::new();
    if !remove.is_empty() {
        edits.insert("remove".to_owned(), Value::Array(remove));
    }
    if !pairs.is_empty() {
        edits.insert(how.to_owned(), Value::Object(pairs));
    }
    if !edits.is_empty() {
        route.set(key, Value::Object(edits));
    }
}
