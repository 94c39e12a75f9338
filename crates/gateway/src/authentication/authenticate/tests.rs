//! What is taken off requests, and in which ways they must prove whose they are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;
use crate::config::GatewayConfig;

fn request(uri: &str, fields: &[(&'static str, &str)]) -> Parts {
    let mut request = http::Request::builder().uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn taken(places: Vec<KeyPlace>, request: &mut Parts) -> Result<Option<String>, &'static str> {
    let auth = KeyAuth { places, challenges: Vec::new(), route: "a".into(), scope: None };
    let stated = auth.take(request).map_err(|refusal| refusal.word())?;
    Ok(stated.map(|text| String::from_utf8(text).unwrap()))
}

#[test]
fn a_key_is_taken_off_every_place_and_the_first_counts() {
    let field = || KeyPlace::Field(HeaderName::from_static("x-api-key"));
    let parameter = || KeyPlace::Parameter("key".into());
    let mut parts = request("/a?x=1&k%65y=second&y", &[("x-api-key", " first ")]);
    assert_eq!(taken(vec![field(), parameter()], &mut parts), Ok(Some("first".to_owned())));
    assert_eq!((parts.uri.to_string().as_str(), parts.headers.len()), ("/a?x=1&y", 0));
    let mut parts = request("http://h/a?key=k", &[]);
    assert_eq!(taken(vec![field(), parameter()], &mut parts), Ok(Some("k".to_owned())));
    assert_eq!(parts.uri, "http://h/a");
    let mut parts = request("/", &[("authorization", "Bearer abc")]);
    assert_eq!(taken(vec![KeyPlace::Basic], &mut parts), Ok(None));
    assert!(parts.headers.contains_key(AUTHORIZATION), "of another scheme, it is the application's");
    assert_eq!(taken(vec![KeyPlace::Basic, KeyPlace::Bearer], &mut parts), Ok(Some("abc".to_owned())));
    assert!(!parts.headers.contains_key(AUTHORIZATION));
    for (pair, key) in [("me:k", "k"), ("k:", "k"), (":k:x", "k:x")] {
        let value = format!("bAsic {}", STANDARD.encode(pair));
        let mut parts = request("/", &[("authorization", &value)]);
        assert_eq!(taken(vec![KeyPlace::Basic], &mut parts), Ok(Some(key.to_owned())), "{pair}");
    }
}

#[test]
fn fault_59_a_key_that_is_there_twice_is_none() {
    let field = || vec![KeyPlace::Field(HeaderName::from_static("x-api-key"))];
    let parameter = || vec![KeyPlace::Parameter("key".into())];
    let mut parts = request("/", &[("x-api-key", "a"), ("x-api-key", "a")]);
    assert_eq!(taken(field(), &mut parts), Err("malformed"));
    assert_eq!(taken(parameter(), &mut request("/?key=a&key=a", &[])), Err("malformed"));
    let mut parts = request("/", &[("authorization", "Bearer a"), ("authorization", "Basic Yjo=")]);
    assert_eq!(taken(vec![KeyPlace::Bearer], &mut parts), Err("malformed"));
    for hostile in ["", " ", &"x".repeat(MAX_TEXT + 1)] {
        assert_eq!(taken(field(), &mut request("/", &[("x-api-key", hostile)])), Ok(None));
    }
    for hostile in ["Basic", "Basic !", "Basic YQ==", "Basic Og=="] {
        let mut parts = request("/", &[("authorization", hostile)]);
        assert_eq!(taken(vec![KeyPlace::Basic], &mut parts), Ok(None));
        assert!(parts.headers.is_empty(), "what nobody has verified reaches no server: {hostile}");
    }
}

fn jwt(token_in: &[&str], forward: bool) -> Auth {
    let route = json!({
        "name": "a", "upstream": "a", "auth": "jwt",
        "jwt": {"issuer": "a", "keys_url": "http://127.0.0.1:1/keys", "token_in": token_in, "forward": forward},
    });
    let upstream = json!({"name": "a", "servers": ["http://127.0.0.1:1"]});
    let config = GatewayConfig::check(&[upstream], &[route], &[]).unwrap();
    config.routes[0].auth.clone().unwrap()
}

fn token(auth: &Auth, request: &mut Parts) -> Result<Option<String>, &'static str> {
    let token = auth.take(request, false).token.map_err(|refusal| refusal.word())?;
    Ok(token.map(|text| String::from_utf8(text).unwrap()))
}

fn left<'f>(request: &'f Parts, name: &str) -> Vec<&'f str> {
    request.headers.get_all(name).iter().map(|line| line.to_str().unwrap()).collect()
}

