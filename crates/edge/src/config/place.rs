//! A place: which clients are there, and the country and region that it is.

use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::balance::region::Country;
use tidegate_algorithms::document::{DocumentReader, Mistake};
use tidegate_net::proxied::Network;

use super::{optional_country, optional_name};

/// The keys of a place.
pub const PLACE_KEYS: [&str; 4] = ["networks", "countries", "country", "region"];

/// The keys of a place that has a name, which is a stored one.
const NAMED_KEYS: [&str; 5] = ["name", "networks", "countries", "country", "region"];

/// Most networks or countries of one place.
const MAX_ENTRIES: usize = 10_000;

/// A place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceConfig {
    /// Its clients.
    pub who: Who,
    /// The country that it is.
    pub country: Option<Country>,
    /// The region that it is.
    pub region: Option<Arc<str>>,
}

/// The clients of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Clients of these addresses.
    Networks(Vec<Network>),
    /// Clients of these countries, wherever that is known from.
    Countries(Vec<Country>),
}

impl PlaceConfig {
    /// Reads a document of which `pointer` says where it is.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(value: &Value, pointer: &str) -> Result<Self, Vec<Mistake>> {
        Self::read_fields(DocumentReader::new(value, pointer, &PLACE_KEYS)?)
    }

    /// Reads a document that has a name beside the keys of a place.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read_named(value: &Value, pointer: &str) -> Result<(Arc<str>, Self), Vec<Mistake>> {
        let mut reader = DocumentReader::new(value, pointer, &NAMED_KEYS)?;
        let name = reader.name("name").map(Arc::from);
        let read = Self::read_fields(reader)?;
        // Invariant: without a name there is a mistake.
        Ok((name.unwrap_or_default(), read))
    }

    fn read_fields(mut reader: DocumentReader<'_>) -> Result<Self, Vec<Mistake>> {
        let country = optional_country(&mut reader, "country");
        let region = optional_name(&mut reader, "region");
        let networks = parsed(&mut reader, "networks", "an address, or a network: \"10.0.0.0/8\"", |text| {
            text.parse::<Network>().ok()
        });
        let countries = parsed(&mut reader, "countries", "two letters of ISO 3166: \"BR\"", Country::parse);
        let who = match (networks.is_empty(), countries.is_empty()) {
            (false, true) => Some(Who::Networks(networks)),
            (true, false) => Some(Who::Countries(countries)),
            _ => None,
        };
        if reader.mistakes.is_empty() {
            match &who {
                None => {
                    reader.mistake("networks", "is there beside countries, or neither is", "one of the two")
                }
                Some(Who::Countries(_)) if country.is_some() => {
                    reader.mistake("country", "is there beside countries", "a region for these countries");
                }
                Some(_) if country.is_none() && region.is_none() => {
                    reader.mistake("region", "is missing", "a region, a country, or both");
                }
                Some(_) => {}
            }
        }
        match who {
            Some(who) if reader.mistakes.is_empty() => Ok(Self { who, country, region }),
            _ => Err(reader.mistakes),
        }
    }
}

fn parsed<T>(
    reader: &mut DocumentReader<'_>,
    field: &str,
    accepted: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Vec<T> {
    let mut read = Vec::new();
    for (index, text) in reader.texts(field, MAX_ENTRIES, 1, 64).into_iter().enumerate() {
        match parse(text) {
            Some(value) => read.push(value),
            None => reader.mistake(&format!("{field}/{index}"), format!("is {text:?}"), accepted),
        }
    }
    read
}
