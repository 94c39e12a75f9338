//! Answers of our own to calls of gRPC, in gRPC's words.
//!
//! A client of gRPC that is told 429 and a problem document makes UNAVAILABLE of it and asks again, or UNKNOWN of other
//! statuses. So it is told HTTP 200 and a code in `grpc-status`, all of it in the reply's head (`Trailers-Only` of gRPC
//! over HTTP/2, `doc/PROTOCOL-HTTP2.md` of grpc/grpc). gRPC-Web has the same form for that (`doc/PROTOCOL-WEB.md`).
//!
//! One rule serves all causes: it is made of the reply that a client of plain HTTP would get. The code comes from its status,
//! the words from its body, and its fields stay, as the call's metadata: `retry-after`, `ratelimit`,
//! `www-authenticate`. It is counted under the status that it would have had ([`Reply::told_to`]).
//!
//! A request is a call if its `content-type` says so, as Envoy has it, whatever version of HTTP it came in: that is the
//! form that its client reads. Deliberately absent: what servers behind a gateway say, which is passed as it is; and
//! `grpc-status-details-bin`, which would need a schema on both sides.

use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderName, HeaderValue, LAST_MODIFIED, TRAILER, TRANSFER_ENCODING,
};
use http::response::Parts;
use http::{Response, StatusCode};
use tidegate_wire::grpc::{Code, percent_encoded};
use tidegate_wire::problem::{MEDIA_TYPE, Problem};

use super::{Body, Reply};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The media types of calls, before a `+`, and whether they are of gRPC-Web.
const KINDS: [(&str, bool); 4] = [
    ("application/grpc", false),
    ("application/grpc-web", true),
    ("application/grpc-web-text", true),
    ("application/grpc-web-text-base64", true),
];

/// A longer media type is not repeated.
const MAX_TYPE_BYTES: usize = 64;

/// Most bytes of a message before it is encoded: clients need not take more than 8 KiB of fields.
const MAX_MESSAGE_BYTES: usize = 1_024;

/// Fields of a body that is not sent.
const OF_A_BODY: [HeaderName; 8] = [
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    ETAG,
    LAST_MODIFIED,
    TRAILER,
    TRANSFER_ENCODING,
];

/// A call of gRPC or gRPC-Web: how it wants to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcCall {
    content_type: HeaderValue,
    is_web: bool,
}

impl GrpcCall {
    /// The call that a request with these fields is, if it is one.
    #[must_use]
    pub fn of(request: &HeaderMap) -> Option<Self> {
        let stated = request.get(CONTENT_TYPE)?.as_bytes();
        let stated = stated.split(|byte| *byte == b';').next()?.trim_ascii();
        let base = stated.split(|byte| *byte == b'+').next()?;
        let (kind, is_web) =
            KINDS.into_iter().find(|(kind, _)| base.eq_ignore_ascii_case(kind.as_bytes()))?;
        // With the format of its messages: some clients take no other for an answer. Without one nothing is copied.
        let is_repeated = stated.len() > kind.len() && stated.len() <= MAX_TYPE_BYTES;
        let repeated = is_repeated.then(|| HeaderValue::from_bytes(stated).ok()).flatten();
        Some(Self { content_type: repeated.unwrap_or(HeaderValue::from_static(kind)), is_web })
    }

    /// Whether it is of gRPC-Web, whose clients are scripts in browsers.
    #[must_use]
    pub fn is_web(&self) -> bool {
        self.is_web
    }

    /// What it is told in place of `reply`, which is for plain HTTP. A success stays as it is.
    #[must_use]
    pub fn tell(&self, reply: Response<Body>) -> Response<Body> {
        if reply.status().is_success() {
            return reply;
        }
        let (mut head, body) = reply.into_parts();
        let message = percent_encoded(words(&head, &body).as_bytes());
        for name in OF_A_BODY {
            head.headers.remove(name);
        }
        let code = Code::of_http(head.status.as_u16());
        head.headers.insert(CONTENT_TYPE, self.content_type.clone());
        head.headers.insert(GRPC_STATUS, HeaderValue::from(code.number()));
        // Invariant: printable ASCII is a field's value.
        if let Ok(message) = HeaderValue::try_from(message) {
            head.headers.insert(GRPC_MESSAGE, message);
        }
        head.status = StatusCode::OK;
        Response::from_parts(head, Body::Empty)
    }
}

impl Reply {
    /// The same as it is told to a request with these fields: to a call of gRPC in gRPC, and counted under its own status.
    #[must_use]
    pub fn told_to(self, request: &HeaderMap) -> Self {
        self.told_in(GrpcCall::of(request).as_ref())
    }

    /// As [`Reply::told_to`], where it is known whether the request is a call.
    pub(super) fn told_in(mut self, call: Option<&GrpcCall>) -> Self {
        if let Some(call) = call {
            let status = self.response.status().as_u16();
            self.counted_as = Some(self.counted_as.unwrap_or(status));
            self.response = call.tell(self.response);
        }
        self
    }
}