#[test]
fn fault_52_a_token_is_taken_off_every_place_and_the_first_counts() {
    let auth = jwt(&["cookie:session", "query:access_token", "protocol:access_token", "bearer"], false);
    let all = [
        ("cookie", "a=1; session=cookie"),
        ("sec-websocket-protocol", "access_token, protocol"),
        ("authorization", "Bearer bearer"),
    ];
    for (target, fields, expected) in [
        ("/?access_token=query", &all[..], Some("cookie")),
        ("/?access_token=query", &all[1..], Some("query")),
        ("/", &all[1..], Some("protocol")),
        ("/", &all[2..], Some("bearer")),
        ("/", &[][..], None),
    ] {
        let mut request = request(target, fields);
        assert_eq!(token(&auth, &mut request), Ok(expected.map(str::to_owned)), "{target} {fields:?}");
        assert_eq!(request.uri, "/");
        assert!(left(&request, "authorization").is_empty());
        assert!(left(&request, "sec-websocket-protocol").is_empty());
        assert!(left(&request, "cookie").iter().all(|line| *line == "a=1"), "{fields:?}");
    }
    assert!(auth.is_in_target() && !jwt(&["cookie:session"], false).is_in_target());
    // Where it is not looked for, it is the application's.
    let mut elsewhere = request("/?access_token=query", &all);
    assert_eq!(token(&jwt(&["cookie:other"], false), &mut elsewhere), Ok(None));
    assert_eq!((elsewhere.uri.to_string().as_str(), elsewhere.headers.len()), ("/?access_token=query", 3));
}

#[test]
fn fault_59_a_token_that_is_there_twice_or_too_long_is_none() {
    let places = ["cookie:t", "query:t", "protocol:t", "bearer"];
    let auth = jwt(&places, false);
    for (target, fields) in [
        ("/", &[("cookie", "t=a; t=a")][..]),
        ("/?t=a&t=a", &[][..]),
        ("/", &[("sec-websocket-protocol", "t, a, t, a")][..]),
        ("/", &[("authorization", "Bearer a"), ("authorization", "Bearer a")][..]),
        // Also where another place has one.
        ("/?t=a&t=a", &[("cookie", "t=a")][..]),
    ] {
        assert_eq!(token(&auth, &mut request(target, fields)), Err("malformed"), "{target} {fields:?}");
    }
    let long = "x".repeat(MAX_TOKEN_BYTES + 1);
    let mut request =
        request("/", &[("authorization", &format!("Bearer {long}")), ("cookie", &format!("t={long}"))]);
    assert_eq!(token(&auth, &mut request), Ok(None));
    assert!(request.headers.is_empty(), "and it goes no further");
}

#[test]
fn a_token_that_servers_are_sent_stays_where_it_is_and_no_other_does() {
    let auth = jwt(&["bearer", "cookie:t"], true);
    let mut both = request("/", &[("authorization", "Bearer a"), ("cookie", "b=1; t=unverified")]);
    assert_eq!(token(&auth, &mut both), Ok(Some("a".to_owned())));
    assert_eq!((left(&both, "authorization"), left(&both, "cookie")), (vec!["Bearer a"], vec!["b=1"]));
    let mut cookie = request("/", &[("cookie", "b=1"), ("cookie", "t=a")]);
    assert_eq!(token(&auth, &mut cookie), Ok(Some("a".to_owned())));
    assert_eq!(left(&cookie, "cookie"), ["b=1", "t=a"]);
}

/// What a route says that names several ways.
fn several(field: &str, ways: &[&str]) -> Auth {
    let mut route = json!({"name": "a", "upstream": "a"});
    route[field] = json!(ways);
    for way in ways {
        match *way {
            "key" => route["key_in"] = json!(["header:x-api-key"]),
            "jwt" => route["jwt"] = json!({"issuer": "a", "keys_url": "http://127.0.0.1:1/keys"}),
            "certificate" => route["certificate"] = json!({"names": ["machine"]}),
            _ => route["forward_auth"] = json!({"upstream": "a"}),
        }
    }
    let upstream = json!({"name": "a", "servers": ["http://127.0.0.1:1"]});
    let config = GatewayConfig::check(&[upstream], &[route], &[]).unwrap();
    config.routes[0].auth.clone().unwrap()
}

