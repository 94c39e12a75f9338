//! Places of a request where a credential can stand. What is read there is taken off the request, so that it goes no further.
//!
//! A value that stands in its place twice is none: another program could take the other one.
//!
//! Deliberately absent: which places a route looks at, and what is a credential.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use http::header::{
    AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue, REFERER, SEC_WEBSOCKET_PROTOCOL,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use tidegate_access::tokens::bearer;

use crate::response::refusal::Refusal;
use crate::routes::host::bare_host;

/// What stands in a place.
pub(crate) type PlacedText = Result<Option<Vec<u8>>, StandsTwice>;

/// The text of a key or of a token, if there is one, from all places of a request; or why it is refused.
pub(crate) type StatedText = Result<Option<Vec<u8>>, Refusal>;

/// There are two values, of which a server might take another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StandsTwice;

/// Takes off a field of its own.
pub(crate) fn of_field(fields: &mut HeaderMap, name: &HeaderName) -> PlacedText {
    let is_twice = fields.get_all(name).iter().nth(1).is_some();
    let value = fields.remove(name);
    if is_twice { Err(StandsTwice) } else { Ok(value.map(|value| value.as_bytes().to_vec())) }
}

/// Takes off `Authorization` of the scheme Bearer (RFC 6750), also where something else than a blank stands behind the scheme: that is no
/// token that anybody has issued, and is refused as such.
pub(crate) fn of_bearer(fields: &mut HeaderMap) -> PlacedText {
    of_authorization(fields, |value| {
        let token = bearer(value).or_else(|| after_scheme(value, "bearer"))?;
        Some(token.to_vec())
    })
}

/// Takes off `Authorization` of the scheme Basic (RFC 7617), of at most `most` bytes: the password, or the user's name if that is
/// empty. One that cannot be read is taken off, too, as an empty text: a server may read what this gateway cannot.
pub(crate) fn of_basic(fields: &mut HeaderMap, most: usize) -> PlacedText {
    of_authorization(fields, |value| {
        let encoded = after_scheme(value, "basic")?.trim_ascii();
        Some(basic(encoded, most).unwrap_or_default())
    })
}

/// Takes `Authorization` off if it is of the scheme that `read` reads.
fn of_authorization(fields: &mut HeaderMap, read: impl Fn(&[u8]) -> Option<Vec<u8>>) -> PlacedText {
    let mut values = fields.get_all(AUTHORIZATION).iter();
    let (value, other) = (values.next(), values.next());
    let text = value.and_then(|value| read(without_blanks_before(value.as_bytes())));
    if other.is_some() {
        return Err(StandsTwice);
    }
    if text.is_some() {
        fields.remove(AUTHORIZATION);
    }
    Ok(text)
}

/// Without blanks at the beginning, also those of other alphabets, which some servers strip.
fn without_blanks_before(text: &[u8]) -> &[u8] {
    let begin = text.iter().position(u8::is_ascii_graphic).unwrap_or(text.len());
    &text[begin..]
}

/// What stands after the name of a scheme, if it is this one. The name ends where a token does (RFC 9110, 5.6.2), whatever comes next.
fn after_scheme<'v>(authorization: &'v [u8], scheme: &str) -> Option<&'v [u8]> {
    let is_behind = |byte: &u8| !byte.is_ascii_alphanumeric() && !b"!#$%&'*+-.^_`|~".contains(byte);
    let (name, rest) = authorization.split_at_checked(scheme.len())?;
    (rest.first().is_none_or(is_behind) && name.eq_ignore_ascii_case(scheme.as_bytes())).then_some(rest)
}

/// The text of encoded credentials, if they can be read.
fn basic(encoded: &[u8], most: usize) -> Option<Vec<u8>> {
    if encoded.len() > 2 * most {
        return None;
    }
    let decoded = STANDARD.decode(encoded).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (user, password) = (&decoded[..colon], &decoded[colon + 1..]);
    Some(if password.is_empty() { user.to_vec() } else { password.to_vec() })
}

/// Takes a parameter off the query of a request's target, and off the one in `Referer`: the page that it comes from may have been
/// asked for by the same value.
pub(crate) fn of_parameter(request: &mut Parts, name: &str) -> PlacedText {
    for (_, line) in request.headers.iter_mut().filter(|(field, _)| **field == REFERER) {
        without_parameters(line, |parameter| parameter == name);
    }
    of_query(&mut request.uri, name)
}

/// Takes parameters off the query in `Referer` where that is a page of this host, as browsers name it to every route of the host. Other
/// hosts are told of no query, unless a page wants it so (`Referrer-Policy`).
pub(crate) fn of_referring_page(fields: &mut HeaderMap, host: &str, is_secret: impl Fn(&str) -> bool) {
    for (_, line) in fields.iter_mut().filter(|(field, _)| **field == REFERER) {
        if is_page_of(line.as_bytes(), host) {
            without_parameters(line, &is_secret);
        }
    }
}

