//! What a library crate offers to others and nobody takes: `pub` that neither another crate nor the crate's own tests below
//! `tests/` name.
//!
//! Names are compared as words, so an item whose name is common (`new`, `read`) counts as used. A type that stands in a public
//! signature, a public field or a public enum has to be public although nobody writes its name, and is none of these.

use std::collections::{BTreeSet, HashMap};

use super::CountedItem;
use super::rooms::CrateRoom;
use super::tokens::{CodeToken, is_name, text_at, words};

/// Crates that are programs: what is public in them is for their own tests.
const PROGRAMS: [&str; 3] = ["fuzz", "tidegate", "xtask"];

/// Where a word occurs: bits of crates.
#[derive(Clone, Copy, Default)]
struct Places {
    anywhere: u64,
    outside_src: u64,
}

/// The unused public items of all libraries.
pub(super) fn unused(rooms: &[CrateRoom<'_>]) -> Vec<CountedItem> {
    let mut places: HashMap<&str, Places> = HashMap::new();
    for (number, room) in rooms.iter().enumerate() {
        for (source, is_outside) in &room.all {
            for word in source.code.iter().flat_map(|line| words(line)) {
                let known = places.entry(word).or_default();
                known.anywhere |= 1 << number;
                known.outside_src |= u64::from(*is_outside) << number;
            }
        }
    }
    let libraries = rooms.iter().enumerate().filter(|(_, room)| !PROGRAMS.contains(&room.name.as_str()));
    libraries
        .flat_map(|(number, room)| {
            let is_used = |name: &str| {
                places.get(name).is_some_and(|it| {
                    it.anywhere & !(1 << number) != 0 || it.outside_src & (1 << number) != 0
                })
            };
            unused_of(room, is_used)
        })
        .collect()
}

fn unused_of(room: &CrateRoom<'_>, is_used: impl Fn(&str) -> bool) -> Vec<CountedItem> {
    let files: Vec<Vec<CodeToken<'_>>> = room.files.iter().map(|file| file.tokens()).collect();
    let surface: BTreeSet<&str> = files.iter().flat_map(|tokens| surface(tokens)).collect();
    let mut found = Vec::new();
    for (file, tokens) in room.files.iter().zip(&files) {
        for (at, kind) in public(tokens) {
            let (name, line) = (text_at(tokens, at + 1), tokens[at].line);
            let (is_item, is_type) = match kind {
                "fn" | "const" | "static" => (true, false),
                "struct" | "enum" | "trait" | "type" => (true, true),
                _ => (false, false),
            };
            if is_item && !is_used(name) && !(is_type && surface.contains(name)) {
                let path = &file.source.path;
                let name = format!("`{name}` ({path})");
                found.push(CountedItem {
                    room: room.name.clone(),
                    name,
                    detail: format!("line {line}, {kind}"),
                });
            }
        }
    }
    found
}

/// Everything that is plainly `pub`: where its keyword stands, and the keyword; for a field, its name.
fn public<'a>(tokens: &[CodeToken<'a>]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.text != "pub" || text_at(tokens, at + 1) == "(" {
            continue;
        }
        let mut at = at + 1;
        while ["async", "unsafe", "extern"].contains(&text_at(tokens, at))
            || text_at(tokens, at) == "const"
                && ["fn", "async", "unsafe", "extern"].contains(&text_at(tokens, at + 1))
        {
            at += 1;
        }
        found.push((at, text_at(tokens, at)));
    }
    found
}

/// The words of a file's public signatures, fields, variants and traits, and of the types that its implementations give.
fn surface<'a>(tokens: &[CodeToken<'a>]) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, kind) in public(tokens) {
        let end = match kind {
            "use" | "mod" => continue,
            "fn" | "struct" => until(tokens, at, &["{", ";"]),
            "const" | "static" => until(tokens, at, &["=", ";"]),
            "type" => until(tokens, at, &[";"]),
            "enum" | "trait" => block_end(tokens, at),
            _ => until(tokens, at, &[",", ";"]),
        };
        // The name of what is defined stands behind the keyword, that of a field in its place.
        found.extend(tokens.get(at + 2..end).unwrap_or_default().iter().map(|token| token.text));
        if !is_keyword(kind) {
            found.push(kind);
        }
    }
    for (at, token) in tokens.iter().enumerate() {
        let is_given =
            token.text == "type" && is_name(text_at(tokens, at + 1)) && text_at(tokens, at + 2) == "=";
        if is_given && at > 0 && tokens[at - 1].text != "pub" && tokens[at - 1].text != ")" {
            found.extend(tokens[at + 2..until(tokens, at, &[";"])].iter().map(|token| token.text));
        }
    }
    found
}

fn is_keyword(kind: &str) -> bool {
    ["fn", "struct", "const", "static", "type", "enum", "trait"].contains(&kind)
}

/// Where the braces that open after `at` are closed.
fn block_end(tokens: &[CodeToken<'_>], at: usize) -> usize {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token.text {
            "{" => depth += 1,
            "}" if depth <= 1 => return place,
            "}" => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The first of these signs after `at` that is in no bracket, or where the bracket around `at` is closed.
fn until(tokens: &[CodeToken<'_>], at: usize, signs: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token.text {
            text if depth == 0 && signs.contains(&text) => return place,
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return place,
            },
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::rooms::rooms;
    use crate::source::Source;

    /// The unused items of a crate `x` with this text.
    fn unused_in(text: &str) -> Vec<String> {
        let sources = [
            Source::new("crates/x/src/lib.rs", text),
            Source::new("crates/x/tests/it/main.rs", "use x::Tested;"),
            Source::new("crates/y/src/lib.rs", "use x::Taken; fn f(t: Taken) { t.asked() }"),
            Source::new("crates/tidegate/src/lib.rs", "pub fn nobody_asks() {}"),
        ];
        let found = unused(&rooms(&sources));
        found.into_iter().map(|item| item.name.replace(" (crates/x/src/lib.rs)", "")).collect()
    }

    #[test]
    fn what_another_crate_or_the_own_tests_name_is_used() {
        let text = "pub struct Taken; pub struct Tested; pub struct Spare; pub(crate) struct Inner;
            impl Taken { pub fn asked(&self) {} pub const fn spare(&self) {} pub async fn later() {} }
            pub const LIMIT: usize = 1; pub mod spare_module {} pub use a::Thing;";
        assert_eq!(unused_in(text), ["`Spare`", "`spare`", "`later`", "`LIMIT`"]);
    }

    #[test]
    fn a_type_of_a_public_signature_has_to_be_public() {
        let text = "pub struct Given; pub struct InField; pub struct InVariant; pub struct InPlace; pub struct Bound; pub struct Err;
            pub fn asked<T>(it: &[Given]) -> u8 where T: Into<Bound> { 1 }
            pub struct Taken { pub field: Option<InField>, inner: Inner }
            pub enum Tested { One(InVariant) }
            pub struct Asked(pub InPlace);
            impl FromStr for Taken { type Err = Err; }
            pub struct Inner; pub struct InBody; pub fn t() { InBody }";
        assert_eq!(unused_in(text), ["`Asked`", "`Inner`", "`InBody`"]);
    }
}