fn orders(words: &[&'static str]) -> Vec<Vec<&'static str>> {
    if words.is_empty() {
        return vec![Vec::new()];
    }
    let beginning_with = |place: usize| {
        let mut rest = words.to_vec();
        let first = rest.remove(place);
        orders(&rest).into_iter().map(move |rest| [vec![first], rest].concat())
    };
    (0..words.len()).flat_map(beginning_with).collect()
}

fn word(way: &Auth) -> &'static str {
    match way {
        Auth::Key(_) => "key",
        Auth::Jwt(_) => "jwt",
        Auth::Certificate(_) => "certificate",
        Auth::Forward(_) => "forward",
        Auth::Any { .. } | Auth::All { .. } => "a list",
    }
}

/// Every order of two or more ways, with every number of keys, tokens and certificates that a request may have.
#[test]
fn fault_46_of_any_way_the_first_that_is_there_decides_and_of_all_none_is_left_out() {
    const ALL: [&str; 4] = ["key", "jwt", "certificate", "forward"];
    let mut tried = 0;
    for choice in 0..16_usize {
        let chosen: Vec<&str> = ALL
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| (choice >> *bit) & 1 == 1)
            .map(|(_, it)| it)
            .collect();
        for ways in orders(&chosen) {
            let is_good = ways.iter().position(|way| *way == "forward").is_none_or(|at| at + 1 == ways.len());
            if ways.len() < 2 || !is_good {
                continue;
            }
            let (any, all) = (several("auth_any", &ways), several("auth_all", &ways));
            for case in 0..18_usize {
                let (keys, tokens, certificate) = (case % 3, case / 3 % 3, case / 9 == 1);
                let fields =
                    [vec![("x-api-key", "k"); keys], vec![("authorization", "Bearer t"); tokens]].concat();
                let has = |way: &&str| match *way {
                    "key" => keys == 1,
                    "jwt" => tokens == 1,
                    "certificate" => certificate,
                    _ => true,
                };
                let is_unclear = keys == 2 && ways.contains(&"key") || tokens == 2 && ways.contains(&"jwt");
                let of_any = ways.iter().find(|way| has(way)).map(|way| vec![*way]).ok_or("no_credential");
                for (auth, expected) in [(&any, of_any), (&all, Ok(ways.clone()))] {
                    let mut request = request("/", &fields);
                    let mut stated = auth.take(&mut request, certificate);
                    let demanded = auth.demanded(&mut stated).map_err(|refusal| refusal.word());
                    let demanded = demanded.map(|ways| ways.iter().map(word).collect::<Vec<_>>());
                    let expected = if is_unclear { Err("malformed") } else { expected };
                    assert_eq!(demanded, expected, "{ways:?}: {fields:?}, certificate {certificate}");
                    if !is_unclear {
                        assert_eq!(
                            request.headers.contains_key("x-api-key"),
                            keys > 0 && !ways.contains(&"key")
                        );
                        let is_jwt = ways.contains(&"jwt");
                        assert_eq!(request.headers.contains_key("authorization"), tokens > 0 && !is_jwt);
                    }
                    tried += 1;
                }
            }
        }
    }
    assert_eq!(tried, 27 * 18 * 2, "orders of two or more ways with forward at the end, cases, lists");
}

#[test]
fn a_token_that_nobody_verifies_is_sent_to_no_server() {
    for (ways, stays) in [(["key", "jwt"], false), (["jwt", "key"], true)] {
        for (field, stays) in [("auth_any", stays), ("auth_all", true)] {
            let mut route = json!({"name": "a", "upstream": "a", "key_in": ["header:x-api-key"]});
            route[field] = json!(ways);
            route["jwt"] = json!({"issuer": "a", "keys_url": "http://127.0.0.1:1/keys", "forward": true});
            let upstream = json!({"name": "a", "servers": ["http://127.0.0.1:1"]});
            let config = GatewayConfig::check(&[upstream], &[route], &[]).unwrap();
            let auth = config.routes[0].auth.as_ref().unwrap();
            let mut request = request("/", &[("x-api-key", "k"), ("authorization", "Bearer t")]);
            drop(auth.take(&mut request, false));
            assert_eq!(request.headers.contains_key("authorization"), stays, "{field} {ways:?}");
            assert!(!request.headers.contains_key("x-api-key"));
        }
    }
}

