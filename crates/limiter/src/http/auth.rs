//! Who may read and change the configuration: whoever has the admin token, if there is one.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::Shared;
use super::reply::Refusal;

impl Shared {
    /// Lets an administrator through; the name for the audit log.
    pub(super) fn admin(&self, headers: &HeaderMap) -> Result<&'static str, Refusal> {
        let Some(token) = &self.settings.admin_token else { return Ok("local") };
        let given = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).unwrap_or_default();
        match given.split_at_checked(b"Bearer ".len()) {
            Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"bearer ") && token.admits(given) => {
                Ok("admin")
            }
            _ => Err(Refusal::NotAdmin),
        }
    }
}
