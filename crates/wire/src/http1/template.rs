//! Requests with variables, compiled once and rendered into a reused buffer.
//!
//! `{{counter}}` and `{{counter % 10}}` count requests; `{{random 1 100}}` is uniform, both ends
//! included; `{{zipf 1000 1.1}}` is a rank from 1 to 1,000 with exponent 1.1; `{{row.name}}` is a
//! column of the next row of a data file. `{{{{` stands for `{{`. Where values come from is the
//! caller's business ([`Values`]); this file knows text only.
//!
//! A value cannot break the framing: in a path, bytes outside the visible ASCII are percent-encoded,
//! in a field they are dropped, and Content-Length is counted after the body is rendered.

use std::io::Write as _;

use thiserror::Error;

/// A variable of a template.
#[derive(Clone, Debug, PartialEq)]
pub enum Variable {
    /// Number of the request, from 0, modulo `modulo` when that is above 0.
    Counter {
        /// 0: no modulus.
        modulo: u64,
    },
    /// Uniform from `low` to `high`, both included.
    Random {
        /// Smallest value.
        low: u64,
        /// Largest value, at least `low`.
        high: u64,
    },
    /// A rank from 1 to `n`, rank k with weight k^-s.
    Zipf {
        /// Number of ranks, at least 1.
        n: u64,
        /// Exponent, 0 to 10.
        s: f64,
    },
    /// A column of the current data row.
    Column(String),
}

/// Gives variables their values.
pub trait Values {
    /// Appends the value of a variable. Called once for each place where it stands.
    fn append(&mut self, variable: &Variable, out: &mut Vec<u8>);
}

/// Why a template is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// `{{` without `}}`.
    #[error("`{{{{` without `}}}}` in {0:?}")]
    Unclosed(String),
    /// Not one of the variables.
    #[error(
        "unknown variable {0:?}: counter, counter % N, random LOW HIGH, zipf N S (0 to 10) or row.COLUMN"
    )]
    Unknown(String),
    /// The method is not a token (RFC 9110, 5.6.2).
    #[error("method {0:?} is not a token")]
    Method(String),
    /// The path does not begin with a slash, or holds blanks or control characters.
    #[error("path {0:?} must begin with `/` and hold visible ASCII only")]
    Path(String),
    /// A field name is not a token, or its value holds control characters.
    #[error("header {0:?} is not a valid field")]
    Field(String),
    /// A field that the template sets by itself.
    #[error("header {0:?} is set by the tester; remove it")]
    Reserved(String),
}

/// Text with variables in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Literal(Vec<u8>),
    Variable(Variable),
}

#[derive(Clone, Copy)]
enum RequestPart {
    Path,
    Field,
    Body,
}

impl Text {
    /// Compiles text.
    ///
    /// # Errors
    /// When a variable is unknown or not closed.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Self::default();
        let mut rest = text;
        while let Some(at) = rest.find("{{") {
            pieces.literal(&rest[..at]);
            rest = &rest[at + 2..];
            if let Some(after) = rest.strip_prefix("{{") {
                pieces.literal("{{");
                rest = after;
                continue;
            }
            let end = rest.find("}}").ok_or_else(|| TemplateError::Unclosed(text.to_owned()))?;
            pieces.0.push(Piece::Variable(Variable::parse(&rest[..end])?));
            rest = &rest[end + 2..];
        }
        pieces.literal(rest);
        Ok(pieces)
    }

    /// The variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Variable(variable) => Some(variable),
            Piece::Literal(_) => None,
        })
    }

    /// Whether the text is this word, in any case.
    #[must_use]
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self.0.as_slice(), [Piece::Literal(bytes)] if bytes.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Appends the text with its variables' values as they are: nothing is escaped or dropped.
    pub fn render_plain(&self, values: &mut impl Values, out: &mut Vec<u8>) {
        self.render(RequestPart::Body, values, out);
    }

    fn literal(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Literal(last)) => last.extend_from_slice(text.as_bytes()),
            _ => self.0.push(Piece::Literal(text.as_bytes().to_vec())),
        }
    }

    fn literals(&self) -> impl Iterator<Item = u8> {
        self.0
            .iter()
            .flat_map(|piece| match piece {
                Piece::Literal(bytes) => bytes.as_slice(),
                Piece::Variable(_) => &[],
            })
            .copied()
    }

    fn render(&self, place: RequestPart, values: &mut impl Values, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Literal(bytes) => out.extend_from_slice(bytes),
                Piece::Variable(variable) => {
                    let start = out.len();
                    values.append(variable, out);
                    place.sanitise(start, out);
                }
            }
        }
    }
}

impl RequestPart {
    fn sanitise(self, start: usize, out: &mut Vec<u8>) {
        let unsafe_byte = |byte: u8| match self {
            Self::Path => !byte.is_ascii_graphic() || byte == b'#',
            Self::Field => byte.is_ascii_control(),
            Self::Body => false,
        };
        if !out[start..].iter().any(|&byte| unsafe_byte(byte)) {
            return;
        }
        let value = out.split_off(start);
        for byte in value {
            match self {
                _ if !unsafe_byte(byte) => out.push(byte),
                Self::Path => out.extend_from_slice(&[b'%', hex(byte >> 4), hex(byte & 15)]),
                Self::Field | Self::Body => {}
            }
        }
    }
}

fn hex(nibble: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(nibble & 15)]
}

