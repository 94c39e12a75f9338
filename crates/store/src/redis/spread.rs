//! One request whose counters live in several slots of a Cluster: reserve and roll back.
//!
//! ```text
//!   group 1 --spend--> allowed --> group 2 --spend--> denied
//!      ^                                                 |
//!      `------------------- give back <------------------'
//! ```
//!
//! No script can touch two slots, so the groups are charged one after the other, in the order of
//! their tags, and given back when a later one denies. What that costs, and why it never admits
//! too much: between charge and return another request may be denied that would have had room; and
//! if the server of an earlier group fails before it is given back, its units stay spent until they
//! come back by themselves.

use tidegate_algorithms::limit::{Limit, Verdict};
use tidegate_algorithms::time::Now;

use super::Redis;
use super::keys::tag_of;
use crate::Charge;
use crate::batch::{Failure, Kind, Reply};

/// The charges of a request that share a tag, and their places in the request.
struct TagGroup<'c> {
    tag: u8,
    places: Vec<usize>,
    charges: Vec<Charge<'c>>,
}

/// Runs an operation over counters of several tags.
pub(super) async fn call(
    redis: &Redis,
    kind: Kind,
    now: Now,
    charges: &[Charge<'_>],
) -> Result<Reply, Failure> {
    let groups = groups(charges);
    let mut verdicts: Vec<Option<Verdict>> = vec![None; charges.len()];
    let mut denied = None;
    for (index, group) in groups.iter().enumerate() {
        let reply = match redis.call_one(group.tag, kind, now, &group.charges).await {
            Ok(reply) => reply,
            Err(failure) => {
                give_back(redis, kind, now, &groups[..index], &verdicts).await;
                return Err(failure);
            }
        };
        for (place, verdict) in group.places.iter().zip(reply.verdicts) {
            verdicts[*place] = Some(verdict);
        }
        if !reply.yes {
            denied = Some(index);
            break;
        }
    }
    if let Some(index) = denied {
        give_back(redis, kind, now, &groups[..index], &verdicts).await;
        for (other, group) in groups.iter().enumerate().filter(|(other, _)| *other != index) {
            show_without(redis, now, group, other < index, &mut verdicts).await?;
        }
    }
    Ok(Reply { yes: denied.is_none(), verdicts: verdicts.into_iter().flatten().collect() })
}

fn groups<'c>(charges: &[Charge<'c>]) -> Vec<TagGroup<'c>> {
    let mut groups: Vec<TagGroup<'c>> = Vec::new();
    for (place, charge) in charges.iter().enumerate() {
        let tag = tag_of(charge.key);
        let at = groups.iter().position(|group| group.tag == tag).unwrap_or_else(|| {
            groups.push(TagGroup { tag, places: Vec::new(), charges: Vec::new() });
            groups.len() - 1
        });
        groups[at].places.push(place);
        groups[at].charges.push(*charge);
    }
    groups.sort_by_key(|group| group.tag);
    groups
}

/// Returns what these groups were charged. A failure leaves it spent, until it comes back by itself.
async fn give_back(
    redis: &Redis,
    kind: Kind,
    now: Now,
    groups: &[TagGroup<'_>],
    verdicts: &[Option<Verdict>],
) {
    let Kind::Spend(permit) = kind else { return };
    for group in groups {
        let charged = group.places.iter().zip(&group.charges).filter(|(place, charge)| {
            charge.cost > 0 && verdicts[**place].is_some_and(|verdict| verdict.allowed)
        });
        let (permits, units): (Vec<_>, Vec<_>) = charged
            .map(|(_, charge)| *charge)
            .partition(|charge| matches!(charge.limit, Limit::Concurrency(_)));
        if !units.is_empty() {
            drop(redis.call_one(group.tag, Kind::Refund, now, &units).await);
        }
        for charge in permits {
            drop(redis.call_one(group.tag, Kind::Release(permit), now, &[charge]).await);
        }
    }
}

/// The verdicts of a group that a denial elsewhere left uncharged: those that have room show what
/// remains without this request.
async fn show_without(
    redis: &Redis,
    now: Now,
    group: &TagGroup<'_>,
    asked: bool,
    verdicts: &mut [Option<Verdict>],
) -> Result<(), Failure> {
    if !asked {
        let reply = redis.call_one(group.tag, Kind::Peek, now, &group.charges).await?;
        for (place, verdict) in group.places.iter().zip(reply.verdicts) {
            verdicts[*place] = Some(verdict);
        }
    }
    let free: Vec<_> = group.charges.iter().map(|charge| Charge { cost: 0, ..*charge }).collect();
    let reply = redis.call_one(group.tag, Kind::Peek, now, &free).await?;
    for (place, verdict) in group.places.iter().zip(reply.verdicts) {
        if verdicts[*place].is_some_and(|own| own.allowed) {
            verdicts[*place] = Some(verdict);
        }
    }
    Ok(())
}