/// Whether a URL is at this host, in the form of [`bare_host`], or names none.
fn is_page_of(url: &[u8], host: &str) -> bool {
    let colon = url.iter().position(|byte| matches!(byte, b':' | b'/' | b'?')).unwrap_or(url.len());
    let Some(behind) = url[colon..].strip_prefix(b"://") else { return true };
    let end = behind.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(behind.len());
    let authority = behind[..end].rsplit(|byte| *byte == b'@').next().unwrap_or_default();
    bare_host(&String::from_utf8_lossy(authority)) == host
}

fn of_query(uri: &mut Uri, name: &str) -> PlacedText {
    let Some((values, kept)) = uri.query().and_then(|query| split_off(query.as_bytes(), |key| key == name))
    else {
        return Ok(None);
    };
    let kept = String::from_utf8_lossy(&kept);
    let target = if kept.is_empty() { uri.path().to_owned() } else { format!("{}?{kept}", uri.path()) };
    let mut parts = uri.clone().into_parts();
    // Invariant: what is left of a target's own path and query is one.
    parts.path_and_query = PathAndQuery::try_from(target).ok();
    if let Ok(without) = Uri::from_parts(parts) {
        *uri = without;
    }
    one_of(values)
}

/// Takes parameters off the query of a URL in a field.
fn without_parameters(url: &mut HeaderValue, are_they: impl Fn(&str) -> bool) {
    let Some(mark) = url.as_bytes().iter().position(|byte| *byte == b'?') else { return };
    let (before, query) = (&url.as_bytes()[..mark], &url.as_bytes()[mark + 1..]);
    let Some((_, kept)) = split_off(query, are_they) else { return };
    let without = if kept.is_empty() { before.to_vec() } else { [before, &b"?"[..], &kept[..]].concat() };
    if let Ok(without) = HeaderValue::from_bytes(&without) {
        *url = without;
    }
}

/// The values of some parameters, however their names are written, and the rest of the query; `None`: there is none of them.
fn split_off(query: &[u8], are_they: impl Fn(&str) -> bool) -> Option<(Vec<Vec<u8>>, Vec<u8>)> {
    let (mut values, mut kept) = (Vec::new(), Vec::new());
    for part in query.split(|byte| *byte == b'&') {
        match form_urlencoded::parse(part).next() {
            Some((key, value)) if are_they(&key) => values.push(value.into_owned().into_bytes()),
            _ => kept.push(part),
        }
    }
    (!values.is_empty()).then(|| (values, kept.join(&b"&"[..])))
}

/// Takes a cookie off `Cookie`, of which HTTP/2 may have several lines. The others stay in their order. Blanks around its name are
/// none of it: servers strip them, and would find a second cookie of the name, which nobody has verified.
pub(crate) fn of_cookie(fields: &mut HeaderMap, name: &str) -> PlacedText {
    let (mut values, mut kept) = (Vec::new(), Vec::new());
    for line in fields.get_all(COOKIE) {
        for pair in line.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii) {
            let equals = pair.iter().position(|byte| *byte == b'=');
            match equals.filter(|equals| bare_name(&pair[..*equals]) == name.as_bytes()) {
                Some(equals) => values.push(pair[equals + 1..].trim_ascii().to_vec()),
                None if pair.is_empty() => {}
                None => kept.push(pair),
            }
        }
    }
    if values.is_empty() {
        return Ok(None);
    }
    let line = HeaderValue::from_bytes(&kept.join(&b"; "[..])).ok();
    put(fields, COOKIE, line);
    one_of(values)
}

/// Takes a subprotocol's name and the item after it off what a client of WebSocket offers: that item stands there. If nothing else was
/// offered, the second value is the name, which the client must be answered: one that offers subprotocols and is told of none breaks
/// off, as browsers do.
///
/// The name is no value. Where it is offered twice, with a value or without, another program could take another item for the value; no
/// client may offer it so (RFC 6455, 4.1).
pub(crate) fn of_subprotocol(fields: &mut HeaderMap, name: &str) -> (PlacedText, Option<HeaderValue>) {
    let lines = fields.get_all(SEC_WEBSOCKET_PROTOCOL).iter().map(HeaderValue::as_bytes);
    let items = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let mut items = items.filter(|item| !item.is_empty()).peekable();
    let (mut values, mut kept, mut names) = (Vec::new(), Vec::new(), 0);
    while let Some(item) = items.next() {
        if item != name.as_bytes() {
            kept.push(item);
            continue;
        }
        names += 1;
        match items.next_if(|next| *next != name.as_bytes()) {
            Some(value) => values.push(value.to_vec()),
            // A name without anything after it is an offer as any other.
            None => kept.push(item),
        }
    }
    if values.is_empty() {
        return (if names > 1 { Err(StandsTwice) } else { Ok(None) }, None);
    }
    let alone = if kept.is_empty() { HeaderValue::from_str(name).ok() } else { None };
    let line = HeaderValue::from_bytes(&kept.join(&b", "[..])).ok();
    put(fields, SEC_WEBSOCKET_PROTOCOL, line);
    (if names > 1 { Err(StandsTwice) } else { one_of(values) }, alone)
}

