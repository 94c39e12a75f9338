//! `tidegate import caddy`: sites of a Caddyfile as listeners, routes and upstreams.
//!
//! | there | here |
//! |---|---|
//! | addresses of sites, `tls`, `email` | `[[gateway.listener]]`, `[acme]` (`address.rs`) |
//! | matchers | `host`, `path`, `method`, `header`, `query` of routes (`matching.rs`) |
//! | `handle`, `route`, the order of directives | which route is for which requests (`block.rs`) |
//! | `reverse_proxy`, `forward_auth` | `[[upstream]]`, `forward_auth` (`proxy.rs`) |
//! | `redir`, `respond`, `header`, `rewrite`, ... | keys of routes (`reply.rs`) |
//!
//! What is not understood is listed, and what it could be for is answered 503 in what `--partial` writes.

mod address;
mod block;
mod change;
mod matching;
mod proxy;
mod reply;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tidegate_wire::caddyfile::{CaddyDirective, MAX_WORD_BYTES, read};
use tidegate_wire::yaml::Position;

use super::product::{Product, ProductTable, SourceLocation, comment};
use super::{Imported, Located, Refused, bounded};
use address::CaddySite;
use block::CaddyScope;
use change::closed;
use matching::{CaddyMatch, CaddyRoute, MAX_ROUTES, place};

/// Most lines that are looked at, snippets wherever they stand.
const MAX_LINES: usize = 50_000;
/// Most snippets that stand in one another.
const MAX_SNIPPETS: usize = 16;

