//! The points of presence of other nodes: where their listeners are, by region, for names.
//!
//! ```text
//!   announced now and then, and when a node asks ──> heard here ──> in REGION.pops.internal
//!                                                         └── forgotten: it says so when it drains; it is not there, and
//!                                                             has been silent for SILENCE
//! ```
//!
//! It is state with a lifetime, as what health checks find is: no revision, no row. While this node cannot find out which nodes
//! are there, their last addresses stay. How it is told is not here.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::time::{SECOND, Tick};

/// Most nodes that are remembered; further ones are not in names.
const MAX_NODES: usize = 1_024;

/// How long a node that is not there is remembered after it was last heard, in nanoseconds: one that connects again is absent
/// for a moment.
const SILENCE: u64 = 15 * SECOND;

/// How a message begins.
const WORD: &str = "pop";

/// One node, as it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pop {
    /// Its number.
    pub node: u32,
    /// Its region.
    pub region: Box<str>,
    /// Where its listeners are; none: it is going.
    pub addresses: Vec<IpAddr>,
}

/// `pop NODE ADDRESS,ADDRESS REGION`, and `-` for no address.
impl fmt::Display for Pop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{WORD} {} ", self.node)?;
        for (index, address) in self.addresses.iter().enumerate() {
            write!(out, "{}{address}", if index > 0 { "," } else { "" })?;
        }
        write!(out, "{} {}", if self.addresses.is_empty() { "-" } else { "" }, self.region)
    }
}

/// It is about something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPop;

impl FromStr for Pop {
    type Err = NoPop;

    fn from_str(message: &str) -> Result<Self, NoPop> {
        let mut words = message.splitn(4, ' ');
        if words.next() != Some(WORD) {
            return Err(NoPop);
        }
        let node = words.next().and_then(|node| node.parse().ok()).ok_or(NoPop)?;
        let addresses = match words.next().ok_or(NoPop)? {
            "-" => Vec::new(),
            list => list.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| NoPop)?,
        };
        let region = words.next().filter(|region| !region.is_empty()).ok_or(NoPop)?;
        Ok(Self { node, region: region.into(), addresses })
    }
}

/// What was heard of the other nodes. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Pops(Arc<Mutex<HashMap<u32, HeardPop>>>);

#[derive(Debug)]
struct HeardPop {
    pop: Pop,
    at: Tick,
}

impl Pops {
    /// Takes what a node says of itself.
    pub fn hear(&self, pop: Pop, now: Tick) {
        let mut heard = self.heard();
        if pop.addresses.is_empty() {
            heard.remove(&pop.node);
        } else if heard.len() < MAX_NODES || heard.contains_key(&pop.node) {
            heard.insert(pop.node, HeardPop { pop, at: now });
        }
    }

    /// Forgets the nodes that are not among those `present` and have been silent for a while.
    pub fn forget_absent(&self, present: &HashSet<u32>, now: Tick) {
        self.heard().retain(|node, heard| present.contains(node) || now.since(heard.at) < SILENCE);
    }

    /// Where the nodes of a region listen; `None`: there is none.
    pub(crate) fn in_region(&self, region: &str) -> Option<Vec<IpAddr>> {
        let heard = self.heard();
        let nodes = heard.values().filter(|heard| *heard.pop.region == *region);
        let mut addresses: Vec<IpAddr> =
            nodes.flat_map(|heard| heard.pop.addresses.iter().copied()).collect();
        addresses.sort_unstable();
        (!addresses.is_empty()).then_some(addresses)
    }

    /// Whether a node is in a region whose name ends with a dot and `top`.
    pub(crate) fn has_below(&self, top: &str) -> bool {
        let is_below = |region: &str| region.strip_suffix(top).is_some_and(|front| front.ends_with('.'));
        self.heard().values().any(|heard| is_below(&heard.pop.region))
    }

    fn heard(&self) -> MutexGuard<'_, HashMap<u32, HeardPop>> {
        // Each change of the map is whole.
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pop(node: u32, region: &str, addresses: &[&str]) -> Pop {
        let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
        Pop { node, region: region.into(), addresses }
    }

    #[test]
    fn a_node_is_read_as_it_was_written_and_nothing_else_is() {
        for said in
            [pop(7, "eu", &["10.0.0.1", "2001:db8::1"]), pop(u32::MAX, "a b", &["::1"]), pop(0, "sa", &[])]
        {
            assert_eq!(said.to_string().parse(), Ok(said));
        }
        for message in [
            "",
            "pop",
            "pop 7",
            "pop 7 10.0.0.1",
            "pop x 10.0.0.1 eu",
            "pop 7 10.0.0 eu",
            "pop 7 - ",
            "health up a",
        ] {
            assert_eq!(message.parse::<Pop>(), Err(NoPop), "{message}");
        }
    }

    #[test]
    fn nodes_are_known_until_they_go_or_are_absent_and_silent() {
        let (pops, later) = (Pops::default(), Tick(SILENCE));
        pops.hear(pop(1, "eu", &["10.0.0.2"]), Tick(0));
        pops.hear(pop(2, "eu", &["10.0.0.1"]), Tick(0));
        pops.hear(pop(3, "sa", &["10.0.0.3"]), Tick(1));
        let of = |region: &str| {
            pops.in_region(region).map(|found| found.iter().map(IpAddr::to_string).collect::<Vec<_>>())
        };
        assert_eq!(of("eu"), Some(vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()]));
        pops.forget_absent(&[2].into(), later);
        assert_eq!(
            (of("eu"), of("sa")),
            (Some(vec!["10.0.0.1".to_owned()]), Some(vec!["10.0.0.3".to_owned()]))
        );
        pops.hear(pop(2, "eu", &[]), later);
        assert_eq!((of("eu"), of("us")), (None, None));
        for node in 10..10 + 2 * MAX_NODES as u32 {
            pops.hear(pop(node, "us", &["10.0.0.9"]), later);
        }
        assert_eq!(pops.heard().len(), MAX_NODES);
    }
}