/// A cookie's name without what stands around it and can be in no name: blanks, also those of other alphabets.
fn bare_name(name: &[u8]) -> &[u8] {
    let name = without_blanks_before(name);
    let end = name.iter().rposition(u8::is_ascii_graphic).map_or(0, |last| last + 1);
    &name[..end]
}

/// Puts one line in the place of all lines of a field, or none if it is empty.
fn put(fields: &mut HeaderMap, name: HeaderName, line: Option<HeaderValue>) {
    match line.filter(|line| !line.is_empty()) {
        Some(line) => drop(fields.insert(name, line)),
        None => drop(fields.remove(name)),
    }
}

fn one_of(mut values: Vec<Vec<u8>>) -> PlacedText {
    if values.len() > 1 { Err(StandsTwice) } else { Ok(values.pop()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: HeaderName, lines: &[&str]) -> HeaderMap {
        let line = |line: &&str| (name.clone(), HeaderValue::from_str(line).expect("a field's value"));
        lines.iter().map(line).collect()
    }

    fn left(fields: &HeaderMap, name: HeaderName) -> Vec<&str> {
        fields.get_all(name).iter().map(|line| line.to_str().expect("a text")).collect()
    }

    #[test]
    fn a_cookie_is_taken_off_however_servers_find_its_name() {
        let text = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("a field's value");
        for (line, placed, kept) in [
            (&b"session =x; a=1"[..], Ok(Some(b"x".to_vec())), Some("a=1")),
            (b"a=1; session\t= x", Ok(Some(b"x".to_vec())), Some("a=1")),
            (b"session\xa0=x", Ok(Some(b"x".to_vec())), None),
            (b"session=good; session =forged", Err(StandsTwice), None),
            (b"session\xa0=forged; session=good; b=2", Err(StandsTwice), Some("b=2")),
            // Other names, and what has none.
            (b"my session=x; session; Session=x; =x", Ok(None), Some("my session=x; session; Session=x; =x")),
        ] {
            let mut fields: HeaderMap = [(COOKIE, text(line))].into_iter().collect();
            assert_eq!(of_cookie(&mut fields, "session"), placed, "{line:?}");
            assert_eq!(left(&fields, COOKIE), kept.into_iter().collect::<Vec<_>>(), "{line:?}");
        }
    }

    #[test]
    fn basic_credentials_are_taken_off_whether_they_can_be_read_or_not() {
        let text = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("a field's value");
        for (value, placed) in [
            (&b"Basic dTprZXk="[..], Some(&b"key"[..])),
            // Servers decode these, whatever stands after the scheme.
            (b"basic\tdTprZXk=", Some(b"key")),
            (b"BASIC  dTprZXk=", Some(b"key")),
            (b"\xa0Basic dTprZXk=", Some(b"key")),
            (b"Basic\xa0dTprZXk=", Some(b"")),
            (b"Basic", Some(b"")),
            (b"Basic dTprZXk", Some(b"")),
            (b"Basic dTpr ZXk=", Some(b"")),
            (b"Basic a2V5", Some(b"")),
            (b"Basic:dTprZXk=", Some(b"")),
            // Of other schemes, and of none.
            (b"Basic-2 dTprZXk=", None),
            (b"Bearer dTprZXk=", None),
            (b"dTprZXk=", None),
        ] {
            let mut fields: HeaderMap = [(AUTHORIZATION, text(value))].into_iter().collect();
            assert_eq!(of_basic(&mut fields, 512), Ok(placed.map(<[u8]>::to_vec)), "{value:?}");
            assert_eq!(fields.contains_key(AUTHORIZATION), placed.is_none(), "{value:?}");
        }
    }

    #[test]
    fn a_bearer_is_taken_off_whatever_stands_behind_its_scheme() {
        for (value, placed) in [
            (&b"Bearer t"[..], Some(&b"t"[..])),
            (b"bearer\tt", Some(b"t")),
            (b"\xa0Bearer\xa0t", Some(b"t")),
            (b"Bearer", Some(b"")),
            (b"Bearer\xc2\xa0t", Some(b"\xc2\xa0t")),
            (b"Bearer:t", Some(b":t")),
            (b"BearerX t", None),
            (b"Basic t", None),
        ] {
            let line = HeaderValue::from_bytes(value).expect("a field's value");
            let mut fields: HeaderMap = [(AUTHORIZATION, line)].into_iter().collect();
            assert_eq!(of_bearer(&mut fields), Ok(placed.map(<[u8]>::to_vec)), "{value:?}");
            assert_eq!(fields.contains_key(AUTHORIZATION), placed.is_none(), "{value:?}");
        }
    }

    #[test]
    fn a_subprotocol_is_taken_out_of_all_lines_and_the_others_stay() {
        for (lines, value, kept, alone) in [
            (&["access_token, abc"][..], Some("abc"), &[][..], true),
            (&["chat, access_token, abc"], Some("abc"), &["chat"], false),
            (&["access_token,abc,chat , v2"], Some("abc"), &["chat, v2"], false),
            (&["chat", "access_token", "abc"], Some("abc"), &["chat"], false),
            // The name, and nothing after it; other names.
            (&["chat, access_token"], None, &["chat, access_token"], false),
            (&["Access_token, abc"], None, &["Access_token, abc"], false),
        ] {
            let mut fields = fields(SEC_WEBSOCKET_PROTOCOL, lines);
            let (placed, answered) = of_subprotocol(&mut fields, "access_token");
            assert_eq!(placed, Ok(value.map(|value| value.as_bytes().to_vec())), "{lines:?}");
            assert_eq!(left(&fields, SEC_WEBSOCKET_PROTOCOL), kept, "{lines:?}");
            assert_eq!(answered, alone.then(|| HeaderValue::from_static("access_token")), "{lines:?}");
        }
        for (line, kept) in [
            ("access_token, a, access_token, b", None),
            // Not a token that is called `access_token`, and an offer that is one.
            ("access_token, access_token, a", Some("access_token")),
            ("access_token, a, access_token", Some("access_token")),
            ("access_token, access_token", Some("access_token, access_token")),
        ] {
            let mut fields = fields(SEC_WEBSOCKET_PROTOCOL, &[line]);
            assert_eq!(of_subprotocol(&mut fields, "access_token").0, Err(StandsTwice), "{line}");
            assert_eq!(left(&fields, SEC_WEBSOCKET_PROTOCOL), kept.into_iter().collect::<Vec<_>>(), "{line}");
        }
    }

    #[test]
    fn parameters_are_taken_off_the_page_that_a_request_comes_from_if_it_is_of_the_same_host() {
        for (page, told) in [
            ("https://shop.example/a?token=x&b=1&key=y", "https://shop.example/a?b=1"),
            ("http://Shop.Example.:8080?token=x", "http://Shop.Example.:8080"),
            ("http://me:p@shop.example/?%74oken=x", "http://me:p@shop.example/"),
            ("/a?u=http://other.example/&token=x", "/a?u=http://other.example/"),
            ("https://shop.example.other/a?token=x", "https://shop.example.other/a?token=x"),
            ("https://shop.example@other.example/?token=x", "https://shop.example@other.example/?token=x"),
            ("https://shop.example/a?tokens=x", "https://shop.example/a?tokens=x"),
        ] {
            let mut fields = fields(REFERER, &[page]);
            of_referring_page(&mut fields, "shop.example", |name| ["key", "token"].contains(&name));
            assert_eq!(left(&fields, REFERER), [told]);
        }
    }

    #[test]
    fn a_parameter_is_taken_off_however_it_is_written() {
        for (target, value, left) in [
            ("/a?token=x", Some("x"), "/a"),
            ("/a?b=1&%74oken=x%2Ey&c", Some("x.y"), "/a?b=1&c"),
            ("/a?tokens=x", None, "/a?tokens=x"),
            ("/a", None, "/a"),
        ] {
            let mut uri: Uri = target.parse().expect("a target");
            assert_eq!(of_query(&mut uri, "token"), Ok(value.map(|value| value.as_bytes().to_vec())));
            assert_eq!(uri, left);
        }
        for (url, left) in [
            (&b"https://a.example/a?b=1&%74oken=x&c"[..], &b"https://a.example/a?b=1&c"[..]),
            (b"/a?token=x&token=y", b"/a"),
            (b"/\xe9?tokens=x?token=x", b"/\xe9?tokens=x?token=x"),
            (b"/a", b"/a"),
        ] {
            let mut url = HeaderValue::from_bytes(url).expect("a field's value");
            without_parameters(&mut url, |name| name == "token");
            assert_eq!(url.as_bytes(), left);
        }
        let mut uri: Uri = "/a?token=x&token=x".parse().expect("a target");
        assert_eq!(of_query(&mut uri, "token"), Err(StandsTwice));
        assert_eq!(uri, "/a");
    }
}
