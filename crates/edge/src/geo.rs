//! Where a client is: the file's networks first, then a database in MaxMind's format.
//!
//! ```text
//!   address ──> [[edge.place]] networks, the most exact first ──> country, region
//!          └──> database ──> country ──> [[edge.place]] countries ──> region
//! ```
//!
//! A network of the file is the last word about its clients, so that the file suffices alone and can mend what the
//! database has wrong. A look-up takes one step in a map per length of prefix that the file uses.
//!
//! Deliberately absent: a database. The operator supplies one, under its own licence.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use maxminddb::{PathElement, Reader};
use thiserror::Error;
use tidegate_algorithms::balance::region::{Country, Location, Region};

use crate::config::{PlaceConfig, Who};

/// Largest database that is read, in bytes.
const MAX_DATABASE: u64 = 1 << 30;

/// The names of regions, by number.
#[derive(Clone, Debug, Default)]
pub struct RegionNames {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Region>,
}

impl RegionNames {
    /// The number of a name, which it is given now if it has none.
    pub fn number(&mut self, name: &Arc<str>) -> Region {
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        // Invariant: backends and places together are fewer than 65,536.
        let number = Region(u16::try_from(self.names.len()).unwrap_or(u16::MAX));
        self.names.push(Arc::clone(name));
        self.numbers.insert(Arc::clone(name), number);
        number
    }

    /// The name of a number.
    #[must_use]
    pub fn name(&self, region: Region) -> Option<&Arc<str>> {
        self.names.get(usize::from(region.0))
    }
}

/// Where clients are, by the file.
#[derive(Clone, Debug, Default)]
pub struct Geography {
    /// By the number of bits, the most first; keys are the bits, aligned to the left.
    v4: Vec<(u8, HashMap<u32, Location>)>,
    v6: Vec<(u8, HashMap<u128, Location>)>,
    regions: HashMap<Country, Region>,
}

/// How it is known where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownBy {
    /// A network of the file has it.
    Network,
    /// The database has it.
    Database,
    /// It is not known.
    Nothing,
}

impl KnownBy {
    /// Its word in explanations.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Database => "database",
            Self::Nothing => "nothing",
        }
    }
}

impl Geography {
    /// These places, the first of those with the same network winning.
    #[must_use]
    pub fn new(places: &[Arc<PlaceConfig>], names: &mut RegionNames) -> Self {
        let mut v4: BTreeMap<u8, HashMap<u32, Location>> = BTreeMap::new();
        let mut v6: BTreeMap<u8, HashMap<u128, Location>> = BTreeMap::new();
        let mut regions = HashMap::new();
        for place in places {
            let region = place.region.as_ref().map(|name| names.number(name));
            let location = Location { country: place.country, region };
            match &place.who {
                Who::Networks(networks) => {
                    for network in networks {
                        let bits = network.bits();
                        match network.address() {
                            IpAddr::V4(ip) => {
                                let key = high32(ip.to_bits(), bits);
                                v4.entry(bits).or_default().entry(key).or_insert(location);
                            }
                            IpAddr::V6(ip) => {
                                let key = high128(ip.to_bits(), bits);
                                v6.entry(bits).or_default().entry(key).or_insert(location);
                            }
                        }
                    }
                }
                Who::Countries(countries) => {
                    for (country, region) in countries.iter().zip(std::iter::repeat(region)) {
                        if let Some(region) = region {
                            regions.entry(*country).or_insert(region);
                        }
                    }
                }
            }
        }
        Self { v4: v4.into_iter().rev().collect(), v6: v6.into_iter().rev().collect(), regions }
    }

    /// Where `address` is. `database` is asked for what no network has.
    #[must_use]
    pub fn locate(&self, address: IpAddr, database: Option<&Database>) -> (Location, KnownBy) {
        let address = address.to_canonical();
        let found = match address {
            IpAddr::V4(ip) => longest(&self.v4, |bits| high32(ip.to_bits(), bits)),
            IpAddr::V6(ip) => longest(&self.v6, |bits| high128(ip.to_bits(), bits)),
        };
        let (mut location, by) = match (found, database.and_then(|database| database.country(address))) {
            (Some(location), _) => (location, KnownBy::Network),
            (None, Some(country)) => (Location { country: Some(country), region: None }, KnownBy::Database),
            (None, None) => return (Location::default(), KnownBy::Nothing),
        };
        if location.region.is_none() {
            location.region = location.country.and_then(|country| self.regions.get(&country).copied());
        }
        (location, by)
    }
}

fn longest<K: std::hash::Hash + Eq>(
    lengths: &[(u8, HashMap<K, Location>)],
    key: impl Fn(u8) -> K,
) -> Option<Location> {
    lengths.iter().find_map(|(bits, networks)| networks.get(&key(*bits)).copied())
}

fn high32(address: u32, bits: u8) -> u32 {
    address & u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0)
}

fn high128(address: u128, bits: u8) -> u128 {
    address & u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0)
}

/// A database of countries.
#[derive(Debug)]
pub struct Database {
    reader: Reader<Vec<u8>>,
}

/// Why there is no database.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It has too many bytes.
    #[error("has more than {MAX_DATABASE} bytes")]
    TooLarge,
    /// It is no such database, or a damaged one.
    #[error("is no database in MaxMind's format: {0}")]
    Malformed(#[from] maxminddb::MaxMindDbError),
}

impl Database {
    /// Reads a database whole and checks it. Blocks on the disk.
    ///
    /// # Errors
    /// When the file is no good database.
    pub fn open(path: &Path) -> Result<Self, DatabaseError> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_DATABASE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_DATABASE {
            return Err(DatabaseError::TooLarge);
        }
        let reader = Reader::from_source(bytes)?;
        reader.verify()?;
        Ok(Self { reader })
    }

    /// The country of an address: `country.iso_code` as MaxMind has it, or `country_code`.
    #[must_use]
    pub fn country(&self, address: IpAddr) -> Option<Country> {
        let found = self.reader.lookup(address).ok()?;
        let text = |path: &[PathElement<'_>]| found.decode_path::<&str>(path).ok().flatten();
        let code = text(&[PathElement::Key("country"), PathElement::Key("iso_code")]);
        Country::parse(code.or_else(|| text(&[PathElement::Key("country_code")]))?)
    }
}

#[cfg(test)]
mod tests;
