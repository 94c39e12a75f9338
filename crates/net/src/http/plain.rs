//! Reading a request that lies whole in a buffer, without taking it apart.
//!
//! Only what is beyond doubt is read here: HTTP/1.1, one `Host`, at most one plain `Content-Length`,
//! the body complete, no `Transfer-Encoding`, `Expect`, `Upgrade` or `Connection` other than
//! keep-alive, neither HEAD nor CONNECT. Anything else is [`Found::Doubtful`], for hyper to judge.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};
use httparse::Header;

use super::RequestBody;

/// Header fields of a request; hyper's own bound.
const MAX_FIELDS: usize = 100;

/// A request as it lies in the buffer that it was read into.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'a> {
    method: &'a str,
    target: &'a str,
    fields: &'a [Header<'a>],
    body: &'a [u8],
}

/// What a buffer begins with.
pub(super) enum Found<'a> {
    /// A request, and how many bytes it takes.
    Request(Plain<'a>, usize),
    /// Part of a request.
    Incomplete,
    /// Something for hyper to judge.
    Doubtful,
}

/// Gives `take` what `input` begins with. The fields' table is on the stack, hence the closure.
pub(super) fn read<R>(input: &[u8], max_target_bytes: usize, take: impl FnOnce(Found<'_>) -> R) -> R {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut head = httparse::Request::new(&mut []);
    let head_bytes = match head.parse_with_uninit_headers(input, &mut fields) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return take(Found::Incomplete),
        Err(_) => return take(Found::Doubtful),
    };
    let Some(length) = body_length(&head, max_target_bytes) else { return take(Found::Doubtful) };
    let (Some(method), Some(target)) = (head.method, head.path) else { return take(Found::Doubtful) };
    match input[head_bytes..].get(..length) {
        Some(body) => {
            take(Found::Request(Plain { method, target, fields: head.headers, body }, head_bytes + length))
        }
        None => take(Found::Incomplete),
    }
}

/// The length of the body, if nothing about the request is in doubt.
fn body_length(head: &httparse::Request<'_, '_>, max_target_bytes: usize) -> Option<usize> {
    let target = head.path?;
    if head.version != Some(1) || target.len() > max_target_bytes || !target.starts_with('/') {
        return None;
    }
    if matches!(head.method, Some("HEAD" | "CONNECT")) {
        return None;
    }
    let (mut hosts, mut length) = (0, None);
    for Header { name, value } in &*head.headers {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        // By length first: nearly every other field is told apart by it alone.
        match name.len() {
            4 if is("host") => hosts += 1,
            14 if is("content-length") => {
                if length.is_some() || !value.iter().all(u8::is_ascii_digit) {
                    return None;
                }
                length = Some(std::str::from_utf8(value).ok()?.parse().ok()?);
            }
            10 if is("connection") && !value.eq_ignore_ascii_case(b"keep-alive") => return None,
            6 if is("expect") => return None,
            7 if is("upgrade") => return None,
            17 if is("transfer-encoding") => return None,
            _ => {}
        }
    }
    (hosts == 1).then_some(length.unwrap_or(0))
}

impl<'a> Plain<'a> {
    /// The method, as sent.
    #[must_use]
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// The target, as sent: a path, and perhaps a query.
    #[must_use]
    pub fn target(&self) -> &'a str {
        self.target
    }

    /// The value of the first field of that name, which is written in lower case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// The whole body.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The same in hyper's types, which share `input`, where the request lies. `None` if they take
    /// anything about it for a mistake.
    pub(super) fn to_request(self, input: &Bytes) -> Option<Request<RequestBody>> {
        let mut request = Request::new(RequestBody::whole(input.slice_ref(self.body)));
        *request.method_mut() = Method::from_bytes(self.method.as_bytes()).ok()?;
        *request.uri_mut() = Uri::from_maybe_shared(input.slice_ref(self.target.as_bytes())).ok()?;
        *request.version_mut() = Version::HTTP_11;
        let fields = request.headers_mut();
        fields.reserve(self.fields.len());
        for field in self.fields {
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            fields.append(name, HeaderValue::from_maybe_shared(input.slice_ref(field.value)).ok()?);
        }
        Some(request)
    }
}
