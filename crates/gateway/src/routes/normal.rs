//! A request once it is normalised: what all later phases know of it.

use std::net::IpAddr;
use std::time::Instant;

use http::HeaderValue;
use tidegate_net::http::Peer;

use crate::authentication::identity::Identity;
use crate::routes::target::TargetPath;

/// What is known of a request once it is normalised.
pub(crate) struct Normal<'a> {
    pub(crate) peer: &'a Peer,
    /// Lower case, without a port.
    pub(crate) host: String,
    pub(crate) path: TargetPath,
    pub(crate) client: IpAddr,
    /// When it came, or when what it had to wait for before it could go on was known.
    pub(crate) since: Instant,
    /// The identity that its client has proved.
    pub(crate) identity: Option<Identity>,
    /// Cookies of the service that admitted the request, for its client.
    pub(crate) cookies: Vec<HeaderValue>,
    /// The client offers to go on in another protocol, and its connection allows that.
    pub(crate) may_upgrade: bool,
    /// It asks for nothing else: a client of HTTP/2 does (RFC 8441).
    pub(crate) must_go_on: bool,
    /// It is a preflight, which its route lets pass without credentials.
    pub(crate) is_preflight: bool,
    /// Whether its client may know which server failed it, and why.
    pub(crate) explains: bool,
}