/// What a reply says to people: a problem document its detail, plain text itself, anything else its status.
fn words(head: &Parts, body: &Body) -> String {
    let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is_plain = !head.headers.contains_key(CONTENT_ENCODING);
    let bytes = body.bytes().filter(|_| is_plain);
    let said = bytes.and_then(|bytes| match kind {
        _ if kind.eq_ignore_ascii_case(MEDIA_TYPE.as_bytes()) => Problem::said_in(bytes),
        _ if kind.eq_ignore_ascii_case(b"text/plain") => {
            let text = &bytes[..bytes.len().min(MAX_MESSAGE_BYTES)];
            Some(String::from_utf8_lossy(text).trim().to_owned())
        }
        _ => None,
    });
    let mut said = said.filter(|said| !said.is_empty()).unwrap_or_else(|| head.status.to_string());
    said.truncate(said.floor_char_boundary(MAX_MESSAGE_BYTES));
    said
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
    use proptest::prelude::*;

    use super::*;

    fn call(content_type: &str) -> Option<GrpcCall> {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
        GrpcCall::of(&fields)
    }

    fn reply(status: u16, content_type: &str, body: &[u8]) -> Response<Body> {
        let reply = Response::builder().status(status).header(CONTENT_TYPE, content_type);
        reply.body(Body::Full(Bytes::copy_from_slice(body))).unwrap()
    }

    fn message(reply: &Response<Body>) -> &str {
        reply.headers()[GRPC_MESSAGE].to_str().unwrap()
    }

    #[test]
    fn a_call_is_what_its_content_type_says() {
        for (stated, repeated, is_web) in [
            ("application/grpc", "application/grpc", false),
            ("application/grpc+proto", "application/grpc+proto", false),
            ("Application/GRPC ; charset=utf-8", "application/grpc", false),
            ("application/grpc-web", "application/grpc-web", true),
            ("application/grpc-web+proto", "application/grpc-web+proto", true),
            ("application/grpc-web-text+proto", "application/grpc-web-text+proto", true),
            (format!("application/grpc+{}", "x".repeat(100)).as_str(), "application/grpc", false),
        ] {
            let call = call(stated).unwrap();
            assert_eq!((call.content_type.to_str().unwrap(), call.is_web), (repeated, is_web), "{stated}");
        }
        for other in ["application/grpcs", "application/json", "application/grpc-webx", "text/plain", ""] {
            assert_eq!(call(other), None, "{other}");
        }
        assert_eq!(GrpcCall::of(&HeaderMap::new()), None);
    }

    #[test]
    fn a_refusal_is_a_head_with_a_code_and_keeps_what_it_says_to_programs() {
        let problem = Problem::new(429, "Quota Exceeded", "100 % are used \u{2014} come back");
        let mut refusal = reply(429, MEDIA_TYPE, &problem.to_json());
        refusal.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("9"));
        refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        refusal.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("77"));
        let told = call("application/grpc").unwrap().tell(refusal);
        assert_eq!(told.status(), 200);
        assert!(matches!(told.body(), Body::Empty));
        let fields = told.headers();
        let found = [CONTENT_TYPE, GRPC_STATUS, RETRY_AFTER, WWW_AUTHENTICATE].map(|name| &fields[name]);
        assert_eq!(found, ["application/grpc", "8", "9", "Bearer"]);
        assert_eq!(message(&told), "100 %25 are used %E2%80%94 come back");
        assert!(!fields.contains_key(CONTENT_LENGTH));
    }

    #[test]
    fn the_words_are_the_replys_own_where_they_are_for_people() {
        let told = |status, kind, body: &[u8]| {
            let told = call("application/grpc").unwrap().tell(reply(status, kind, body));
            message(&told).to_owned()
        };
        assert_eq!(told(503, "text/plain; charset=utf-8", b" back at noon\n"), "back at noon");
        assert_eq!(told(503, "text/html", b"<p>back at noon"), "503 Service Unavailable");
        assert_eq!(told(502, MEDIA_TYPE, b"no document"), "502 Bad Gateway");
        assert_eq!(told(502, MEDIA_TYPE, br#"{"title": "Gone"}"#), "Gone");
        assert_eq!(told(504, "text/plain", b""), "504 Gateway Timeout");
        assert_eq!(told(308, "text/plain", b""), "308 Permanent Redirect");
    }

    #[test]
    fn a_success_stays_as_it_is() {
        let told = call("application/grpc").unwrap().tell(reply(200, "text/plain", b"fine"));
        assert_eq!(told.headers()[CONTENT_TYPE], "text/plain");
        assert!(!told.headers().contains_key(GRPC_STATUS));
    }

    #[test]
    fn what_is_told_in_grpc_counts_under_its_own_status() {
        let mut fields = HeaderMap::new();
        let refusal = || Reply::refusal(StatusCode::NOT_FOUND, "there is nothing");
        let plain = refusal().told_to(&fields);
        assert_eq!((plain.response.status().as_u16(), plain.counted_as), (404, None));
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let told = refusal().told_to(&fields);
        assert_eq!((told.response.status().as_u16(), told.counted_as), (200, Some(404)));
    }

    proptest! {
        #[test]
        fn any_body_gives_a_head_that_clients_take(
            body in proptest::collection::vec(any::<u8>(), 0..3_000), status in 300_u16..600, is_text in any::<bool>()
        ) {
            let kind = if is_text { "text/plain" } else { MEDIA_TYPE };
            let told = call("application/grpc").unwrap().tell(reply(status, kind, &body));
            prop_assert_eq!(told.status(), 200);
            prop_assert_ne!(&told.headers()[GRPC_STATUS], &"0");
            prop_assert!(!message(&told).is_empty());
            prop_assert!(message(&told).len() <= 3 * MAX_MESSAGE_BYTES);
        }
    }
}
