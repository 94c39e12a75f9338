//! Where the attributes of a request come from, where it does not state them itself.
//!
//! Somebody who asks about another's request (a proxy) passes on what that other wrote, and a client
//! writes what it likes. So what may be believed is configured: each attribute has one source, and what
//! arrives under its name from anywhere else is not looked at.
//!
//! A source says where to look, not how: the service that knows the protocol looks ([`Sources::read`]).

/// Longest name of a header field, cookie or query parameter.
pub(super) const MAX_FIELD_NAME_BYTES: usize = 128;
/// The last part of a path that can be an attribute.
pub(super) const MAX_PATH_PART: u64 = 32;

/// The one place where an attribute's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A header field, or gRPC metadata, of this name in lower case.
    Header(String),
    /// A cookie of this name.
    Cookie(String),
    /// A parameter of the query string of the URL that is asked for.
    Query(String),
    /// A part of the path's normal form, counted from 1: `/a/b` has `a` and `b`.
    PathPart(usize),
    /// The client's address, an IPv6 one as its /64.
    Address,
    /// The name in the certificate of the client that connected.
    TlsName,
}

/// The forms of [`Source`] that a protocol has, by the words that documents use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceForm {
    /// [`Source::Header`]
    Header,
    /// [`Source::Cookie`]
    Cookie,
    /// [`Source::Query`]
    Query,
    /// [`Source::PathPart`]
    PathPart,
    /// [`Source::Address`]
    Address,
    /// [`Source::TlsName`]
    TlsName,
}

/// Attributes with their sources, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    list: Vec<(String, Source)>,
}

impl Sources {
    /// The names must differ.
    pub(super) fn new(list: Vec<(String, Source)>) -> Self {
        Self { list }
    }

    /// Whether none is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Names and sources, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.list.iter().map(|(name, source)| (name.as_str(), source))
    }

    /// Where the attribute `name` comes from.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&Source> {
        self.iter().find(|(other, _)| *other == name).map(|(_, source)| source)
    }

    /// The attributes that `look` finds a value for. An empty value counts as absent: a client that sends an empty
    /// key has no key. An attribute on which nothing depends (`is_needed`) is left out where `look` fails.
    ///
    /// # Errors
    /// The first of `look` about an attribute that is needed.
    pub fn read<'s, V: AsRef<[u8]>, E>(
        &'s self,
        is_needed: impl Fn(&str) -> bool,
        mut look: impl FnMut(&'s Source) -> Result<Option<V>, E>,
    ) -> Result<Vec<(&'s str, V)>, E> {
        let mut found = Vec::with_capacity(self.list.len());
        for (name, source) in self.iter() {
            let value = look(source).or_else(|error| if is_needed(name) { Err(error) } else { Ok(None) })?;
            if let Some(value) = value.filter(|value| !value.as_ref().is_empty()) {
                found.push((name, value));
            }
        }
        Ok(found)
    }
}

impl SourceForm {
    /// The word for it in a document.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Cookie => "cookie",
            Self::Query => "query",
            Self::PathPart => "path_part",
            Self::Address => "address",
            Self::TlsName => "tls_name",
        }
    }

    /// How it is written, as an example.
    #[must_use]
    pub fn example(self) -> &'static str {
        match self {
            Self::Header => "{ header = \"x-api-key\" }",
            Self::Cookie => "{ cookie = \"session\" }",
            Self::Query => "{ query = \"client\" }",
            Self::PathPart => "{ path_part = 1 }",
            Self::Address => "\"address\"",
            Self::TlsName => "\"tls_name\"",
        }
    }
}