#[test]
fn of_several_proofs_the_later_counts_and_nobody_may_state_what_was_not_proved() {
    let machine = |auth: &Auth| {
        let Auth::Certificate(way) = &auth.ways()[0] else { panic!("{auth:?}") };
        way.verify(Some("machine")).unwrap()
    };
    let any = several("auth_any", &["certificate", "key"]);
    let identity = any.identity(vec![machine(&any)]).unwrap();
    let mut attributes = identity.attributes();
    attributes.sort_unstable();
    assert_eq!(attributes, [("api_key", None), ("consumer", Some("machine")), ("tier", None)]);
    let all = several("auth_all", &["certificate", "jwt"]);
    for (consumer, expected) in [(Some("alice"), "alice"), (None, "machine")] {
        let attributes = vec![(Arc::from(CONSUMER), consumer.map(Box::from))];
        let subject = consumer.map(Box::from);
        let person = Identity::Attested(Arc::new(Attested { subject, attributes, fields: Vec::new() }));
        let identity = all.identity(vec![machine(&all), person]).unwrap();
        assert_eq!((identity.consumer(), identity.client()), (Some(expected), Some(expected)));
        assert_eq!(identity.attributes(), [("consumer", Some(expected))]);
    }
}

#[test]
fn what_is_wrong_with_the_ways_of_a_route_is_a_mistake() {
    let jwt = json!({"issuer": "a", "keys_url": "http://127.0.0.1:1/keys"});
    let in_query = json!({"issuer": "a", "keys_url": "http://127.0.0.1:1/keys", "token_in": ["query:t"]});
    for (keys, pointer) in [
        (json!({"auth": "key", "auth_any": ["key", "jwt"], "jwt": jwt}), "auth_any"),
        (json!({"auth_any": ["key", "jwt"], "auth_all": ["key", "jwt"], "jwt": jwt}), "auth_all"),
        (json!({"auth": ["key", "jwt"], "jwt": jwt}), "auth"),
        (json!({"auth_any": "key"}), "auth_any"),
        (json!({"auth_any": []}), "auth_any"),
        (json!({"auth_all": ["key"]}), "auth_all"),
        (json!({"auth_any": ["key", "key"]}), "auth_any/1"),
        (json!({"auth_any": ["key", "none"]}), "auth_any/1"),
        (json!({"auth_any": ["forward", "key"], "forward_auth": {"upstream": "a"}}), "auth_any/0"),
        (json!({"auth_all": ["key", "jwt"]}), "jwt"),
        (json!({"auth_all": ["key", "certificate"]}), "certificate"),
        (
            json!({"auth_any": ["jwt", "certificate"], "jwt": jwt, "certificate": {"names": ["a"]}, "key_scope": "a"}),
            "key_scope",
        ),
        // One place for both is none for either.
        (json!({"auth_any": ["key", "jwt"], "jwt": jwt, "key_in": ["bearer"]}), "key_in/0"),
        (json!({"auth_any": ["key", "jwt"], "jwt": in_query, "key_in": ["bearer", "query:t"]}), "key_in/1"),
        (json!({"auth": "key", "key_scope": "a b"}), "key_scope"),
        (
            json!({"auth": "jwt", "jwt": {"issuer": "a", "keys_url": "http://a/k", "token_in": []}}),
            "jwt/token_in",
        ),
        (
            json!({"auth": "jwt", "jwt": {"issuer": "a", "keys_url": "http://a/k", "token_in": ["header:t"]}}),
            "jwt/token_in/0",
        ),
        (
            json!({"auth": "jwt", "jwt": {"issuer": "a", "keys_url": "http://a/k", "token_in": ["bearer", "query:t"], "forward": true}}),
            "jwt/token_in/1",
        ),
    ] {
        let mut route = json!({"name": "a", "upstream": "a"});
        route.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let upstream = json!({"name": "a", "servers": ["http://127.0.0.1:1"]});
        let mistakes = GatewayConfig::check(&[upstream], &[route], &[]).unwrap_err();
        assert_eq!(mistakes[0].pointer, format!("/route/0/{pointer}"), "{mistakes:?}");
    }
    // Beside tokens in the usual place, keys are looked for in their own only.
    let mut route = json!({"name": "a", "upstream": "a", "auth_any": ["key", "jwt"]});
    route["jwt"] = jwt;
    let upstream = json!({"name": "a", "servers": ["http://127.0.0.1:1"]});
    let config = GatewayConfig::check(&[upstream], &[route], &[]).unwrap();
    let Auth::Key(key) = &config.routes[0].ways()[0] else { panic!("{config:?}") };
    assert_eq!(key.places, [KeyPlace::Field(HeaderName::from_static("x-api-key"))]);
}
