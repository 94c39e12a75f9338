//! Header fields on their way to a server and back.

use super::*;

fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

fn about(edits: &FieldEdits, is_trusted: bool) -> Onward<'_> {
    let peer = "[::ffff:10.0.0.1]:5".parse().expect("an address");
    let (trace, received) = (TraceContext::root(1, 2), Version::HTTP_11);
    Onward { peer, is_tls: false, is_trusted, trace, received, prefix: "", edits }
}

#[test]
fn fields_of_the_connection_and_those_it_names_stay_there() {
    let mut sent = fields(&[
        ("connection", "close, x-mine, content-length, te, host"),
        ("x-mine", "1"),
        ("keep-alive", "5"),
        ("te", "gzip, Trailers"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "x"),
        ("content-length", "3"),
        ("host", "a"),
        ("x-yours", "2"),
    ]);
    strip_hop_by_hop(&mut sent);
    let left = fields(&[("te", "trailers"), ("content-length", "3"), ("host", "a"), ("x-yours", "2")]);
    assert_eq!(sent, left);
}

#[test]
fn each_field_that_a_client_may_not_state_is_taken_off_also_where_it_is_the_only_one() {
    let connection = HOP_BY_HOP.into_iter().chain(["connection"]);
    let proxys = ["forwarded", "x-real-ip", "x-forwarded-port", "x_forwarded_for", "tracestate"];
    for name in connection.chain(proxys) {
        // With a length there are no trailers.
        let mut sent = fields(&[(name, "5"), ("content-length", "0")]);
        onward(&mut sent, &about(&FieldEdits::default(), false));
        assert!(!sent.contains_key(name), "{name}");
    }
    for name in ["x-forwarded-for", "x-forwarded-proto", "x-request-id", "traceparent"] {
        let mut sent = fields(&[(name, "5")]);
        onward(&mut sent, &about(&FieldEdits::default(), false));
        assert!(sent.get_all(name).iter().all(|value| value != "5"), "{name}");
    }
    let cookies = fields(&[("cookie", "a=1"), ("cookie", "b=2")]);
    let seen = SeenFields { cookie: true, ..SeenFields::default() };
    assert_eq!(SeenFields::of(&cookies), seen, "nothing else is looked for");
}

#[test]
fn the_longest_address_is_told_whole() {
    for text in ["ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::ffff:255.255.255.255", "255.255.255.255"] {
        let address: IpAddr = text.parse().expect("an address");
        assert_eq!(address_value(address), text);
    }
}

