//! What a client can make Envoy send: nothing of it is an error.

use tidegate_wire::rls::{Descriptor, Entry, Hits, RateLimitCode as Code};

use super::{descriptor, request, start, told};

/// Envoy lets a request through for which it gets an error. With the limit used up nothing that a client can write into
/// a field, path or query makes one.
#[tokio::test]
async fn whatever_a_client_wrote_is_counted_or_denied_and_never_an_error() {
    let mut service = start().await;
    let entry = |key: &str, value: &[u8]| Entry { key: key.into(), value: value.to_vec() };
    let of_client = |more: Entry| {
        let entries = vec![entry("client", b"a"), more];
        request(vec![Descriptor { entries, ..Descriptor::default() }])
    };
    for _ in 0..3 {
        let plain = of_client(entry("agent", b"x"));
        assert_eq!(service.limit(&plain).await.unwrap().overall_code(), Code::Ok);
    }
    let long = "a".repeat(60_000);
    let paths = [
        "/pay/%2f",
        "/pay%zz",
        "/a%00",
        "/a\\b",
        "/..",
        "",
        "pay",
        "*",
        "/caf\u{e9}",
        "http://h/pay",
        "/pay#x",
        &long,
    ];
    let agents: [&[u8]; 5] = [b"", long.as_bytes(), b"a\0b", b"\xff\xfe", &[0x80; 300]];
    let written = paths.map(|path| entry("path", path.as_bytes())).into_iter();
    for more in written.chain(agents.map(|agent| entry("agent", agent))) {
        let shown = String::from_utf8_lossy(&more.value).chars().take(20).collect::<String>();
        let answer = service.limit(&of_client(more)).await;
        assert_eq!(answer.map(|answer| answer.overall_code()), Ok(Code::OverLimit), "{shown}");
    }
    // Of a long name its digest is counted, and more than Envoy can be made to send is denied.
    let mut named =
        async |client: String| service.limit(&request(vec![descriptor("client", &client)])).await.unwrap();
    for remaining in [2, 1, 0] {
        assert_eq!(told(&named(long.clone()).await), [(Code::Ok, 3, remaining)]);
    }
    assert_eq!(named(long.clone()).await.overall_code(), Code::OverLimit);
    assert_eq!(told(&named(format!("{long}b")).await), [(Code::Ok, 3, 2)], "another one");
    assert_eq!(named("x".repeat(2 << 20)).await.overall_code(), Code::OverLimit);
    let units = Descriptor { hits_addend: Some(Hits { value: u64::MAX }), ..descriptor("client", "b") };
    assert_eq!(service.limit(&request(vec![units])).await.unwrap().overall_code(), Code::OverLimit);
}

/// As many entries as Envoy's configuration may have, and more than anybody's has.
#[tokio::test]
async fn many_descriptors_and_entries_are_counted_and_too_many_are_denied() {
    let mut service = start().await;
    let with_entries = |count: usize| {
        let other = |number| Entry { key: format!("key{number}"), value: b"x".to_vec() };
        let client = Entry { key: "client".into(), value: b"a".to_vec() };
        let entries = (1..count).map(other).chain([client]).collect();
        request(vec![Descriptor { entries, ..Descriptor::default() }])
    };
    for (count, code) in
        [(33, Code::Ok), (65, Code::Ok), (256, Code::Ok), (2, Code::OverLimit), (257, Code::OverLimit)]
    {
        assert_eq!(service.limit(&with_entries(count)).await.unwrap().overall_code(), code, "{count}");
    }
    for (count, code) in [(256, Code::Ok), (257, Code::OverLimit)] {
        let many = request(vec![descriptor("nobody", "x"); count]);
        assert_eq!(service.limit(&many).await.unwrap().overall_code(), code, "{count}");
    }
}
