//! What a key is good for, and until when.

use serde_json::json;
use tidegate_control::{Author, Change, Configuration, Control, Layers, Limits, Services};

use super::document::MAX_KEY_NAMES;
use super::*;

const NOW: Wall = Wall(1_800_000_000 * SECOND);

fn later(seconds: u64) -> Wall {
    Wall(NOW.0 + seconds * SECOND)
}

fn document(digest: [u8; 32]) -> KeyDocument {
    let secrets = vec![Secret { digest, until: None }];
    KeyDocument {
        consumer: "acme".into(),
        tier: Some("pro".into()),
        routes: None,
        scopes: Vec::new(),
        secrets,
        created: NOW,
        expires: None,
    }
}

/// Keys of a configuration that is changed by the second value.
fn keys() -> (Arc<ApiKeys>, impl AsyncFn(&str, Option<&KeyDocument>) -> bool, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::open(folder.path(), Limits::default()).unwrap();
    let keys = Arc::new(ApiKeys::new("a-secret-of-the-operator"));
    let services = Services::default().with(KeyDocuments(Arc::clone(&keys)));
    let configuration = Configuration::start(control, services, &Layers::default());
    let change = async move |id: &str, document: Option<&KeyDocument>| {
        let change = match document {
            Some(document) => Change::put(KEY, id, document.write(id).to_string()),
            None => Change::delete(KEY, id),
        };
        let author = Author { actor: "test".to_owned(), at: NOW, from: None };
        configuration.change(change, author).await.is_ok()
    };
    (keys, change, folder)
}

#[tokio::test]
async fn a_key_is_good_while_it_is_stored_and_not_expired() {
    let (keys, change, _folder) = keys();
    let text = KeyText::new(&[1; CHANCE_BYTES]);
    let look = |now| keys.look(Some(text.expose().as_bytes()), now).map(|key| key.consumer().to_owned());
    assert_eq!(look(NOW), Err(KeyDenial::Unknown));
    let stored = document(keys.digest(text.expose().as_bytes()));
    assert!(change(text.name(), Some(&stored)).await);
    assert_eq!(look(NOW).as_deref(), Ok("acme"));
    let ending = KeyDocument { expires: Some(later(10)), ..stored.clone() };
    assert!(change(text.name(), Some(&ending)).await);
    assert_eq!((look(later(9)).as_deref(), look(later(10))), (Ok("acme"), Err(KeyDenial::Expired)));
    assert!(change(text.name(), None).await);
    assert_eq!(look(NOW), Err(KeyDenial::Unknown));
    assert_eq!(keys.look(None, NOW).err(), Some(KeyDenial::Missing));
    let other = ApiKeys::new("another-secret");
    assert_ne!(other.digest(text.expose().as_bytes()), stored.secrets[0].digest, "digests are keyed");
}

#[tokio::test]
async fn fault_46_the_secret_is_proved_whole_whatever_the_id_says() {
    let (keys, change, _folder) = keys();
    let text = KeyText::new(&[1; CHANCE_BYTES]);
    assert!(change(text.name(), Some(&document(keys.digest(text.expose().as_bytes())))).await);
    let good = text.expose().as_bytes();
    for at in 0..good.len() {
        let mut other = good.to_vec();
        other[at] ^= 1;
        assert_eq!(keys.look(Some(&other), NOW).err(), Some(KeyDenial::Unknown), "byte {at}");
    }
    assert!(keys.look(Some(good), NOW).is_ok());
}

#[tokio::test]
async fn a_rotated_key_has_two_secrets_for_the_overlap_and_keeps_what_is_known_of_its_use() {
    let (keys, change, _folder) = keys();
    let [first, second, third] =
        [1, 2, 3].map(|seed| KeyText::again("abcdefghijklmnop", &[seed; CHANCE_BYTES]));
    let id = first.name();
    let good = |text: &KeyText, now| keys.look(Some(text.expose().as_bytes()), now).is_ok();
    let digest = |text: &KeyText| keys.digest(text.expose().as_bytes());
    let stored = document(digest(&first));
    assert!(change(id, Some(&stored)).await);
    assert!(keys.admit(Some(first.expose().as_bytes()), "any", None, NOW).is_ok());
    let stored = stored.rotated(digest(&second), NOW, later(60));
    assert!(change(id, Some(&stored)).await);
    assert_eq!(keys.get(id).unwrap().last_used(), Some(NOW));
    assert!(good(&first, later(59)) && !good(&first, later(60)) && good(&second, later(61)));
    // A second rotation within the first leaves the newest two.
    let again = stored.rotated(digest(&third), NOW, later(90));
    assert!(change(id, Some(&again)).await);
    assert!(!good(&first, NOW) && good(&second, later(89)) && good(&third, later(91)));
    let at_once = again.rotated(digest(&first), NOW, NOW);
    assert!(change(id, Some(&at_once)).await);
    assert!(good(&first, NOW) && !good(&third, NOW));
    assert_eq!(keys.stats(), KeyStats { accepted: 1, keys: 1, ..KeyStats::default() });
    // Where all keys are too old, none is looked at.
    keys.refuse_all(true);
    assert_eq!(keys.admit(Some(first.expose().as_bytes()), "any", None, NOW).err(), Some(KeyDenial::Stale));
    keys.refuse_all(false);
    assert!(good(&first, NOW));
    assert_eq!(keys.stats(), KeyStats { accepted: 1, stale: 1, keys: 1, ..KeyStats::default() });
    // The latest use counts, whichever node it was at.
    let second_of = |at: Wall| at.0 / SECOND;
    let used = [(id.to_owned(), second_of(NOW))];
    assert_eq!(keys.unkept_uses(60), used, "nothing is kept of it");
    keys.learn(&[(id.to_owned(), 1), ("gone".to_owned(), u64::MAX)]);
    assert_eq!(keys.get(id).unwrap().last_used(), Some(NOW));
    keys.learn(&[(id.to_owned(), second_of(NOW) - 59)]);
    assert_eq!(
        (keys.unkept_uses(60), keys.unkept_uses(59)),
        (vec![], used.to_vec()),
        "it is kept to the minute"
    );
    keys.learn(&[(id.to_owned(), second_of(later(5)))]);
    assert_eq!(keys.get(id).unwrap().last_used(), Some(later(5)));
    assert_eq!(keys.unkept_uses(0), [], "a later use is kept");
}

