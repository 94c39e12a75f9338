//! Places by networks and by a database, which the test writes itself.

use super::*;
use serde_json::json;
use tidegate_testkit::countries::{Written, map, maxmind, text};

fn places(list: &[serde_json::Value]) -> (Geography, RegionNames) {
    let read = list.iter().map(|it| Arc::new(PlaceConfig::read(it, "").expect("a place")));
    let read: Vec<Arc<PlaceConfig>> = read.collect();
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

#[test]
fn a_database_is_asked_for_what_no_network_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("countries.mmdb");
    let (maxmind, written) = (maxmind("BR"), |networks: &[(&str, &[u8])]| Written::V4.bytes(networks));
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

#[test]
fn addresses_of_both_versions_are_found_in_one_database() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("countries.mmdb");
    let (br, ie, ar) = (maxmind("BR"), maxmind("IE"), maxmind("AR"));
    // 2001:db8::/32, 2001:db9:8000::/33, and 203.0.0.0/8, which is ::cb00:0/104 there.
    let v4 = format!("{}11001011", "0".repeat(96));
    let networks: [(&str, &[u8]); 3] =
        [("00100000000000010000110110111000", &ie), ("001000000000000100001101101110011", &ar), (&v4, &br)];
    std::fs::write(&file, Written::V6.bytes(&networks)).expect("written");
    let database = Database::open(&file).expect("a database");
    let (geography, names) = places(&[
        json!({"countries": ["IE"], "region": "eu"}),
        json!({"networks": ["2001:db8:7::/48"], "country": "FR"}),
    ]);
    for (address, place) in [
        ("2001:db8::1", "IE eu database"),
        ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "IE eu database"),
        ("2001:db8:7::1", "FR - network"),
        ("2001:db9:8000::1", "AR - database"),
        ("2001:db9::1", "- - nothing"),
        ("203.0.113.7", "BR - database"),
        ("::ffff:203.0.113.7", "BR - database"),
        ("192.0.2.1", "- - nothing"),
    ] {
        assert_eq!(said(&geography, &names, address, Some(&database)), place, "{address}");
    }
}