#[test]
fn the_state_of_another_trace_does_not_go_on_with_a_new_one() {
    const PARENT: (&str, &str) = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03");
    const STATE: (&str, &str) = ("tracestate", "vendor=1");
    let sent = |pairs: &[(&'static str, &'static str)]| {
        let mut sent = fields(pairs);
        let trace = trace(&sent, [5, 6, 7]);
        onward(&mut sent, &Onward { trace, ..about(&FieldEdits::default(), false) });
        assert_eq!(sent.get_all("traceparent").iter().count(), 1);
        (sent["traceparent"].to_str().unwrap().to_owned(), sent.get_all("tracestate").iter().count())
    };
    let child = "00-0af7651916cd43dd8448eb211c80319c-0000000000000007-03".to_owned();
    assert_eq!(sent(&[PARENT, STATE, ("tracestate", "other=2")]), (child, 2));
    let root = ("00-00000000000000050000000000000006-0000000000000007-02".to_owned(), 0);
    let other = ("traceparent", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    for new in [
        &[STATE][..],
        &[("traceparent", "garbage"), STATE],
        &[PARENT, other, STATE],
        &[PARENT, PARENT, STATE],
    ] {
        assert_eq!(sent(new), root, "{new:?}");
    }
}

#[test]
fn a_server_is_told_what_is_stripped_off_its_paths_by_all_proxies_that_are_trusted() {
    for (stated, is_trusted, expected) in [
        (&[][..], true, "/api"),
        (&[("x-forwarded-prefix", "/outer/")], true, "/outer/api"),
        (&[("x-forwarded-prefix", "/evil")], false, "/api"),
    ] {
        let mut sent = fields(stated);
        onward(&mut sent, &Onward { prefix: "/api", ..about(&FieldEdits::default(), is_trusted) });
        assert_eq!(sent.get_all("x-forwarded-prefix").iter().collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn fault_49_what_only_a_proxy_may_state_is_taken_off_what_a_client_sent() {
    let stated = [
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "bank"),
        ("x-forwarded-prefix", "/evil"),
        ("x_forwarded_port", "6"),
        ("x-real-ip", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("x-request-id", "mine"),
        ("x_forwarded_for", "6.6.6.6"),
        ("x_user", "root"),
        ("x.user", "root"),
        ("x.forwarded.for", "6.6.6.6"),
        ("x-real.ip", "6.6.6.6"),
        ("x!request~id", "mine"),
        ("transfer_encoding", "chunked"),
        ("content.length", "6"),
        ("x_mine", "1"),
        ("x.mine", "1"),
        ("host", "a"),
    ];
    let user = (HeaderName::from_static("x-user"), HeaderValue::from_static("nobody"));
    let edits = FieldEdits { set: vec![user], ..FieldEdits::default() };
    let mut from_client = fields(&stated);
    onward(&mut from_client, &about(&edits, false));
    assert_eq!(from_client["x-forwarded-for"], "10.0.0.1");
    assert_eq!(from_client["x-forwarded-proto"], "http");
    assert_eq!(from_client["x-forwarded-host"], "a");
    assert_eq!(from_client["x-request-id"], "00000000000000000000000000000001");
    for name in ["x-real-ip", "forwarded", "x-forwarded-prefix"] {
        assert!(!from_client.contains_key(name), "{name}");
    }
    let mut marked: Vec<&str> = from_client
        .keys()
        .map(HeaderName::as_str)
        .filter(|name| name.contains(['_', '.', '!', '~']))
        .collect();
    marked.sort_unstable();
    let expected = (vec!["x.mine", "x_mine"], &HeaderValue::from_static("nobody"));
    assert_eq!((marked, &from_client["x-user"]), expected);
    let mut from_proxy = fields(&stated);
    onward(&mut from_proxy, &about(&edits, true));
    let chain: Vec<&HeaderValue> = from_proxy.get_all("x-forwarded-for").iter().collect();
    assert_eq!(chain, ["6.6.6.6, 10.0.0.1"]);
    assert_eq!(
        ["x-forwarded-proto", "x-request-id", "x-forwarded-prefix"].map(|name| &from_proxy[name]),
        ["https", "mine", "/evil"]
    );
    assert_eq!(from_proxy["via"], "1.1 tidegate");
}

#[test]
fn fault_49_a_chain_of_addresses_is_one_line() {
    let lines =
        [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", ""), ("x-forwarded-for", "7.7.7.7 , 8.8.8.8 ")];
    let mut from_proxy = fields(&lines);
    onward(&mut from_proxy, &about(&FieldEdits::default(), true));
    let chain: Vec<&HeaderValue> = from_proxy.get_all("x-forwarded-for").iter().collect();
    assert_eq!(chain, ["6.6.6.6, 7.7.7.7 , 8.8.8.8, 10.0.0.1"]);
}

#[test]
fn a_tag_that_was_weakened_on_its_way_is_strong_again() {
    let mut sent = fields(&[("if-match", "W/\"a\", \"b\""), ("if-match", "*"), ("if-none-match", "W/\"a\"")]);
    strengthen_tags(&mut sent);
    assert_eq!(sent.get_all("if-match").iter().collect::<Vec<_>>(), ["\"a\", \"b\"", "*"]);
    assert_eq!(sent["if-none-match"], "W/\"a\"");
}

#[test]
fn a_servers_date_stays_unless_there_are_two() {
    let mut reply = fields(&[("date", "Mon, 01 Jan 2024 00:00:00 GMT"), ("age", "100")]);
    back(&mut reply, &FieldEdits::default());
    assert_eq!(reply["date"], "Mon, 01 Jan 2024 00:00:00 GMT");
    reply.append("date", HeaderValue::from_static("Mon, 01 Jan 2024 00:00:01 GMT"));
    back(&mut reply, &FieldEdits::default());
    assert!(!reply.contains_key("date"));
}

#[test]
fn a_server_says_how_long_it_keeps_a_connection() {
    for (said, expected) in [
        ("timeout=5", Some(5)),
        ("max=100, Timeout = 15", Some(15)),
        ("timeout=-1", None),
        ("5", None),
        ("max=100", None),
    ] {
        assert_eq!(idle_time(&fields(&[("keep-alive", said)])), expected.map(Duration::from_secs), "{said}");
    }
    assert_eq!(idle_time(&fields(&[])), None);
}

#[test]
fn via_names_the_protocol_in_which_the_request_came() {
    for (received, said) in [(Version::HTTP_10, "1.0 tidegate"), (Version::HTTP_2, "2.0 tidegate")] {
        let mut sent = fields(&[("via", "1.0 fred")]);
        onward(&mut sent, &Onward { received, ..about(&FieldEdits::default(), false) });
        assert_eq!(sent.get_all("via").iter().collect::<Vec<_>>(), ["1.0 fred", said]);
    }
}

#[test]
fn edits_remove_then_set_then_add() {
    let name = HeaderName::from_static("a");
    let pair = |text| (name.clone(), HeaderValue::from_static(text));
    let edits = FieldEdits { remove: vec![name.clone()], set: vec![pair("2")], add: vec![pair("3")] };
    let mut map = fields(&[("a", "0"), ("b", "1")]);
    edit(&mut map, &edits);
    let left: Vec<&HeaderValue> = map.get_all("a").iter().collect();
    assert_eq!(left, ["2", "3"]);
    assert_eq!(map["b"], "1");
}
