//! Authentication: who the consumer of a request is.
//!
//! ```text
//!   request ── places: takes the credential ──> authenticate ──┬── API key        tidegate_access::keys
//!                                                              ├── JWT            jwt/ ──────────┬── known: identities that
//!                                                              ├── another service  forward_auth ┘   were verified lately
//!                                                              └── certificate    of the connection
//!                                                                     │
//!   limits: attributes <──┬── identity <── verified ──────────────────┘ refused: 401, 403
//!   servers: fields    <──┘
//! ```
//!
//! `authority` is the service that `forward_auth` asks. What a credential is and how it is verified stands in `tidegate_access`.

pub(crate) mod authenticate;
pub(crate) mod authority;
pub(crate) mod forward_auth;
pub(crate) mod identity;
pub(crate) mod jwt;
pub(crate) mod known;
pub(crate) mod places;
