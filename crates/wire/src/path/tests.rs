//! How each way to read a path reads it, as tables.

use super::*;
use proptest::prelude::*;

#[test]
fn fault_54_variants_of_a_path_have_one_form() {
    for variant in [
        "/a",
        "/a/",
        "//a",
        "/%61",
        "/a;x",
        "/a;x=1/",
        "/./a",
        "/b/../a",
        "/a?q=/b",
        "/a#f",
        "/a//",
        "/%2e/a",
        "/b/%2E%2e/a",
        "/;p/a",
    ] {
        assert_eq!(normal_form(variant.as_bytes()).unwrap(), &b"/a"[..], "{variant}");
    }
    for (path, form) in
        [("/", "/"), ("//", "/"), ("/a/..", "/"), ("/%c3%a9", "/%C3%A9"), ("/a..b/c", "/a..b/c")]
    {
        assert_eq!(normal_form(path.as_bytes()).unwrap(), form.as_bytes(), "{path}");
    }
}

/// Frameworks decode a path before they look for its handler, so that a client may escape what it likes.
#[test]
fn fault_54_a_character_has_one_spelling_whether_it_is_escaped_or_not() {
    for (spellings, form) in [
        (&["/things:cancel", "/things%3Acancel", "/things%3acancel"][..], "/things:cancel"),
        (&["/@me", "/%40me", "/%40%6De"], "/@me"),
        (&["/c++/(x),y='z'!&$", "/c%2B%2b/%28x%29%2Cy%3D%27z%27%21%26%24"], "/c++/(x),y='z'!&$"),
        (&["/caf\u{e9}", "/caf%c3%a9", "/caf%C3%A9"], "/caf%C3%A9"),
        (&["/[id]|{x}^`", "/%5Bid%5d%7C%7bx}^%60"], "/%5Bid%5D%7C%7Bx%7D%5E%60"),
        (&["/a b", "/a%20b"], "/a%20b"),
        (&["/a%3Bb"], "/a%3Bb"),
        (&["/a%2ab"], "/a%2Ab"),
        (&["/a*b"], "/a*b"),
        (&["/a%3fb"], "/a%3Fb"),
        (&["/a%253Ab"], "/a%253Ab"),
    ] {
        for path in spellings {
            assert_eq!(String::from_utf8_lossy(&readings(path.as_bytes()).first), form, "{path}");
            assert_eq!(String::from_utf8_lossy(&normal_form(path.as_bytes()).unwrap()), form, "{path}");
        }
    }
    assert_eq!(&*readings(b"/caf\xe9").first, b"/caf%E9", "bytes that are no text");
    assert_eq!(one_spelling(b"/a%zz%"), b"/a%zz%", "what is no escape stays");
}

#[test]
fn fault_54_ambiguous_paths_are_refused() {
    for (path, error) in [
        ("", PathError::NotAbsolute),
        ("a", PathError::NotAbsolute),
        ("*", PathError::NotAbsolute),
        ("/a%2Fb", PathError::EncodedSeparator),
        ("/a%5cb", PathError::EncodedSeparator),
        ("/a\\b", PathError::EncodedSeparator),
        ("/a%00", PathError::ControlCharacter),
        ("/a\u{7f}", PathError::ControlCharacter),
        ("/a%", PathError::BrokenEscape),
        ("/a%zz", PathError::BrokenEscape),
        ("/..", PathError::AboveRoot),
        ("/a/../../b", PathError::AboveRoot),
    ] {
        assert_eq!(normal_form(path.as_bytes()), Err(error), "{path}");
    }
}

