//! Reading a request that lies whole in a buffer, without taking it apart.
//!
//! Only a simple request is read here ([`crate::http::framing::Judged::simple`]) whose body is there and has a
//! length. Anything else is [`PlainRead::Doubtful`]: it goes the other way, where it is judged again and
//! refused, if it must be.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};
use httparse::Header;

use crate::http::RequestBody;
use crate::http::body_end::Framing;
use crate::http::framing::{Judged, MAX_FIELDS, judge};

/// Room for the fields that a service adds to a request before it passes it on: a table that grows is made anew.
const ADDED_FIELDS: usize = 7;

/// A request as it lies in the buffer that it was read into.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'a> {
    method: &'a str,
    target: &'a str,
    fields: &'a [Header<'a>],
    body: &'a [u8],
}

/// What a buffer begins with.
pub(super) enum PlainRead<'a> {
    /// A request, and how many bytes it takes.
    Request(Plain<'a>, usize),
    /// Part of a request.
    Incomplete,
    /// Something that goes through hyper, if it goes at all.
    Doubtful,
}

/// Gives `take` what `input` begins with. The fields' table is on the stack, hence the closure.
pub(super) fn read<R>(input: &[u8], max_target_bytes: usize, take: impl FnOnce(PlainRead<'_>) -> R) -> R {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut head = httparse::Request::new(&mut []);
    let head_bytes = match head.parse_with_uninit_headers(input, &mut fields) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return take(PlainRead::Incomplete),
        Err(_) => return take(PlainRead::Doubtful),
    };
    let length = match judge(&head, &input[..head_bytes], max_target_bytes) {
        Ok(Judged { body: Framing::Length(length), simple: true, .. }) => usize::try_from(length).ok(),
        _ => None,
    };
    let (Some(length), Some(method), Some(target)) = (length, head.method, head.path) else {
        return take(PlainRead::Doubtful);
    };
    match input[head_bytes..].get(..length) {
        Some(body) => take(PlainRead::Request(
            Plain { method, target, fields: head.headers, body },
            head_bytes + length,
        )),
        None => take(PlainRead::Incomplete),
    }
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
        self.values(name).next()
    }

    /// The values of all fields of that name, in their order; case does not matter.
    pub fn values(&self, name: &str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
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
        fields.reserve(self.fields.len() + ADDED_FIELDS);
        for field in self.fields {
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            fields.append(name, HeaderValue::from_maybe_shared(input.slice_ref(field.value)).ok()?);
        }
        Some(request)
    }
}
