//! Databases of countries in MaxMind's format, written by the test that reads them.
//!
//! Its specification is that of MaxMind, version 2.0: a binary tree over the bits of addresses, then values, then a map of
//! what readers must know.

/// What a database has addresses of.
#[derive(Clone, Copy, Debug)]
pub enum Written {
    /// IPv4 alone.
    V4,
    /// IPv6, and IPv4 as the first network of it.
    V6,
}

impl Written {
    /// A database (version 2.0) with 24-bit records, whose networks are given by their first bits, each with its value.
    /// None lies in another one.
    ///
    /// # Panics
    /// If there are too many for such records.
    #[must_use]
    pub fn bytes(self, networks: &[(&str, &[u8])]) -> Vec<u8> {
        written(self, networks)
    }
}

fn written(version: Written, networks: &[(&str, &[u8])]) -> Vec<u8> {
    // Nodes of the tree: a record is another node, or the place of some data.
    #[derive(Clone, Copy)]
    enum TreeRecord {
        Empty,
        Node(usize),
        Data(usize),
    }
    let mut nodes = vec![[TreeRecord::Empty; 2]];
    let mut data = Vec::new();
    for (bits, value) in networks {
        let mut at = 0;
        for (place, bit) in bits.bytes().enumerate() {
            let side = usize::from(bit == b'1');
            if place + 1 == bits.len() {
                nodes[at][side] = TreeRecord::Data(data.len());
                data.extend_from_slice(value);
            } else {
                if !matches!(nodes[at][side], TreeRecord::Node(_)) {
                    nodes.push([TreeRecord::Empty; 2]);
                    nodes[at][side] = TreeRecord::Node(nodes.len() - 1);
                }
                let TreeRecord::Node(next) = nodes[at][side] else { unreachable!("it was just made one") };
                at = next;
            }
        }
    }
    let count = nodes.len();
    let mut bytes = Vec::new();
    for record in nodes.iter().flatten() {
        let value = match *record {
            TreeRecord::Empty => count,
            TreeRecord::Node(node) => node,
            TreeRecord::Data(place) => count + 16 + place,
        };
        bytes.extend_from_slice(&u32::try_from(value).expect("small").to_be_bytes()[1..]);
    }
    bytes.extend([0; 16]);
    bytes.extend(data);
    bytes.extend(b"\xab\xcd\xefMaxMind.com");
    // A map of nine: the metadata that readers ask for.
    bytes.push(0xe9);
    let mut pair = |key: &str, value: &[u8]| {
        bytes.extend(text(key));
        bytes.extend(value);
    };
    let node_count = u32::try_from(count).expect("small").to_be_bytes();
    pair("node_count", &[&[0xc4], &node_count[..]].concat());
    pair("record_size", &[0xa2, 0, 24]);
    let version = match version {
        Written::V4 => 4,
        Written::V6 => 6,
    };
    pair("ip_version", &[0xa2, 0, version]);
    pair("database_type", &text("Test"));
    pair("languages", &[0x00, 0x04]);
    pair("binary_format_major_version", &[0xa2, 0, 2]);
    pair("binary_format_minor_version", &[0xa2, 0, 0]);
    pair("build_epoch", &[0x08, 0x02, 0, 0, 0, 0, 0, 0, 0, 1]);
    pair("description", &map(&[("en", &text("Test"))]));
    bytes
}

/// A text.
///
/// # Panics
/// If it has more than 28 bytes.
#[must_use]
pub fn text(text: &str) -> Vec<u8> {
    // 29 and more have their length in a byte of its own.
    let length = u8::try_from(text.len()).expect("short");
    assert!(length < 29);
    [&[0x40 | length], text.as_bytes()].concat()
}

/// A map of texts to values.
///
/// # Panics
/// If it has more than 31 entries.
#[must_use]
pub fn map(pairs: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0xe0 | u8::try_from(pairs.len()).expect("few")];
    for (key, value) in pairs {
        bytes.extend(text(key));
        bytes.extend_from_slice(value);
    }
    bytes
}

/// The value that MaxMind's databases have for a country.
#[must_use]
pub fn maxmind(country: &str) -> Vec<u8> {
    map(&[("country", &map(&[("iso_code", &text(country))]))])
}