#[tokio::test]
async fn fault_46_a_key_that_names_routes_opens_no_other_and_has_no_scope_that_it_was_not_given() {
    let (keys, change, _folder) = keys();
    let text = KeyText::new(&[1; CHANCE_BYTES]);
    let all = document(keys.digest(text.expose().as_bytes()));
    let narrow = KeyDocument {
        routes: Some(vec!["orders".into()]),
        scopes: vec!["orders:read".into()],
        ..all.clone()
    };
    for (stored, opens, scopes) in
        [(&all, [true; 3], [false; 3]), (&narrow, [true, false, false], [true, false, false])]
    {
        assert!(change(text.name(), Some(stored)).await);
        let admitted = |route: &str, scope: Option<&str>| {
            let found = keys.admit(Some(text.expose().as_bytes()), route, scope, NOW);
            found.is_ok()
        };
        assert_eq!(["orders", "order", "orders2"].map(|route| admitted(route, None)), opens);
        let with = ["orders:read", "orders", "orders:read:x"].map(|scope| admitted("orders", Some(scope)));
        assert_eq!(with, scopes);
    }
    // What a good key does not open is counted apart from what is accepted, and is a use of the key.
    let counted = KeyStats { accepted: 3 + 1 + 1, route: 2, scope: 3 + 2, keys: 1, ..KeyStats::default() };
    assert_eq!(keys.stats(), counted);
    assert_eq!(keys.get(text.name()).unwrap().last_used(), Some(NOW));
    // Another secret is the same key.
    let rotated = narrow.rotated([7; 32], NOW, later(60));
    assert_eq!((rotated.routes, rotated.scopes), (narrow.routes, narrow.scopes));
}

#[tokio::test]
async fn what_is_no_key_is_refused_with_its_mistakes() {
    let (_, change, _folder) = keys();
    let good = document([7; 32]);
    assert_eq!(KeyDocument::read(&good.write("a"), ""), Ok(good.clone()));
    let narrow = KeyDocument {
        routes: Some(vec!["orders".into(), "carts".into()]),
        scopes: vec!["orders:read".into()],
        ..good.clone()
    };
    assert_eq!(KeyDocument::read(&narrow.write("a"), ""), Ok(narrow));
    for (field, value) in [
        ("consumer", json!(" acme")),
        ("consumer", json!("ac\u{e9}me")),
        ("tier", json!("Pro")),
        ("routes", json!([])),
        ("routes", json!(null)),
        ("routes", json!(["Orders"])),
        ("routes", json!(["orders", "orders"])),
        ("routes", json!(vec!["orders"; MAX_KEY_NAMES + 1])),
        ("scopes", json!("orders:read")),
        ("scopes", json!(["orders read"])),
        ("scopes", json!(["a\"b"])),
        ("scopes", json!(["x".repeat(MAX_KEY_SCOPE_BYTES + 1)])),
        ("secrets", json!([])),
        ("secrets", json!([{"hmac_sha256": "00"}])),
        ("secrets", json!([{"hmac_sha256": "0".repeat(64)}, {}, {}])),
        ("created", json!("yesterday")),
        ("expires", json!(7)),
        ("digest", json!("x")),
    ] {
        let mut document = good.write("a");
        document[field] = value;
        let mistakes = KeyDocument::read(&document, "").unwrap_err();
        assert!(mistakes.iter().any(|it| it.pointer.starts_with(&format!("/{field}"))), "{mistakes:?}");
    }
    assert!(!change("a", Some(&KeyDocument { secrets: Vec::new(), ..good })).await);
}
