//! The decision service in the admin API: values to show and commands to run, which the binary gives.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value};
use tidegate_algorithms::policy::Mode;
use tidegate_control::{Edit, Revision};
use tidegate_wire::bodies::{ConfigureBody, LimitsBody};
use tidegate_wire::problem::Problem;

/// A value that takes a question to the store.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Problem>> + Send + 'a>>;

/// Attributes of a request: names and values.
pub type Pairs<'a> = &'a [(&'a str, &'a [u8])];

/// A client that has limits of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnLimits {
    /// The client.
    pub client_id: String,
    /// Its limits, by policy; stored limits come before those of the file.
    pub limits: Map<String, Value>,
    /// The revision of the stored limits, if there are any.
    pub stored_at: Option<Revision>,
}

/// A client that was denied often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The client; bytes that are not text are replaced.
    pub client_id: String,
    /// Denials, at most.
    pub denied: u64,
    /// By how much `denied` may be too high.
    pub error: u64,
    /// The policy that denied it last, or the name of the limit that came with the request; `None`: no policy applied.
    pub policy: Option<Arc<str>>,
    /// What the policy looks at in the denied request beside the client, as the query of a URL; `None`: it is too long, has
    /// a credential, or is not UTF-8.
    pub attributes: Option<String>,
    /// Milliseconds since the last denial.
    pub seen_ms_ago: u64,
    /// Its requests of the last minute, allowed and denied; `None`: they are not counted.
    pub last_minute: Option<(u64, u64)>,
}

/// A client that has used up much of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// The client; bytes that are not text are replaced.
    pub client_id: String,
    /// The policy.
    pub policy: Arc<str>,
    /// Whether it is enforced.
    pub mode: Mode,
    /// The most that it can spend at once.
    pub limit: u64,
    /// What it could still spend when it was last seen.
    pub remaining: u64,
    /// Milliseconds since then.
    pub seen_ms_ago: u64,
}

/// What a reset of a client's counters is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage<'a> {
    /// What names the counters: the client, and further attributes that policies are keyed on.
    pub attributes: Pairs<'a>,
    /// The policy whose counter is reset; all policies if absent.
    pub policy: Option<&'a str>,
}

/// What a reset does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resettable {
    /// The policies under which the client starts anew.
    pub reset: Vec<Arc<str>>,
    /// The policies whose counter cannot be found, each with the attribute that is missing.
    pub not_reset: Vec<(Arc<str>, String)>,
}

/// The decision service, as an operator sees it.
pub trait Limits: Debug + Send + Sync {
    /// At most `limit` clients that have limits of their own and whose names come after `after`, in byte order.
    fn clients(&self, after: &str, limit: usize) -> Vec<OwnLimits>;

    /// The clients that were denied most, the heaviest first.
    fn denied_clients(&self) -> Vec<Denied>;

    /// The clients that are nearest to a limit, the nearest first.
    fn nearest_clients(&self) -> Vec<Near>;

    /// The policies of the file that stored ones hide, with the revisions of those.
    fn hidden_policies(&self) -> Vec<(Arc<str>, Revision)>;

    /// What would become of a request, which may bring `limits` for itself, and why, with at most `listed` of the policies that do not
    /// apply. Charges nothing.
    fn explain<'a>(
        &'a self,
        attributes: Pairs<'a>,
        cost: u64,
        listed: usize,
        limits: Option<&'a LimitsBody>,
    ) -> Answer<'a, Value>;

    /// What lets a client start anew, and how: nothing is reset before the answer is awaited, and then what was said, whatever policies
    /// have changed since.
    fn reset<'a>(&'a self, usage: &'a Usage<'a>) -> (Resettable, Answer<'a, ()>);

    /// A client's numbers in the simple API, and whether they are its own; `None`: there is no policy for them.
    fn client_config(&self, client_id: &str) -> Option<(ConfigureBody, bool)>;

    /// The change that gives everyone these numbers in the simple API.
    fn configure(&self, numbers: ConfigureBody) -> Edit;

    /// The change that gives a client these numbers.
    fn configure_client(&self, client_id: &str, numbers: ConfigureBody) -> Edit;

    /// The change that takes a client's own numbers away.
    fn delete_client_config(&self, client_id: &str) -> Edit;
}
