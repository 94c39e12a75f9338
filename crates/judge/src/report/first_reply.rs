//! What the server answered before the run, where it is most likely not what was meant to be measured.

use serde::{Deserialize, Serialize};

/// Longest `Location` that is told, in characters.
const MAX_LOCATION: usize = 300;

/// A first reply that makes the figures those of something else: a redirect, which is not followed, or 4xx.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstReply {
    /// Its status.
    pub status: u16,
    /// Where it redirects to; null when it does not say.
    pub location: Option<String>,
}

impl FirstReply {
    /// The reply, if it is one to tell. 304 and 429 are what somebody asks for, and so is any status of 4xx that the
    /// scenario calls good (`is_wanted`).
    #[must_use]
    pub fn in_doubt(status: u16, location: Option<&[u8]>, is_wanted: bool) -> Option<Self> {
        let redirects = (300..=399).contains(&status) && status != 304;
        let refuses = (400..=499).contains(&status) && status != 429 && !is_wanted;
        let text = |bytes: &[u8]| -> String {
            let text = String::from_utf8_lossy(bytes);
            text.chars().filter(|c| !c.is_control()).take(MAX_LOCATION).collect()
        };
        (redirects || refuses).then(|| Self { status, location: location.map(text) })
    }

    /// The reply as a clause, without its full stop.
    #[must_use]
    pub fn in_words(&self) -> String {
        match &self.location {
            Some(location) => {
                format!("the first request was answered {} with Location {location}", self.status)
            }
            None => format!("the first request was answered {}", self.status),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self.status {
            300..=399 => "redirects are not followed: give the URL that it names",
            401 | 403 => "give with --header what the server asks for",
            _ => "see whether method and path are those that were meant",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_asks_for_is_not_in_doubt() {
        for (status, is_wanted) in [(200, true), (304, true), (429, false), (404, true), (500, false)] {
            assert_eq!(FirstReply::in_doubt(status, None, is_wanted), None, "{status}");
        }
        let moved = FirstReply::in_doubt(301, Some(b"https://a/\x1b[2J"), true).unwrap();
        assert_eq!(moved.in_words(), "the first request was answered 301 with Location https://a/[2J");
        let missing = FirstReply::in_doubt(404, None, false).unwrap();
        assert_eq!(missing.in_words(), "the first request was answered 404");
        let long = FirstReply::in_doubt(302, Some(&[b'a'; 5_000]), true).unwrap();
        assert_eq!(long.location.map(|text| text.len()), Some(MAX_LOCATION));
    }
}