/// What is made, and what is known of the whole file while its parts are looked at.
struct CaddyImporter {
    file: Arc<str>,
    product: Product,
    snippets: BTreeMap<String, Vec<CaddyDirective>>,
    /// Upstreams by what they say.
    upstreams: Vec<(Vec<(&'static str, Value)>, String)>,
    /// Names to order certificates for.
    names: Vec<String>,
    /// `email` and `acme_ca`, by the key that says the same here.
    orders: Vec<(&'static str, CaddyDirective)>,
    /// Lines that may still be looked at.
    left: usize,
    /// Directives have another order than Caddy's own, so that nothing is known of what they guard.
    is_reordered: bool,
}

/// Imports the file at `path`.
pub(super) fn import(path: &Path) -> Result<Imported, Refused> {
    let name = path.display().to_string();
    let bytes = bounded(path).map_err(|error| Refused::Unreadable(name.clone(), error))?;
    let (text, unset) = replaced(&String::from_utf8_lossy(&bytes), |name| std::env::var(name).ok());
    // A file that is no UTF-8 is refused at its line.
    let bytes = if std::str::from_utf8(&bytes).is_ok() { text.into_bytes() } else { bytes };
    let file: Arc<str> = name.into();
    let nodes = read(&bytes)
        .map_err(|finding| Refused::Mistakes(vec![Located { file: Arc::clone(&file), finding }]))?;
    let mut importer = CaddyImporter {
        file,
        product: Product::default(),
        snippets: BTreeMap::new(),
        upstreams: Vec::new(),
        names: Vec::new(),
        orders: Vec::new(),
        left: MAX_LINES,
        is_reordered: false,
    };
    for (line, name) in unset {
        let node = CaddyDirective {
            place: Position { line, column: 1 },
            words: vec![format!("{{${name}}}")],
            block: None,
        };
        importer.lacks(&node, "is not in the environment, and has no default");
    }
    importer.import(nodes);
    let mut header = format!("# Imported from Caddy's {}.\n", comment(&importer.file));
    header.push_str(&importer.acme());
    let mut product = importer.product;
    // A block that is for several paths is looked at for each.
    for list in [&mut product.warnings, &mut product.missing] {
        list.sort();
        list.dedup();
    }
    Ok(product.finish(&header))
}

impl CaddyImporter {
    fn import(&mut self, nodes: Vec<CaddyDirective>) {
        let mut sites = Vec::new();
        let mut nodes = nodes.into_iter();
        while let Some(mut node) = nodes.next() {
            let snippet = node.name().strip_prefix('(').and_then(|name| name.strip_suffix(')'));
            if node.words.is_empty() {
                self.options(&node);
            } else if let Some(name) = snippet.map(str::to_owned) {
                self.snippets.insert(name, node.block.unwrap_or_default());
            } else if node.name() == "import" && node.block.is_none() {
                self.lacks(
                    &node,
                    "is not understood here: sites of this file are, and snippets in their blocks",
                );
            } else {
                if node.block.is_none() {
                    // The only site of a file needs no braces.
                    node.block = Some(nodes.by_ref().collect());
                }
                node.block = Some(self.expanded(node.lines(), 0));
                sites.push(node);
            }
        }
        let sites = self.sites(sites);
        for site in &sites {
            self.site(site);
        }
        if sites.is_empty() {
            let file = CaddyDirective {
                place: Position { line: 1, column: 1 },
                words: vec!["Caddyfile".to_owned()],
                block: None,
            };
            self.lacks(&file, "has no site that is understood here");
        }
    }

    fn options(&mut self, node: &CaddyDirective) {
        for line in node.lines() {
            match (line.name(), &line.arguments()[..]) {
                ("email", [_]) => self.orders.push(("contact", line.clone())),
                ("acme_ca", [_]) => self.orders.push(("directory", line.clone())),
                (
                    "admin" | "debug" | "log" | "grace_period" | "skip_install_trust" | "persist_config"
                    | "storage",
                    _,
                ) => {
                    self.differs(line, "is about Caddy's process: has no counterpart");
                }
                (name, _) => {
                    self.is_reordered |= name == "order";
                    self.lacks(line, "is not understood here");
                }
            }
        }
    }

    /// The lines with those of snippets in the place of `import`.
    fn expanded(&mut self, nodes: &[CaddyDirective], depth: usize) -> Vec<CaddyDirective> {
        let mut lines = Vec::new();
        for node in nodes {
            if !self.spend(node) {
                return lines;
            }
            let arguments = node.arguments();
            let snippet = arguments.first().filter(|_| node.name() == "import" && depth < MAX_SNIPPETS);
            match snippet.and_then(|name| self.snippets.get(*name)).cloned() {
                Some(mut block) => {
                    put_arguments(&mut block, arguments.get(1..).unwrap_or_default());
                    lines.extend(self.expanded(&block, depth + 1));
                }
                None => {
                    let block = node.block.as_ref().map(|block| self.expanded(block, depth));
                    lines.push(CaddyDirective { block, words: node.words.clone(), place: node.place });
                }
            }
        }
        lines
    }

    fn site(&mut self, site: &CaddySite) {
        let node = &site.node;
        let mut routes: Vec<CaddyRoute> = Vec::new();
        for route in self.block(node.lines(), node, CaddyScope::of(site.hosts.clone())) {
            if !routes.iter().any(|known| route.when.is_within(&known.when)) {
                let before = routes.len();
                place(&mut routes, route, before);
            } else if !route.is_rest
                && !routes.iter().any(|it| it.table.source.place == route.table.source.place)
            {
                self.product.differs(
                    &route.table.source,
                    "",
                    "is never reached: what Caddy asks before it answers",
                );
            }
            if routes.len() >= MAX_ROUTES {
                break;
            }
        }
        let is_full = routes.len() >= MAX_ROUTES;
        if is_full {
            self.lacks(node, &format!("would have more than {MAX_ROUTES} routes"));
            let when = CaddyMatch::of(site.hosts.clone());
            routes = vec![CaddyRoute { when, table: closed(self.source(node)), is_rest: false }];
        }
        let is_closed = site.is_closed || self.is_reordered || self.left == 0;
        for CaddyRoute { when, table, .. } in routes {
            let host = when.hosts.first().map_or("all", |host| host.trim_start_matches("*."));
            let path = when.pattern.path();
            let mut route = ProductTable::new(table.source.clone());
            let name = self.product.name(&[host, path.trim_end_matches("/*").trim_matches('/')]);
            route.set("name", name);
            when.write(&mut route);
            let table = if is_closed { closed(table.source) } else { table };
            route.fields.extend(table.fields);
            self.product.routes.push(route);
        }
    }

    /// Whether one more line may be looked at. The first that may not is listed.
    fn spend(&mut self, node: &CaddyDirective) -> bool {
        if self.left == 1 {
            self.lacks(
                node,
                &format!("is one line too many: at most {MAX_LINES} are, with snippets wherever they stand"),
            );
        }
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    fn source(&self, node: &CaddyDirective) -> SourceLocation {
        SourceLocation { file: Arc::clone(&self.file), place: node.place }
    }

    fn missing(&self) -> usize {
        self.product.missing.len()
    }

    fn lacks(&mut self, node: &CaddyDirective, problem: &str) {
        let source = self.source(node);
        self.product.lacks(&source, node.name(), problem);
    }

    fn differs(&mut self, node: &CaddyDirective, problem: &str) {
        let source = self.source(node);
        self.product.differs(&source, node.name(), problem);
    }
}

/// Whether a text has a placeholder: `{host}`, `{http.request.uri}`, `{args[0]}`.
fn has_placeholder(text: &str) -> bool {
    let is_name = |name: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:[]>$?".contains(&byte);
        !name.is_empty() && name.bytes().all(known)
    };
    text.split('{').skip(1).any(|rest| rest.split_once('}').is_some_and(|(name, _)| is_name(name)))
}

/// Puts the arguments of `import` where a snippet names them: `{args[0]}`, or `{args.0}` of older files.
fn put_arguments(nodes: &mut [CaddyDirective], arguments: &[&str]) {
    for node in nodes {
        for word in node.words.iter_mut().filter(|word| word.contains("{args")) {
            for (index, argument) in arguments.iter().enumerate() {
                if word.len() + word.matches("{args").count() * argument.len() > MAX_WORD_BYTES {
                    continue;
                }
                *word = word
                    .replace(&format!("{{args[{index}]}}"), argument)
                    .replace(&format!("{{args.{index}}}"), argument);
            }
        }
        put_arguments(node.block.as_deref_mut().unwrap_or_default(), arguments);
    }
}

/// The text with values of the environment for `{$NAME}` and `{$NAME:default}`, and the names that have none, by line. Names in comments
/// have none either, and are not among these.
fn replaced(text: &str, value: impl Fn(&str) -> Option<String>) -> (String, Vec<(usize, String)>) {
    let (mut replaced, mut unset) = (String::new(), Vec::new());
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let mut rest = line;
        while let Some((before, (inside, after))) =
            rest.split_once("{$").and_then(|(before, after)| Some((before, after.split_once('}')?)))
        {
            let (name, default) =
                inside.split_once(':').map_or((inside, None), |(name, text)| (name, Some(text)));
            let found = value(name).or(default.map(str::to_owned));
            if found.is_none() && !line.trim_start().starts_with('#') {
                unset.push((index + 1, name.to_owned()));
            }
            replaced.push_str(before);
            // One line stays one, so that places are those of the file.
            replaced.push_str(&found.unwrap_or_default().replace(['\n', '\r'], " "));
            rest = after;
        }
        replaced.push_str(rest);
    }
    (replaced, unset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_environment_are_put_in_and_those_that_are_not_set_are_known_by_line() {
        let value = |name: &str| (name == "SET").then(|| "a\nb".to_owned());
        for (text, expected, unset) in [
            ("x {$SET} {$NO:80}:{$SET:1}\n", "x a b 80:a b\n", vec![]),
            ("# {$NO}\n{$NO}{$SET", "# \n{$SET", vec![(2, "NO".to_owned())]),
            ("{host} {$NO:}\n", "{host} \n", vec![]),
        ] {
            assert_eq!(replaced(text, value), (expected.to_owned(), unset), "{text}");
        }
    }

    #[test]
    fn placeholders_are_told_from_json() {
        for (text, expected) in [
            ("{host}", true),
            ("a{http.request.uri}b", true),
            ("{args[0]}", true),
            ("{\"a\": {\"b\": 1}}", false),
            ("{}", false),
            ("{ a }", false),
            ("{a", false),
        ] {
            assert_eq!(has_placeholder(text), expected, "{text}");
        }
    }

    #[test]
    fn arguments_of_a_snippet_do_not_grow_without_end() {
        let node = |word: String| CaddyDirective {
            place: Position { line: 1, column: 1 },
            words: vec![word],
            block: None,
        };
        let mut nodes = [node("a{args[1]}{args.0}".to_owned()), node("{args[0]}".repeat(1_000))];
        put_arguments(&mut nodes, &["b", "c"]);
        assert_eq!(nodes[0].words, ["acb"]);
        let mut nodes = [node("{args[0]}".repeat(1_000))];
        put_arguments(&mut nodes, &["x".repeat(1_000).as_str()]);
        assert!(nodes[0].words[0].len() <= MAX_WORD_BYTES);
    }
}