#[test]
fn fault_54_any_path_has_a_reading_and_separators_in_doubt_have_two() {
    for (path, first, other) in [
        ("/pay", "/pay", None),
        ("//pay/", "/pay", None),
        ("/a%2fb", "/a%2Fb", Some("/a/b")),
        ("/a%5cb", "/a%5Cb", Some("/a/b")),
        ("/a\\b", "/a\\b", Some("/a/b")),
        ("/public/..%2fadmin", "/public/..%2Fadmin", Some("/admin")),
        ("/pay%00.html", "/pay%00.html", Some("/pay")),
        ("/pay\0x", "/pay\0x", Some("/pay")),
        ("/a%0Ab", "/a%0Ab", None),
        ("/a%zz", "/a%25zz", None),
        ("/a%", "/a%25", None),
        ("/%2", "/%252", None),
        ("/%zz/..%2fpay", "/%25zz/..%2Fpay", Some("/pay")),
        ("/%%36%31", "/%2561", None),
        ("/../../pay", "/pay", None),
        ("http://host/pay?x", "/pay", None),
        ("https://host:1?x=/y", "/", None),
        ("*", "*", None),
        ("", "", None),
        ("pay?x", "pay", None),
        ("/50%25", "/50%25", None),
    ] {
        let found = readings(path.as_bytes());
        assert_eq!(String::from_utf8_lossy(&found.first), first, "{path}");
        assert_eq!(found.other.as_deref(), other.map(str::as_bytes), "{path}");
    }
}

#[test]
fn fault_54_what_is_sent_on_has_no_dot_segments_and_else_every_byte_that_came() {
    for same in [
        "/",
        "//",
        "/a/",
        "//a//b/",
        "/a/%41;v=1/",
        "/v1%2e0/x;y=1",
        "/file.%2Etar/x;y",
        "/a%2e/b",
        "/a..b/...",
        "/;p/a",
        "/api/exchanges/%2F/x",
        "/@scope%2fname",
        "/a%5Cb\\c",
        "/a;x=%2Fb",
    ] {
        assert_eq!(without_dot_segments(same.as_bytes()).unwrap(), same.as_bytes(), "{same}");
    }
    for (path, sent) in [
        ("/public/../admin/x", "/admin/x"),
        ("/public/%2e%2E/admin/x;v=1/", "/admin/x;v=1/"),
        ("/public/..;a/admin/%78", "/admin/%78"),
        ("/a/./b", "/a/b"),
        ("/a/.", "/a/"),
        ("/a/b/..", "/a/"),
        ("/a/..", "/"),
        ("/a//../b", "/b"),
        ("//a/../b", "//b"),
        ("/a//b/../c", "/a//c"),
        ("/a/;p/../b", "/b"),
        ("/a%2Fb/../c", "/c"),
    ] {
        let found = without_dot_segments(path.as_bytes()).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), sent, "{path}");
    }
    for (path, error) in [
        ("*", PathError::NotAbsolute),
        ("/public/..%2fadmin", PathError::EncodedSeparator),
        ("/public%2f..%2fadmin", PathError::EncodedSeparator),
        ("/public/%2e%2e%5Cadmin", PathError::EncodedSeparator),
        ("/public\\..\\admin", PathError::EncodedSeparator),
        ("/public/..;x%2fadmin", PathError::EncodedSeparator),
        ("/public;x=%2f../admin", PathError::EncodedSeparator),
        ("/a%2f.", PathError::EncodedSeparator),
        ("/a%2Fb%00", PathError::ControlCharacter),
        ("/a%2Fb%zz", PathError::BrokenEscape),
        ("/a/../..", PathError::AboveRoot),
        ("/;p/..", PathError::AboveRoot),
    ] {
        assert_eq!(without_dot_segments(path.as_bytes()), Err(error), "{path}");
    }
}

