//! The text of a permit.
//!
//! It is `<id>.<contents>`: the id that the limits know it by, the policies that granted it, and
//! the attributes that these are keyed on. So any node finds the counters again without a table of its own,
//! and asks only those that hold it. It is not a secret and not signed: the id is 64 unguessable bits, and
//! without it the contents release nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use smallvec::SmallVec;
use tidegate_algorithms::limit::PermitId;
use tidegate_algorithms::policy::{Attributes, counted};
use tidegate_wire::bodies::AttributesBody;

use super::ApiState;
use super::reply::Refusal;
use crate::decision::Decision;
use crate::error::{AskError, MAX_PERMIT_BYTES};
use crate::policy_set::{CLIENT_ID, InForce, PolicySet};

/// Refuses a request whose permit could not be named in a request's target, before anything is charged.
pub(super) fn permit_fits(set: &PolicySet, attributes: &Attributes<'_>) -> Result<(), AskError> {
    let mut found = Vec::new();
    let candidates = set.candidates(attributes, &mut found).map(|(_, in_force)| in_force);
    let granting = candidates.filter(|it| it.is_concurrent() && it.policy.applies_to(attributes));
    let granting: Vec<&InForce> = granting.collect();
    if granting.is_empty() {
        return Ok(());
    }
    let bytes = carried(&granting, attributes).len();
    if bytes > MAX_PERMIT_BYTES { Err(AskError::PermitTooLong(bytes)) } else { Ok(()) }
}

/// The text of a permit that a decision on these attributes handed out.
pub(super) fn permit_text(
    shared: &ApiState,
    decision: &Decision,
    id: PermitId,
    attributes: &AttributesBody<'_>,
) -> String {
    let set = shared.engine.set();
    let granting: Vec<&InForce> = decision
        .parts
        .iter()
        .filter(|part| part.grants())
        .filter_map(|part| set.policy(&part.policy))
        .collect();
    let carried = carried(&granting, &Attributes::new(&pairs(attributes)));
    format!("{:016x}.{}", id.0, URL_SAFE_NO_PAD.encode(carried))
}

/// What a permit of these policies carries: how many they are, their names, then the names and values of the
/// attributes that they are keyed on and of the client's name, by which its own numbers are found. Each has
/// its length before it, in two bytes.
fn carried(granting: &[&InForce], attributes: &Attributes<'_>) -> Vec<u8> {
    let mut text = Vec::with_capacity(128);
    put(&mut text, &u16::try_from(granting.len()).unwrap_or(u16::MAX).to_be_bytes());
    for in_force in granting {
        put(&mut text, in_force.policy.name.as_bytes());
    }
    let keys = granting.iter().flat_map(|in_force| &in_force.policy.key).map(String::as_str);
    let mut names: Vec<&str> = keys.chain([CLIENT_ID]).collect();
    names.sort_unstable();
    names.dedup();
    for (name, value) in names.iter().filter_map(|name| Some((name, attributes.value(name)?))) {
        put(&mut text, name.as_bytes());
        put(&mut text, &counted(value));
    }
    text
}

fn put(text: &mut Vec<u8>, part: &[u8]) {
    // Invariant: names and counted values are far shorter.
    text.extend_from_slice(&u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
    text.extend_from_slice(part);
}

/// A permit's text, read.
pub(super) struct Parsed {
    pub(super) id: PermitId,
    /// The parts of what it carries.
    parts: Vec<Vec<u8>>,
    /// How many of them, after the first, are policies.
    policies: usize,
}

impl Parsed {
    pub(super) fn of(text: &str) -> Result<Self, Refusal> {
        Self::read(text).ok_or_else(|| {
            Refusal::field("/permit", "is not a permit", "the text that a decision handed out")
        })
    }

    fn read(text: &str) -> Option<Self> {
        let (id, carried) = text.split_once('.')?;
        let id = PermitId(u64::from_str_radix(id, 16).ok()?);
        let carried = URL_SAFE_NO_PAD.decode(carried).ok()?;
        let (mut rest, mut parts) = (&carried[..], Vec::new());
        while let Some((length, after)) = rest.split_first_chunk() {
            let (part, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
            parts.push(part.to_vec());
            rest = after;
        }
        let count = parts.first()?.as_slice().try_into().ok()?;
        let policies = usize::from(u16::from_be_bytes(count));
        let pairs = parts.len().checked_sub(1 + policies)?;
        let mut names = parts[1..=policies].iter().chain(parts[1 + policies..].iter().step_by(2));
        let is_whole = rest.is_empty() && pairs % 2 == 0;
        let is_whole = is_whole && names.all(|name| str::from_utf8(name).is_ok());
        is_whole.then_some(Self { id, parts, policies })
    }

    /// Names of policies, and pairs of attributes, as the engine takes them.
    pub(super) fn contents(&self) -> (Vec<&str>, Vec<(&str, &[u8])>) {
        // Invariant: names are texts, or it would not have been read.
        fn text(part: &[u8]) -> &str {
            str::from_utf8(part).unwrap_or_default()
        }
        let (policies, pairs) = self.parts[1..].split_at(self.policies);
        let pairs = pairs.chunks_exact(2).map(|pair| (text(&pair[0]), &pair[1][..]));
        (policies.iter().map(|name| text(name)).collect(), pairs.collect())
    }
}

/// Attributes as the engine takes them.
pub(super) fn pairs<'a>(attributes: &'a AttributesBody<'_>) -> SmallVec<[(&'a str, &'a [u8]); 8]> {
    attributes.0.iter().map(|(name, value)| (&**name, value.as_bytes())).collect()
}
