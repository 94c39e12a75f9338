//! Directives that answer, and those that change requests and replies.

use serde_json::{Value, json};
use tidegate_wire::caddyfile::CaddyDirective;

use super::super::product::ProductTable;
use super::block::CaddyScope;
use super::change::{CaddyChange, put_field};
use super::{CaddyImporter, has_placeholder};

impl CaddyImporter {
    /// What a directive answers. What of it is not understood is listed.
    pub(super) fn answer(
        &mut self,
        node: &CaddyDirective,
        arguments: &[&str],
        scope: &CaddyScope,
    ) -> ProductTable {
        let mut table = ProductTable::new(self.source(node));
        match node.name() {
            "reverse_proxy" => {
                let (proxy, others) = self.proxy(node, arguments);
                for line in others {
                    self.lacks(line, "is not understood here");
                }
                table.set("upstream", proxy.upstream);
                for change in proxy.changes {
                    let done = match change {
                        CaddyChange::Key(key, value) => {
                            table.set(key, value);
                            Some(())
                        }
                        CaddyChange::Field(side, how, name, value) => {
                            put_field(&mut table, side, how, &name, &value)
                        }
                        CaddyChange::Closed => None,
                    };
                    if done.is_none() {
                        self.lacks(node, "changes a field twice");
                    }
                }
            }
            "redir" => {
                let redirect = redirect(arguments, scope).filter(|_| node.block.is_none());
                match redirect {
                    Some(redirect) => table.set("redirect", redirect),
                    None => self.lacks(
                        node,
                        "is not understood here: a URL with {host} behind its scheme and {uri} at its end at most, \
                         and a status are",
                    ),
                }
            }
            "respond" => match response(arguments).filter(|_| node.block.is_none()) {
                Some(respond) => table.set("respond", respond),
                None => {
                    self.lacks(node, "is not understood here: a text without placeholders and a status are")
                }
            },
            _ => self.lacks(node, "is not understood here"),
        }
        table
    }

    /// What a directive changes. What of it is not understood is listed.
    pub(super) fn changes(&mut self, node: &CaddyDirective, arguments: &[&str]) -> Vec<CaddyChange> {
        let key = |key, value: Value| vec![CaddyChange::Key(key, value)];
        match (node.name(), arguments) {
            ("header", _) => self.fields(node, arguments, "response_fields"),
            ("request_header", _) => self.fields(node, arguments, "request_fields"),
            ("forward_auth", _) => self.forward_auth(node, arguments),
            ("encode", _) => {
                if !node.lines().is_empty() {
                    self.differs(node, "has a block without effect: compress decides by type and size");
                }
                key("compress", json!(true))
            }
            ("request_body", []) => {
                let mut most = None;
                for line in node.lines() {
                    match (line.name(), &line.arguments()[..]) {
                        ("max_size", [size]) => most = most.or(bytes(size)),
                        _ => self.lacks(line, "is not understood here"),
                    }
                }
                let Some(most) = most else {
                    self.lacks(node, "has no max_size that is understood here");
                    return Vec::new();
                };
                key("max_body_bytes", json!(most))
            }
            ("uri", ["strip_prefix", prefix]) if prefix.starts_with('/') && !has_placeholder(prefix) => {
                key("strip_prefix", json!(prefix.trim_end_matches('/')))
            }
            ("rewrite", [to]) => {
                let front = to.strip_suffix("{uri}").or_else(|| to.strip_suffix("{path}"));
                let text = front.unwrap_or(to);
                if !text.starts_with('/')
                    || text.contains(['{', '?', '#'])
                    || front.is_some_and(|it| it.ends_with('/'))
                {
                    self.lacks(node, "is not understood here: a path is, with {uri} at its end at most");
                    return Vec::new();
                }
                key(if front.is_some() { "add_prefix" } else { "replace_path" }, json!(text))
            }
            _ => {
                self.lacks(node, "is not understood here");
                Vec::new()
            }
        }
    }