#[test]
fn fault_54_dot_segments_and_parameters_are_read_as_names_too() {
    for (path, literal) in [
        ("/api/../x", &["/api/../x"][..]),
        ("/api/%2e%2e/x", &["/api/../x"]),
        ("//api//..//x/", &["/api/../x"]),
        ("/u/;x/pay", &["/u/;x/pay"]),
        ("/pay;x", &["/pay;x"]),
        ("/a/.", &["/a/."]),
        ("/api%2F..%2Fx", &["/api/../x"]),
        ("/api/..%2f..%2fx", &["/api/../../x"]),
        ("/a;b%2Fc", &["/a;b%2Fc", "/a;b/c"]),
        ("/api\\..\\x", &["/api/../x"]),
        ("/a%2Fb", &[]),
        ("//a//b/", &[]),
        ("/a.b/..c", &[]),
        ("/", &[]),
    ] {
        let found = readings(path.as_bytes());
        let shown: Vec<_> = found.literal.iter().map(|path| String::from_utf8_lossy(path)).collect();
        assert_eq!(shown, literal, "{path}");
    }
}

proptest! {
    #[test]
    fn fault_54_what_is_sent_on_is_read_as_what_came(path in "/[a-b./;%0-9A-F\\\\]{0,24}|/([.]{1,2}|%2[eEfF]|[a/;]){0,9}") {
        if let Ok(sent) = without_dot_segments(path.as_bytes()) {
            let (came, sent_is) = (readings(path.as_bytes()), readings(&sent));
            prop_assert_eq!(&came.first, &sent_is.first);
            prop_assert_eq!(&without_dot_segments(&sent).unwrap(), &sent);
            let plain = plain_escapes(&sent);
            prop_assert_eq!(&readings(&plain), &sent_is);
            // Nobody can climb in it, whatever is a separator to whom.
            let separated = separated(&decode(&sent).0);
            let mut parts = separated.split(|byte| *byte == b'/');
            prop_assert!(!parts.any(|part| matches!(name(part), b"." | b"..")));
        }
    }

    #[test]
    fn what_has_a_normal_form_has_one_reading_but_for_what_vanishes(path in "/[a-c./;%0-9A-F?]{0,24}") {
        if let Ok(form) = normal_form(path.as_bytes()) {
            let found = readings(path.as_bytes());
            prop_assert_eq!((&found.first, &found.other), (&form, &None));
            prop_assert!(found.literal.len() <= 1);
        }
    }

    #[test]
    fn readings_are_of_one_path(path in prop::collection::vec(any::<u8>(), 0..64)) {
        let path = [b"/", &path[..]].concat();
        let found = readings(&path);
        let (first, other) = (found.first.clone(), found.other.clone());
        prop_assert!(found.literal.len() <= 2);
        for literal in &found.literal {
            let again = readings(literal).first;
            prop_assert!(again == first || other.as_ref().is_some_and(|other| **other == *again));
        }
        let all: Vec<_> = found.all().collect();
        prop_assert!(all.iter().enumerate().all(|(index, one)| !all[..index].contains(one)));
    }

    #[test]
    fn readings_are_their_own_first_readings(path in prop::collection::vec(any::<u8>(), 0..64)) {
        let path = [b"/", &path[..]].concat();
        let found = readings(&path);
        prop_assert_eq!(readings(&found.first).first, &*found.first);
        if let Some(other) = found.other {
            prop_assert_eq!(readings(&other).first, &*other);
        }
    }

    #[test]
    fn a_normal_form_is_its_own_normal_form(path in "/[a-c./;%0-9A-F?]{0,24}") {
        if let Ok(form) = normal_form(path.as_bytes()) {
            prop_assert_eq!(normal_form(&form).unwrap(), &*form);
        }
    }

    #[test]
    fn one_spelling_is_its_own(path in prop::collection::vec(any::<u8>(), 0..64)) {
        let spelt = compared(&path).0;
        prop_assert_eq!(one_spelling(&spelt), spelt);
    }

    #[test]
    fn any_bytes_have_a_form_or_an_error(path in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(form) = normal_form(&path) {
            prop_assert!(form.starts_with(b"/"));
            prop_assert!(!form.windows(2).any(|pair| pair == b"//"));
        }
    }
}
