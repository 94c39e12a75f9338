//! The text of a key: `tgk_`, its id, `_`, its secret. Letters and digits only, so that it passes through any field and
//! any query as it is, and a double click marks all of it.

use std::fmt;

/// How many bytes of chance a key is made of.
pub const CHANCE_BYTES: usize = ID_BYTES + 32;

/// What every key begins with, for people and for programs that look for secrets in files.
const PREFIX: &str = "tgk_";

const ID_BYTES: usize = 10;
const ID_LETTERS: usize = 16;
const SECRET_LETTERS: usize = 52;

/// The letters of base 32 (RFC 4648, 6), in lower case.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A key as its owner sees it, once.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText {
    id: String,
    text: String,
}

impl KeyText {
    /// A new key. `chance` is random, and no other party knows it.
    #[must_use]
    pub fn new(chance: &[u8; CHANCE_BYTES]) -> Self {
        let (id, secret) = chance.split_at(ID_BYTES);
        Self::with_id(&base_32(id), secret)
    }

    /// The key of this id with another secret.
    #[must_use]
    pub fn again(id: &str, chance: &[u8; CHANCE_BYTES]) -> Self {
        Self::with_id(id, &chance[ID_BYTES..])
    }

    fn with_id(id: &str, secret: &[u8]) -> Self {
        Self { id: id.to_owned(), text: format!("{PREFIX}{id}_{}", base_32(secret)) }
    }

    /// The id in a text, if that has the form of a key.
    pub(super) fn id(text: &[u8]) -> Option<&str> {
        let rest = text.strip_prefix(PREFIX.as_bytes())?;
        let (id, secret) = rest.split_at_checked(ID_LETTERS)?;
        let is_whole = secret.len() == 1 + SECRET_LETTERS && secret[0] == b'_';
        std::str::from_utf8(id).ok().filter(|_| is_whole)
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.id
    }

    /// All of it; for its owner, and for the digest.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The key of this id as lists show it.
    #[must_use]
    pub fn masked(id: &str) -> String {
        format!("{PREFIX}{id}_...")
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeyText({})", Self::masked(&self.id))
    }
}

fn base_32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            text.push(letter(bits >> count));
        }
    }
    if count > 0 {
        text.push(letter(bits << (5 - count)));
    }
    text
}

fn letter(bits: u32) -> char {
    char::from(LETTERS[(bits & 31) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_was_made_and_nothing_else_is() {
        assert_eq!(base_32(b"foobar"), "mzxw6ytboi", "as in RFC 4648, 10, in lower case");
        let key = KeyText::new(&[0xa5; CHANCE_BYTES]);
        assert_eq!(KeyText::id(key.expose().as_bytes()), Some(key.name()));
        assert_eq!(key.name().len(), ID_LETTERS);
        let text = key.expose();
        let longer = format!("{text}a");
        let other = text.replacen("tgk_", "tgl_", 1);
        for wrong in ["", "tgk_", &text[1..], &text[..text.len() - 1], &longer, &other, "tgk_\u{e9}"] {
            assert_eq!(KeyText::id(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn fault_52_a_key_is_shown_without_its_secret() {
        let key = KeyText::new(&std::array::from_fn(|at| at as u8));
        let shown = format!("{key:?} {}", KeyText::masked(key.name()));
        let (_, secret) = key.expose().rsplit_once('_').unwrap();
        assert!(shown.contains(key.name()) && !shown.contains(&secret[..4]), "{shown}");
    }

    #[test]
    fn another_secret_leaves_the_id() {
        let first = KeyText::new(&[1; CHANCE_BYTES]);
        let second = KeyText::again(first.name(), &[2; CHANCE_BYTES]);
        assert!(first.name() == second.name() && first != second);
    }
}