impl Variable {
    fn parse(text: &str) -> Result<Self, TemplateError> {
        let unknown = || TemplateError::Unknown(text.trim().to_owned());
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| unknown());
        match *words.as_slice() {
            ["counter"] => Ok(Self::Counter { modulo: 0 }),
            ["counter", "%", modulo] => {
                Ok(Self::Counter { modulo: number(modulo).ok().filter(|&m| m > 0).ok_or_else(unknown)? })
            }
            ["random", low, high] => match (number(low)?, number(high)?) {
                (low, high) if low <= high => Ok(Self::Random { low, high }),
                _ => Err(unknown()),
            },
            ["zipf", n, s] => {
                let (n, s) = (number(n)?, s.parse::<f64>().map_err(|_| unknown())?);
                if n >= 1 && (0.0..=10.0).contains(&s) { Ok(Self::Zipf { n, s }) } else { Err(unknown()) }
            }
            [column] => match column.strip_prefix("row.") {
                Some(name) if !name.is_empty() => Ok(Self::Column(name.to_owned())),
                _ => Err(unknown()),
            },
            _ => Err(unknown()),
        }
    }
}

/// A request, ready to be rendered as often as needed.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestTemplate {
    method: String,
    path: Text,
    /// Everything between the path and the Content-Length value or the empty line.
    fields: Text,
    body: Option<Text>,
    fixed: Option<Vec<u8>>,
}

impl RequestTemplate {
    /// Compiles a request; `host` is the value of the Host field unless `headers` has one.
    ///
    /// # Errors
    /// When a part is not valid HTTP/1.1, or a variable is not known.
    pub fn compile(
        method: &str,
        host: &str,
        path: &str,
        headers: &[(String, String)],
        body: Option<&str>,
    ) -> Result<Self, TemplateError> {
        if method.is_empty() || !method.bytes().all(is_token) {
            return Err(TemplateError::Method(method.to_owned()));
        }
        let path_text = Text::parse(path)?;
        if !path.starts_with('/') || !path_text.literals().all(|byte| byte.is_ascii_graphic()) {
            return Err(TemplateError::Path(path.to_owned()));
        }
        let mut fields = Text::default();
        fields.literal(" HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            fields.field("Host", &Text::parse(host)?)?;
        }
        for (name, value) in headers {
            if ["content-length", "transfer-encoding"].iter().any(|own| name.eq_ignore_ascii_case(own)) {
                return Err(TemplateError::Reserved(name.clone()));
            }
            fields.field(name, &Text::parse(value)?)?;
        }
        let body = body.map(Text::parse).transpose()?;
        let template = Self { method: method.to_owned(), path: path_text, fields, body, fixed: None };
        Ok(template.with_fixed())
    }

    /// The same request with a body of bytes that hold no variables.
    #[must_use]
    pub fn with_body(mut self, bytes: Vec<u8>) -> Self {
        self.body = Some(Text(vec![Piece::Literal(bytes)]));
        self.fixed = None;
        self.with_fixed()
    }

    /// Renders once what never changes.
    fn with_fixed(mut self) -> Self {
        if self.variables().next().is_none() {
            let mut bytes = Vec::new();
            self.render(&mut Nothing, &mut Vec::new(), &mut bytes);
            self.fixed = Some(bytes);
        }
        self
    }

    /// The whole request when it has no variables: nothing needs rendering then.
    #[must_use]
    pub fn fixed(&self) -> Option<&[u8]> {
        self.fixed.as_deref()
    }

    /// Whether it is a HEAD request, whose reply has no body.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Whether it asks for no change: GET or HEAD (RFC 9110, 9.2.1).
    #[must_use]
    pub fn is_safe(&self) -> bool {
        ["GET", "HEAD"].contains(&self.method.as_str())
    }

    /// All variables, in the order in which they are rendered, the body's last.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        let body = self.body.iter().flat_map(Text::variables);
        self.path.variables().chain(self.fields.variables()).chain(body)
    }

    /// Appends the request to `out`; `scratch` is a reused buffer for the body.
    pub fn render(&self, values: &mut impl Values, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method.as_bytes());
        out.push(b' ');
        self.path.render(RequestPart::Path, values, out);
        self.fields.render(RequestPart::Field, values, out);
        if let Some(body) = &self.body {
            scratch.clear();
            body.render(RequestPart::Body, values, scratch);
            // Writing to a Vec cannot fail.
            write!(out, "Content-Length: {}\r\n\r\n", scratch.len()).expect("a Vec takes all bytes");
            out.extend_from_slice(scratch);
        } else {
            out.extend_from_slice(b"\r\n");
        }
    }
}

impl Text {
    fn field(&mut self, name: &str, value: &Self) -> Result<(), TemplateError> {
        let printable = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
        if name.is_empty() || !name.bytes().all(is_token) || !value.literals().all(printable) {
            return Err(TemplateError::Field(name.to_owned()));
        }
        self.literal(name);
        self.literal(": ");
        for piece in &value.0 {
            match piece {
                Piece::Literal(bytes) => self.literal(&String::from_utf8_lossy(bytes)),
                Piece::Variable(variable) => self.0.push(Piece::Variable(variable.clone())),
            }
        }
        self.literal("\r\n");
        Ok(())
    }
}

struct Nothing;

impl Values for Nothing {
    fn append(&mut self, _: &Variable, _: &mut Vec<u8>) {}
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
