//! Tokens that are accepted and tokens that are refused: the example of RFC 7515, and each claim and each key by itself.
//! Tokens of a real issuer are in the tests of the binary.

use serde_json::json;

use super::*;

/// The token of RFC 7515, A.3, and one of the same claims that PyJWT has signed with a secret.
const HS256: &str = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.-oqjY_jk0JqnRIUwm4deQ605KhaJQ6x_pQebvdljiCU";
const ES256: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
const EXPIRES: u64 = 1_300_819_380;

fn secret() -> Value {
    json!({"kty": "oct", "k": "AyM1SysPpbyUfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"})
}

fn point() -> Value {
    json!({
        "kty": "EC", "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    })
}

fn keys(keys: Value, is_private: bool) -> Result<JwtKeys, JwtKeysError> {
    JwtKeys::read(json!({"keys": keys}).to_string().as_bytes(), is_private)
}

fn rules() -> JwtRules {
    JwtRules { issuer: "joe".into(), audiences: Vec::new(), leeway_seconds: 60, required: Vec::new() }
}

fn at(seconds: u64) -> Wall {
    Wall(seconds * SECOND)
}

#[test]
fn a_token_of_the_standard_and_one_of_a_secret_are_good_until_they_end_give_or_take_the_leeway() {
    let keys = keys(json!([secret(), point()]), true).unwrap();
    for token in [HS256, ES256] {
        let claims = rules().verify(token.as_bytes(), &keys, at(EXPIRES + 59)).unwrap();
        assert_eq!(claims.text("http://example.com/is_root"), Ok(Some("true".into())));
        assert_eq!(claims.expires(), EXPIRES as f64);
        let late = rules().verify(token.as_bytes(), &keys, at(EXPIRES + 60));
        assert_eq!(late, Err(JwtDenial::Expired));
        let mut other = token.to_owned().into_bytes();
        let last = other.len() - 5;
        other[last] = if other[last] == b'A' { b'B' } else { b'A' };
        assert_eq!(rules().verify(&other, &keys, at(0)), Err(JwtDenial::Signature));
    }
}

#[test]
fn fault_50_a_key_is_good_for_its_own_algorithm_only() {
    let named = |mut key: Value| {
        key["kid"] = json!("a");
        key
    };
    let of_es256 = keys(json!([named(point())]), true).unwrap();
    let only_point = keys(json!([point()]), true).unwrap();
    assert_eq!(rules().verify(HS256.as_bytes(), &only_point, at(0)), Err(JwtDenial::UnknownKey));
    // {"alg":"HS256","kid":"a"} and {"alg":"none"}, with and without a signature.
    for head in ["eyJhbGciOiJIUzI1NiIsImtpZCI6ImEifQ", "eyJhbGciOiJub25lIn0", "e30", "", "!"] {
        for signature in ["", "AAAA"] {
            let token = format!("{head}.{}.{signature}", HS256.split('.').nth(1).unwrap());
            assert_eq!(rules().verify(token.as_bytes(), &of_es256, at(0)), Err(JwtDenial::Malformed));
        }
    }
    for hostile in ["", ".", "..", "...", &"a".repeat(MAX_TOKEN_BYTES + 1)] {
        assert_eq!(rules().verify(hostile.as_bytes(), &of_es256, at(0)), Err(JwtDenial::Malformed));
    }
}

#[test]
fn keys_of_one_name_are_all_tried_and_sets_may_be_large() {
    // {"alg":"ES256"} without a kid, and the point of somebody else: the generator of P-256 (FIPS 186-4, D.1.2.3).
    let mut other = point();
    other["x"] = json!("axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY");
    other["y"] = json!("T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU");
    let named = |mut key: Value, name: &str| {
        key["kid"] = json!(name);
        key
    };
    let set = keys(json!([named(other.clone(), "a"), named(point(), "a")]), false).unwrap();
    assert_eq!(set.find(Some("a"), Algorithm::ES256).map(|found| found.len()), Ok(2));
    let header = decode_header(ES256).unwrap();
    assert_eq!(set.find(header.kid.as_deref(), header.alg).map(|_| ()), Err(JwtDenial::UnknownKey));
    let mut many: Vec<Value> = (0..150).map(|number| named(other.clone(), &number.to_string())).collect();
    many.push(named(other, "a"));
    many.push(named(point(), "a"));
    assert_eq!(keys(json!(many), false).unwrap().len(), 152);
}

#[test]
fn keys_for_something_else_are_passed_over_and_a_published_secret_is_none() {
    let with = |mut key: Value, name: &str, value: &str| {
        key[name] = json!(value);
        key
    };
    assert_eq!(keys(json!([secret()]), false), Err(JwtKeysError::NoKey));
    assert_eq!(keys(json!([with(secret(), "k", "c2hvcnQ")]), true), Err(JwtKeysError::NoKey));
    for other in [with(point(), "use", "enc"), with(point(), "alg", "ES384"), json!({"kty": "X"}), json!(1)] {
        assert_eq!(keys(json!([other]), true), Err(JwtKeysError::NoKey), "{other}");
        assert_eq!(keys(json!([other, with(point(), "alg", "ES256")]), false).unwrap().len(), 1);
    }
    assert_eq!(JwtKeys::read(b"[]", true), Err(JwtKeysError::NoSet));
    assert_eq!(keys(json!(vec![point(); MAX_KEYS + 1]), true), Err(JwtKeysError::TooMany(MAX_KEYS + 1)));
}

#[test]
fn claims_are_what_the_rules_ask_for() {
    let rules = JwtRules {
        audiences: vec!["api".into(), "web".into()],
        required: vec![
            ("scope".into(), "read".into()),
            ("scp".into(), "b".into()),
            ("/org/id".into(), ANY_VALUE.into()),
        ],
        ..rules()
    };
    let good = json!({
        "iss": "joe", "exp": 1_000, "aud": "api", "scope": "write read", "scp": "a b", "org": {"id": 7},
    });
    let checked = |change: Value| {
        let mut claims = good.as_object().unwrap().clone();
        claims.extend(change.as_object().unwrap().clone());
        rules.check(&Claims(claims), at(500))
    };
    assert_eq!(checked(json!({})), Ok(()));
    assert_eq!(checked(json!({"aud": ["x", "web"], "nbf": 560, "exp": 440.5})), Ok(()));
    for (change, denial) in [
        (json!({"exp": 440}), JwtDenial::Expired),
        (json!({"nbf": 561}), JwtDenial::NotYet),
        (json!({"exp": "1000"}), JwtDenial::Claim("exp".into())),
        (json!({"nbf": null}), JwtDenial::Claim("nbf".into())),
        (json!({"iss": ["joe"]}), JwtDenial::Issuer),
        (json!({"iss": "joe "}), JwtDenial::Issuer),
        (json!({"aud": ["x"]}), JwtDenial::Audience),
        (json!({"aud": []}), JwtDenial::Audience),
        (json!({"aud": null}), JwtDenial::Audience),
        (json!({"scope": "readall"}), JwtDenial::Required("scope".into())),
        (json!({"scp": "ab"}), JwtDenial::Required("scp".into())),
        (json!({"org": {}}), JwtDenial::Required("/org/id".into())),
    ] {
        assert_eq!(checked(change.clone()), Err(denial), "{change}");
    }
    let mut without_end = good.as_object().unwrap().clone();
    without_end.remove("exp");
    assert_eq!(rules.check(&Claims(without_end), at(500)), Err(JwtDenial::Claim("exp".into())));
}

#[test]
fn a_claim_is_one_line_of_text_or_none() {
    let claims =
        json!({"a": "x", "n": 7, "l": ["p", "q", 1], "o": {"a/b": ["z"]}, "c": "a\nb", "m": {}, "z": null});
    let claims = Claims(claims.as_object().unwrap().clone());
    let text = |name: &str| claims.text(name).map(|text| text.map(String::from));
    for (name, expected) in [("a", "x"), ("n", "7"), ("l", "p,q,1"), ("/o/a~1b", "z"), ("/o/a~1b/0", "z")] {
        assert_eq!(text(name), Ok(Some(expected.to_owned())), "{name}");
    }
    assert_eq!([text("none"), text("z"), text("/o/x")], [Ok(None), Ok(None), Ok(None)]);
    for name in ["c", "m"] {
        assert_eq!(text(name), Err(JwtDenial::Claim(name.into())));
    }
    let long = json!({"a": "x".repeat(MAX_CLAIM_BYTES + 1)});
    assert!(Claims(long.as_object().unwrap().clone()).text("a").is_err());
}

#[test]
fn a_challenge_is_one_quoted_line_whatever_a_claim_is_called() {
    assert_eq!(JwtDenial::Missing.challenge(), "Bearer");
    let expired = "Bearer error=\"invalid_token\", error_description=\"the token has expired\"";
    assert_eq!(JwtDenial::Expired.challenge(), expired);
    let odd = JwtDenial::Required("a\"b\\\r\nü".into()).challenge();
    assert!(odd.contains("claim a?b???? is"), "{odd}");
}
