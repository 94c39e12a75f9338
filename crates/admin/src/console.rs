//! The console: an operator's pages for a browser, in the binary as `console/` builds them.
//!
//! ```text
//!   console/src  ── cargo xtask console ──>  console/dist  ── include_bytes ──>  /, /console.js, /console.css, ...
//! ```
//!
//! The files hold no data, so everyone who reaches the listener may have them; where no token is demanded, under a trusted
//! `Host` alone. What they show they ask of the admin API, which looks at `Host`, `Origin`, token and session as for any
//! other client ([`tidegate_access::guard`]). All addresses in them are relative, so that a proxy can have them under
//! another path.
//!
//! A browser asks each time whether its copy is still good (`no-cache` and an entity tag), so that a page never goes
//! with a script of another release. [`POLICY`] admits no script or style in the markup and no other server (fault
//! 51).

use std::io::Write;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};
use tidegate_access::guard::Guard;
use tidegate_access::routes::ApiRoutes;

/// What a page of the console may load, and from where.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
     trusted-types 'none'",
);

/// Every path here, which is its own route template.
pub const TEMPLATES: [&str; 5] = ["/", "/console.js", "/console.css", "/console.svg", DASHBOARD];

/// Where people look for it who know the service that this one replaces.
const DASHBOARD: &str = "/dashboard";

/// A file of the console.
struct Asset {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    prepared: OnceLock<Prepared>,
}

/// What is sent of it.
#[derive(Clone)]
struct Prepared {
    gzip: Bytes,
    /// Entity tags of the bytes as they are, and compressed.
    etags: [HeaderValue; 2],
}

macro_rules! asset {
    ($path:literal, $kind:literal, $file:literal) => {
        Asset {
            path: $path,
            kind: $kind,
            // Seen from this file: the manifest's folder is an absolute path, and the build would differ by it.
            bytes: include_bytes!(concat!("../../../console/dist/", $file)),
            prepared: OnceLock::new(),
        }
    };
}

static ASSETS: [Asset; 4] = [
    asset!("/", "text/html; charset=utf-8", "index.html"),
    asset!("/console.js", "text/javascript; charset=utf-8", "console.js"),
    asset!("/console.css", "text/css; charset=utf-8", "console.css"),
    asset!("/console.svg", "image/svg+xml", "console.svg"),
];

/// The routes of the console.
#[must_use]
pub fn routes(guard: &Arc<Guard>) -> ApiRoutes {
    let router = ASSETS.iter().fold(Router::new(), |router, asset| {
        router.route(asset.path, get(move |headers: HeaderMap| asset.reply(headers)))
    });
    let router = router.route(DASHBOARD, get(|| std::future::ready(Redirect::temporary("./"))));
    ApiRoutes::new(router, &TEMPLATES, guard)
}

impl Asset {
    async fn reply(&'static self, headers: HeaderMap) -> Response {
        let Some(prepared) = self.prepared().await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        let is_gzip = accepts_gzip(&headers);
        let etag = prepared.etags[usize::from(is_gzip)].clone();
        let known = headers.get_all(IF_NONE_MATCH).iter().any(|tags| names(tags, &etag));
        let body = match (known, is_gzip) {
            (true, _) => Bytes::new(),
            (false, true) => prepared.gzip.clone(),
            (false, false) => Bytes::from_static(self.bytes),
        };
        let mut response = Response::new(Body::from(body));
        if known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let fields = response.headers_mut();
        let mut put = |name: HeaderName, value| drop(fields.insert(name, HeaderValue::from_static(value)));
        put(CONTENT_TYPE, self.kind);
        put(CACHE_CONTROL, "no-cache");
        put(VARY, "accept-encoding");
        put(X_CONTENT_TYPE_OPTIONS, "nosniff");
        put(REFERRER_POLICY, "no-referrer");
        put(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
        put(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
        if is_gzip && !known {
            put(CONTENT_ENCODING, "gzip");
        }
        fields.insert(CONTENT_SECURITY_POLICY, POLICY);
        fields.insert(ETAG, etag);
        response
    }

    /// Compressed once, where it keeps no connection waiting. `None`: the runtime ends.
    async fn prepared(&'static self) -> Option<&'static Prepared> {
        if let Some(prepared) = self.prepared.get() {
            return Some(prepared);
        }
        let prepare = || self.prepared.get_or_init(|| Prepared::new(self.bytes));
        tokio::task::spawn_blocking(prepare).await.ok()
    }
}

impl Prepared {
    fn new(bytes: &'static [u8]) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Invariant: writing to a vector does not fail.
        let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
        let digest: String =
            Sha256::digest(bytes).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let tag = |form| {
            // Invariant: these are hexadecimal digits and quotation marks.
            HeaderValue::try_from(format!("\"{digest}{form}\"")).unwrap_or(HeaderValue::from_static("\"\""))
        };
        Self { gzip: written.unwrap_or_default().into(), etags: [tag(""), tag("-gzip")] }
    }
}

/// Whether a list of entity tags has this one, or is `*`.
fn names(tags: &HeaderValue, etag: &HeaderValue) -> bool {
    let mut tags = tags.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    tags.any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes())
}

/// Whether the client takes gzip (RFC 9110, 12.5.3): it names it, and not with the weight 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = values.flat_map(|value| value.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn headers(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn gzip_is_for_those_who_name_it() {
        for (value, accepts) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip;q=0.000", false),
            ("gzip;q=much", false),
            ("deflate", false),
            ("xgzip", false),
        ] {
            assert_eq!(accepts_gzip(&headers(&[(ACCEPT_ENCODING, value)])), accepts, "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn a_copy_that_is_good_is_not_sent_again() {
        let asset = &ASSETS[1];
        let whole = asset.reply(headers(&[(ACCEPT_ENCODING, "gzip")])).await;
        let etag = whole.headers()[ETAG].clone();
        let sent = axum::body::to_bytes(whole.into_body(), usize::MAX).await.unwrap();
        let mut text = Vec::new();
        GzDecoder::new(&sent[..]).read_to_end(&mut text).unwrap();
        assert_eq!(text, asset.bytes);

        let mut again = headers(&[(ACCEPT_ENCODING, "gzip")]);
        again.insert(IF_NONE_MATCH, format!("\"x\", W/{}", etag.to_str().unwrap()).parse().unwrap());
        let reply = asset.reply(again.clone()).await;
        assert_eq!((reply.status(), &reply.headers()[ETAG]), (StatusCode::NOT_MODIFIED, &etag));
        // The plain form is another representation.
        again.remove(ACCEPT_ENCODING);
        let plain = asset.reply(again).await;
        assert_eq!(plain.status(), StatusCode::OK);
        assert_ne!(plain.headers()[ETAG], etag);
        let sent = axum::body::to_bytes(plain.into_body(), usize::MAX).await.unwrap();
        assert_eq!(sent, asset.bytes);
    }

    #[test]
    fn all_of_it_is_at_most_150_kb_compressed() {
        let bytes: usize = ASSETS.iter().map(|asset| Prepared::new(asset.bytes).gzip.len()).sum();
        assert!(bytes <= 150_000, "{bytes}");
    }
}
