//! Matches of Envoy's routes.

use serde_json::{Map, Value, json};

use super::super::fields::{Fields, Taken};
use super::super::pattern::Pattern;
use super::super::product::{Product, ProductTable};

/// A route's `match`.
pub(super) struct Match<'y> {
    pub(super) pattern: Pattern,
    /// The text of its `prefix`, or of its `path`.
    pub(super) text: &'y str,
    pub(super) is_exact: bool,
    methods: Option<Value>,
    headers: Map<String, Value>,
    query: Map<String, Value>,
}

impl<'y> Match<'y> {
    /// `None`: it is listed.
    pub(super) fn of(taken: &Taken<'y>, product: &mut Product) -> Option<Self> {
        let mut fields = taken.fields(product);
        let path = path(&mut fields, taken, product);
        let (mut methods, mut headers, mut query) = (None, Map::new(), Map::new());
        let mut is_whole = true;
        for header in fields.list("headers", product) {
            match condition(&header, product) {
                Some((":method", value)) => methods = Some(value),
                Some((name, value)) => drop(headers.insert(name.to_owned(), value)),
                None => is_whole = false,
            }
        }
        for parameter in fields.list("query_parameters", product) {
            match condition(&parameter, product) {
                Some((name, value)) => drop(query.insert(name.to_owned(), value)),
                None => is_whole = false,
            }
        }
        let known = fields.take("case_sensitive");
        if let Some(case) = known.filter(|it| !it.is_true()) {
            product.lacks(&case.source, &case.path, "is not understood here: paths are compared by letters");
            is_whole = false;
        }
        is_whole &= fields.is_empty();
        fields.end_strictly(product);
        let (pattern, text, is_exact) = path?;
        is_whole.then_some(Self { pattern, text, is_exact, methods, headers, query })
    }

    fn conditions(&self) -> usize {
        usize::from(self.methods.is_some()) + self.headers.len() + self.query.len()
    }

    /// Whether Tidegate would ask this one before `earlier`, for some request of both.
    pub(super) fn overtakes(&self, earlier: &Self) -> bool {
        self.pattern.overlaps(&earlier.pattern)
            && match self.pattern.order(&earlier.pattern) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => self.conditions() > earlier.conditions(),
                std::cmp::Ordering::Greater => false,
            }
    }

    /// Whether it takes every request.
    pub(super) fn takes_all(&self) -> bool {
        self.conditions() == 0 && self.pattern == Pattern::below("/")
    }

    pub(super) fn write(&self, route: &mut ProductTable) {
        let path = self.pattern.path();
        if path != "/*" {
            route.set("path", path);
        }
        if let Some(methods) = &self.methods {
            route.set("method", methods.clone());
        }
        for (name, pairs) in [("header", &self.headers), ("query", &self.query)] {
            if !pairs.is_empty() {
                route.set(name, Value::Object(pairs.clone()));
            }
        }
    }
}

/// The pattern, its text, and whether it is exact.
fn path<'y>(
    fields: &mut Fields<'y>,
    whole: &Taken<'y>,
    product: &mut Product,
) -> Option<(Pattern, &'y str, bool)> {
    if let Some(text) = fields.text("path") {
        return Some((Pattern::exact(text), text, true));
    }
    if let Some(text) = fields.text("path_separated_prefix") {
        return Some((Pattern::below(text), text, false));
    }
    if let Some(text) = fields.text("prefix") {
        match text.strip_suffix('/') {
            Some("") => {}
            Some(bare) => {
                product.differs(&whole.source, &whole.path, format!("{bare} is taken as {text} is"))
            }
            None => {
                let problem = format!("{text} and all below it are taken, but not {text}x");
                product.differs(&whole.source, &whole.path, problem);
            }
        }
        return Some((Pattern::below(text), text, false));
    }
    let regex = fields.map("safe_regex", product).and_then(|mut regex| {
        drop(regex.take("google_re2"));
        let text = regex.text("regex");
        regex.end_strictly(product);
        text
    });
    // Envoy compares it with the whole path. A pattern says so by its `$`.
    let pattern = regex.and_then(|text| {
        Pattern::of_regex(&format!("^{}$", text.trim_start_matches('^').trim_end_matches('$')))
    });
    if pattern.is_none() {
        let problem = "is not understood here: prefix, path, path_separated_prefix, and regular expressions of \
            whole parts (/a/[^/]+) are";
        product.lacks(&whole.source, &whole.path, problem);
    }
    pattern.map(|pattern| (pattern, "", false))
}

/// A name and the value that it must have.
fn condition<'y>(taken: &Taken<'y>, product: &mut Product) -> Option<(&'y str, Value)> {
    let mut fields = taken.fields(product);
    let name = fields.text("name");
    let mut value = fields.text("exact_match");
    if let Some(mut text) = fields.map("string_match", product) {
        value = text.text("exact");
        text.end_strictly(product);
    }
    let is_whole = fields.is_empty();
    fields.end_strictly(product);
    let found = name.zip(value).filter(|_| is_whole).map(|(name, value)| (name, json!(value)));
    if found.is_none() {
        product.lacks(&taken.source, &taken.path, "is not understood here: a name with an exact value is");
    }
    found
}