    /// Edits of fields: one in the line itself, or one in each line of a block.
    fn fields(&mut self, node: &CaddyDirective, arguments: &[&str], side: &'static str) -> Vec<CaddyChange> {
        let own = CaddyDirective {
            words: arguments.iter().map(|text| (*text).to_owned()).collect(),
            block: None,
            place: node.place,
        };
        let lines: Vec<&CaddyDirective> =
            node.lines().iter().chain(Some(&own)).filter(|it| !it.words.is_empty()).collect();
        // Caddy then sets all of them when the reply of a server is there. Else they come beside the server's own.
        let waits = |it: &&CaddyDirective| it.name() == "defer" || it.name().starts_with(['-', '>']);
        let how = if side == "request_fields" || lines.iter().any(waits) { "set" } else { "put" };
        let mut changes = Vec::new();
        for line in lines.iter().filter(|line| line.name() != "defer") {
            changes.extend(self.field(line, line.name(), &line.arguments(), side, how));
        }
        changes
    }

    /// One edit of a field: `-name`, `+name value`, `name value`.
    pub(super) fn field(
        &mut self,
        line: &CaddyDirective,
        name: &str,
        values: &[&str],
        side: &'static str,
        set: &'static str,
    ) -> Option<CaddyChange> {
        let (how, name) = match name.split_at_checked(1) {
            Some(("-", name)) => ("remove", name),
            Some(("+", name)) => ("add", name),
            Some((">", name)) if side == "response_fields" => (set, name),
            _ => (set, name),
        };
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let value = match values {
            [value] if how != "remove" => Some(*value),
            [] if how == "remove" => Some(""),
            _ => None,
        };
        let Some(value) = value.filter(|value| is_name && !has_placeholder(value) && line.block.is_none())
        else {
            self.lacks(
                line,
                "is not understood here: a name with - or + at most, and a value without placeholders are",
            );
            return None;
        };
        Some(CaddyChange::Field(side, how, name.to_owned(), value.to_owned()))
    }
}

/// `redir to [status]` as a redirect of ours. `None`: it is not understood.
fn redirect(arguments: &[&str], scope: &CaddyScope) -> Option<Value> {
    let (to, code) = match arguments {
        [to] => (*to, "temporary"),
        [to, code] => (*to, *code),
        _ => return None,
    };
    let status = match code {
        "temporary" | "302" => 302,
        "permanent" | "301" => 301,
        code => code.parse::<u16>().ok().filter(|status| matches!(status, 303 | 307 | 308))?,
    };
    // The one host that it can be; elsewhere than behind the scheme, a location has no host of the request.
    let to = match scope.hosts() {
        [host] if !host.starts_with('*') => to.replace("{host}", host),
        _ => to.to_owned(),
    };
    let keeps_uri = to.ends_with("{uri}");
    let is_whole = to.contains("://") || !to.contains('{');
    let bare = to.strip_suffix("{uri}").unwrap_or(&to).replacen("://{host}", "://", 1);
    let keeps_its_own = keeps_uri && (scope.is_rewritten || bare.ends_with('/'));
    (is_whole && !bare.contains(['{', '}']) && !keeps_its_own)
        .then(|| json!({ "status": status, "location": to }))
}

/// `respond [body] [status]` as a fixed reply of ours. `None`: it is not understood.
fn response(arguments: &[&str]) -> Option<Value> {
    let code = |text: &str| text.parse::<u16>().ok().filter(|_| text.len() == 3);
    let (body, status) = match arguments {
        [] => ("", Some(200)),
        [one] => code(one).map_or((*one, Some(200)), |status| ("", Some(status))),
        [body, status] => (*body, code(status)),
        _ => return None,
    };
    let status = status.filter(|status| (200..=599).contains(status))?;
    if has_placeholder(body) {
        return None;
    }
    let mut respond = json!({ "status": status });
    if !body.is_empty() {
        let is_json = body.trim().starts_with(['{', '[']) && serde_json::from_str::<Value>(body).is_ok();
        respond["body"] = json!(body);
        respond["content_type"] =
            json!(if is_json { "application/json" } else { "text/plain; charset=utf-8" });
    }
    Some(respond)
}

/// Bytes of `1024`, `10MB`, `1GiB`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match text.get(digits.len()..)?.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
