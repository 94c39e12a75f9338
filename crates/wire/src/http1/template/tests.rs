//! Tests of templates: variables, framing, refusals; what is rendered is a request.

use super::*;
use proptest::prelude::*;

struct Same(&'static [u8]);

impl Values for Same {
    fn append(&mut self, _: &Variable, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

fn render(template: &RequestTemplate, value: &'static [u8]) -> String {
    let mut out = Vec::new();
    template.render(&mut Same(value), &mut Vec::new(), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_request_without_variables_is_fixed() {
    let template = RequestTemplate::compile("GET", "h:1", "/x", &[], None).unwrap();
    assert_eq!(template.fixed(), Some(&b"GET /x HTTP/1.1\r\nHost: h:1\r\n\r\n"[..]));
    let headers = [("Host".to_owned(), "other".to_owned()), ("A".to_owned(), "b".to_owned())];
    let template = RequestTemplate::compile("POST", "h", "/", &headers, Some("{\"a\":{\"b\":1}}")).unwrap();
    assert_eq!(
        template.fixed(),
        Some(&b"POST / HTTP/1.1\r\nHost: other\r\nA: b\r\nContent-Length: 13\r\n\r\n{\"a\":{\"b\":1}}"[..])
    );
}

#[test]
fn values_cannot_break_the_framing() {
    let headers = [("X".to_owned(), "<{{row.x}}>".to_owned())];
    let template = RequestTemplate::compile("POST", "h", "/{{row.x}}", &headers, Some("{{row.x}}")).unwrap();
    assert_eq!(
        render(&template, b"a b\r\n"),
        "POST /a%20b%0D%0A HTTP/1.1\r\nHost: h\r\nX: <a b>\r\nContent-Length: 5\r\n\r\na b\r\n"
    );
}

#[test]
fn variables_are_parsed() {
    let text = "{{counter}} {{ counter % 10 }} {{random 1 6}} {{zipf 100 0.9}} {{row.id}} {{{{";
    let parsed = Text::parse(text).unwrap();
    assert_eq!(
        parsed.variables().cloned().collect::<Vec<_>>(),
        [
            Variable::Counter { modulo: 0 },
            Variable::Counter { modulo: 10 },
            Variable::Random { low: 1, high: 6 },
            Variable::Zipf { n: 100, s: 0.9 },
            Variable::Column("id".into()),
        ]
    );
    assert_eq!(parsed.0.last(), Some(&Piece::Literal(b" {{".to_vec())));
    for bad in [
        "{{counter",
        "{{}}",
        "{{counter % 0}}",
        "{{random 6 1}}",
        "{{zipf 0 1}}",
        "{{zipf 9 -1}}",
        "{{row.}}",
    ] {
        assert!(Text::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn bad_parts_are_refused() {
    let compile = |method, path, name: &str, value: &str| {
        RequestTemplate::compile(method, "h", path, &[(name.to_owned(), value.to_owned())], None)
    };
    assert!(matches!(compile("G T", "/", "A", "b"), Err(TemplateError::Method(_))));
    assert!(matches!(compile("GET", "x", "A", "b"), Err(TemplateError::Path(_))));
    assert!(matches!(compile("GET", "/ x", "A", "b"), Err(TemplateError::Path(_))));
    assert!(matches!(compile("GET", "/", "A:", "b"), Err(TemplateError::Field(_))));
    assert!(matches!(compile("GET", "/", "A", "b\r\nC: d"), Err(TemplateError::Field(_))));
    assert!(matches!(compile("GET", "/", "content-length", "1"), Err(TemplateError::Reserved(_))));
}

proptest! {
    #[test]
    fn what_is_rendered_is_a_request(path in "/[ -~]{0,20}", value in "[ -~]{0,20}", body in ".{0,40}") {
        let headers = [("X-Value".to_owned(), value)];
        if let Ok(template) = RequestTemplate::compile("PUT", "h", &path, &headers, Some(&body)) {
            let mut out = Vec::new();
            template.render(&mut Same("ü \n".as_bytes()), &mut Vec::new(), &mut out);
            let head = super::super::scan_request(&out, 1 << 16).unwrap().unwrap();
            prop_assert_eq!(head.length as u64 + head.content_length, out.len() as u64);
        }
    }
}
