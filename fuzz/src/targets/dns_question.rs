//! Any bytes are a question about a name or none, and a question gets a reply that fits.

use std::net::IpAddr;

use tidegate_wire::dns::{Answer, NotAQuestion, Outcome, Record, read, refusal, reply};

pub(super) fn run(data: &[u8]) {
    match read(data) {
        Ok(question) => {
            assert!(
                question.name.len() < 255 && !question.name.bytes().any(|byte| byte.is_ascii_uppercase())
            );
            let records = vec![Record::Address(IpAddr::from([10, 0, 0, 1])); data.len() % 100];
            let answer = Answer { outcome: Outcome::Found, records, zone: "internal", ttl: 30 };
            let written = reply(&question, &answer, true);
            assert!(written.len() <= 1_232 && written[..2] == data[..2] && written[2] & 0x80 != 0);
        }
        Err(NotAQuestion::Answer(head, outcome)) => assert_eq!(refusal(head, outcome).len(), 12),
        Err(NotAQuestion::Silence) => {}
    }
}
