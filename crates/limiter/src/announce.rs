//! Lines of the log about policies: what a new file changes, what is set aside, what a stored policy hides, and where
//! concurrency limits apply.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_algorithms::policy::Policy;
use tidegate_control::{Origin, Revision, difference};

use crate::policy_set::{FileLayer, InForce, PolicySet};

/// Most lines about one change of the configuration; what is left is counted.
const MAX_LINES: usize = 32;

/// The documents that are set aside in `next` and were not, or otherwise, in the set before it.
pub(crate) fn set_aside(before: Option<&PolicySet>, next: &PolicySet) {
    let new = || next.set_aside().filter(|it| before.is_none_or(|before| !before.sets_aside_alike(next, it)));
    if next.set_aside_count() == 0 {
        return;
    }
    let mut count = 0_usize;
    for it in new() {
        count += 1;
        if count > MAX_LINES {
            continue;
        }
        let mistakes: Vec<_> = it.mistakes.iter().map(ToString::to_string).collect();
        tracing::error!(
            kind = %it.kind,
            name = ?it.name,
            mistakes = mistakes.join("; "),
            "set aside: this stored document is not in force; mend it or delete it (GET /v1/set-aside)"
        );
    }
    if count > MAX_LINES {
        tracing::error!(more = count - MAX_LINES, "set aside: further stored documents");
    }
}

/// What a new file changes, and what of it has no effect because a stored policy hides it.
pub(crate) fn file(before: &PolicySet, next: &PolicySet) {
    let (old, new) = (by_name(before.file()), by_name(next.file()));
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let document =
        |file: &BTreeMap<&str, &Policy>, name: &str| file.get(name).map(|policy| policy.document());
    let mut lines = 0_usize;
    for name in names {
        let what = difference(document(&old, name).as_ref(), document(&new, name).as_ref());
        let Some(what) = what else { continue };
        lines += 1;
        if lines > MAX_LINES {
            continue;
        }
        tracing::info!(policy = name, change = what, "changed by the file");
        next.policy(name).into_iter().for_each(permits_only);
        if let Some(Origin::Stored(revision)) = next.policy(name).map(|in_force| in_force.origin) {
            hidden(name, revision);
        }
    }
    if lines > MAX_LINES {
        tracing::info!(more = lines - MAX_LINES, "changed by the file: further policies");
    }
    let (old, new) = (&before.file().overrides, &next.file().overrides);
    if old != new {
        tracing::info!(before = old.len(), after = new.len(), "changed by the file: overrides");
    }
}

/// Where concurrency limits apply.
pub(crate) fn all_concurrent(set: &PolicySet) {
    set.policies().iter().filter(|in_force| in_force.is_concurrent()).take(MAX_LINES).for_each(permits_only);
}

/// That a concurrency limit does not apply at every door (decision 0050).
fn permits_only(in_force: &InForce) {
    if in_force.is_concurrent() {
        tracing::info!(
            policy = %in_force.policy.name,
            "a concurrency limit applies where a permit can be given back: to POST /v1/permits and /v1/decisions, and \
             to routes and listeners that list it; not to /v1/check, /api/v1/ratelimit, gRPC, RESP and the intake"
        );
    }
}

/// Which of the file's policies have no effect.
pub(crate) fn all_hidden(set: &PolicySet) {
    for (policy, revision) in set.hidden().take(MAX_LINES) {
        hidden(&policy.name, revision);
    }
    let more = set.hidden().skip(MAX_LINES).count();
    if more > 0 {
        tracing::warn!(more, "further policies of the file have no effect (GET /v1/set-aside)");
    }
}

/// That the file's policy has no effect.
fn hidden(policy: &str, revision: Revision) {
    tracing::warn!(
        policy,
        revision = revision.0,
        "the file's policy has no effect: a stored one of the same name is in force. `tidegate config \
         explain` shows the layers; DELETE /v1/policies/{policy} puts the file's in force"
    );
}

fn by_name(file: &FileLayer) -> BTreeMap<&str, &Policy> {
    file.policies.iter().map(|policy| (&*policy.name, policy)).collect()
}
