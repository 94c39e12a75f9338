//! Host and path of a request: one form to route by, and what the upstream is asked for.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// The path that the upstream is asked for: as the client wrote it, unless that could be read in another
/// way than the route was found by. Then it is the normal form.
pub(crate) fn forwarded_path<'p>(raw: &'p str, normal: &'p str, strip: &str, add: &str) -> Cow<'p, str> {
    let is_ambiguous = raw.contains("//")
        || raw.split('/').any(|segment| {
            let name = segment.split(';').next().unwrap_or_default();
            let has_coded_dot = || name.as_bytes().windows(3).any(|three| three.eq_ignore_ascii_case(b"%2e"));
            name == "." || name == ".." || has_coded_dot()
        });
    let begins =
        |text: &str| text.strip_prefix(strip).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let path = if is_ambiguous || !begins(raw) { normal } else { raw };
    if strip.is_empty() && add.is_empty() {
        return Cow::Borrowed(path);
    }
    let rest = path.strip_prefix(strip).unwrap_or(path);
    match format!("{add}{rest}") {
        path if path.is_empty() => Cow::Borrowed("/"),
        path => Cow::Owned(path),
    }
}

/// A host in lower case, without its port and without a final dot; an address of version 6 as RFC 5952 writes it.
pub(crate) fn bare_host(host: &str) -> String {
    let end = match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') => colon,
        _ => host.len(),
    };
    let host = &host[..end];
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')?.parse::<Ipv6Addr>().ok());
    match address {
        Some(address) => format!("[{address}]"),
        None => host.trim_end_matches('.').to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_wire::path::normal_form;

    use super::*;

    #[test]
    fn hosts_lose_port_case_and_final_dot_and_addresses_have_one_form() {
        for (host, bare) in [
            ("A.Example:80", "a.example"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
            ("[0:0::0001]:80", "[::1]"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
            ("[::ffff:192.0.2.1]", "[::ffff:192.0.2.1]"),
            ("[v1.x]", "[v1.x]"),
            ("a.", "a"),
            ("", ""),
        ] {
            assert_eq!(bare_host(host), bare);
        }
    }

    #[test]
    fn fault_54_a_path_that_could_be_read_differently_is_forwarded_in_normal_form() {
        for (raw, strip, add, expected) in [
            ("/a/b/", "", "", "/a/b/"),
            ("/a/%41;v=1", "", "", "/a/%41;v=1"),
            ("//a/../b", "", "", "/b"),
            ("/x/%2e%2e/b", "", "", "/b"),
            ("/x/..;/b", "", "", "/b"),
            ("/api/b", "/api", "", "/b"),
            ("/api", "/api", "", "/"),
            ("/%61pi/b", "/api", "/v2", "/v2/b"),
            ("/b", "", "/v2", "/v2/b"),
        ] {
            let normal =
                String::from_utf8(normal_form(raw.as_bytes()).expect("a path").into_owned()).expect("text");
            assert_eq!(forwarded_path(raw, &normal, strip, add), expected, "{raw}");
        }
    }
}
