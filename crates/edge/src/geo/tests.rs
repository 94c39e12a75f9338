//! Places by networks and by a database, which the test writes itself.

use super::*;
use serde_json::json;

fn places(list: &[serde_json::Value]) -> (Geography, RegionNames) {
    let read: Vec<PlaceConfig> = list.iter().map(|it| PlaceConfig::read(it, "").expect("a place")).collect();
    let mut names = RegionNames::default();
    (Geography::new(&read, &mut names), names)
}

fn said(geography: &Geography, names: &RegionNames, address: &str, database: Option<&Database>) -> String {
    let (location, by) = geography.locate(address.parse().expect("an address"), database);
    let country = location.country.map_or("-".to_owned(), |country| country.to_string());
    let region = location.region.and_then(|region| names.name(region)).map_or("-", |name| name);
    format!("{country} {region} {}", by.word())
}

#[test]
fn the_most_exact_network_wins() {
    let (geography, names) = places(&[
        json!({"networks": ["127.0.0.0/8", "2001:db8::/32"], "region": "eu"}),
        json!({"networks": ["127.1.0.0/16"], "country": "BR", "region": "sa"}),
        json!({"networks": ["127.1.2.3", "2001:db8:1::/48"], "country": "AR"}),
        json!({"countries": ["AR"], "region": "south"}),
    ]);
    for (address, place) in [
        ("127.2.0.1", "- eu network"),
        ("127.1.0.1", "BR sa network"),
        ("::ffff:127.1.0.1", "BR sa network"),
        ("127.1.2.3", "AR south network"),
        ("2001:db8:1::9", "AR south network"),
        ("2001:db8:2::9", "- eu network"),
        ("10.0.0.1", "- - nothing"),
        ("::1", "- - nothing"),
    ] {
        assert_eq!(said(&geography, &names, address, None), place, "{address}");
    }
    let (everyone, names) = places(&[json!({"networks": ["0.0.0.0/0"], "region": "eu"})]);
    assert_eq!(said(&everyone, &names, "203.0.113.9", None), "- eu network");
    assert_eq!(said(&everyone, &names, "::1", None), "- - nothing");
}

/// A database in MaxMind's format (version 2.0) with 24-bit records, whose networks are given by their first bits.
pub(crate) fn written(networks: &[(&str, &[u8])]) -> Vec<u8> {
    // Nodes of the tree: a record is another node, or the place of some data.
    #[derive(Clone, Copy)]
    enum Record {
        Empty,
        Node(usize),
        Data(usize),
    }
    let mut nodes = vec![[Record::Empty; 2]];
    let mut data = Vec::new();
    for (bits, value) in networks {
        let mut at = 0;
        for (place, bit) in bits.bytes().enumerate() {
            let side = usize::from(bit == b'1');
            if place + 1 == bits.len() {
                nodes[at][side] = Record::Data(data.len());
                data.extend_from_slice(value);
            } else {
                if !matches!(nodes[at][side], Record::Node(_)) {
                    nodes.push([Record::Empty; 2]);
                    nodes[at][side] = Record::Node(nodes.len() - 1);
                }
                let Record::Node(next) = nodes[at][side] else { unreachable!("it was just made one") };
                at = next;
            }
        }
    }
    let count = nodes.len();
    let mut bytes = Vec::new();
    for record in nodes.iter().flatten() {
        let value = match *record {
            Record::Empty => count,
            Record::Node(node) => node,
            Record::Data(place) => count + 16 + place,
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
    pair("ip_version", &[0xa2, 0, 4]);
    pair("database_type", &text("Test"));
    pair("languages", &[0x00, 0x04]);
    pair("binary_format_major_version", &[0xa2, 0, 2]);
    pair("binary_format_minor_version", &[0xa2, 0, 0]);
    pair("build_epoch", &[0x08, 0x02, 0, 0, 0, 0, 0, 0, 0, 1]);
    pair("description", &map(&[("en", &text("Test"))]));
    bytes
}

fn text(text: &str) -> Vec<u8> {
    // 29 and more have their length in a byte of its own.
    let length = u8::try_from(text.len()).expect("short");
    assert!(length < 29);
    [&[0x40 | length], text.as_bytes()].concat()
}

fn map(pairs: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0xe0 | u8::try_from(pairs.len()).expect("few")];
    for (key, value) in pairs {
        bytes.extend(text(key));
        bytes.extend_from_slice(value);
    }
    bytes
}

#[test]
fn a_database_is_asked_for_what_no_network_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("countries.mmdb");
    let maxmind = map(&[("country", &map(&[("iso_code", &text("BR"))]))]);
    let flat = map(&[("country", &text("Ireland")), ("country_code", &text("IE"))]);
    // 203.0.0.0/8 and 198.0.0.0/8.
    std::fs::write(&file, written(&[("11001011", &maxmind), ("11000110", &flat)])).expect("written");
    let database = Database::open(&file).expect("a database");
    let (geography, names) = places(&[
        json!({"countries": ["BR"], "region": "sa"}),
        json!({"networks": ["203.0.113.0/24"], "country": "AR"}),
    ]);
    for (address, place) in [
        ("203.0.112.1", "BR sa database"),
        ("203.0.113.1", "AR - network"),
        ("198.51.100.7", "IE - database"),
        ("192.0.2.1", "- - nothing"),
    ] {
        assert_eq!(said(&geography, &names, address, Some(&database)), place, "{address}");
    }
    for bytes in [&b""[..], b"MaxMind", &written(&[("1", &maxmind)])[..40]] {
        std::fs::write(&file, bytes).expect("written");
        assert!(matches!(Database::open(&file), Err(DatabaseError::Malformed(_))));
    }
    assert!(matches!(Database::open(&folder.path().join("none")), Err(DatabaseError::Unreadable(_))));
}
