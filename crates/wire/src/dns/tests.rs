//! Questions, answers, and what is neither.

use super::*;

fn asked(name: &str, kind: u16, edns: Option<u16>) -> Vec<u8> {
    let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
    write_name(&mut message, name);
    message.extend([kind, IN].iter().flat_map(|number| number.to_be_bytes()));
    if let Some(size) = edns {
        let [high, low] = size.to_be_bytes();
        message.extend([0, 0, 41, high, low, 0, 0, 0, 0, 0, 0]);
    }
    message
}

fn addresses(count: u8) -> Answer {
    let records = (0..count).map(|last| Record::Address(IpAddr::from([10, 0, 0, last]))).collect();
    Answer { outcome: Outcome::Found, records, zone: "internal", ttl: 30 }
}

#[test]
fn a_question_is_read_and_answered() {
    let message = asked("Web.Internal", A, None);
    let question = read(&message).expect("a question");
    assert_eq!((&*question.name, question.kind, question.edns), ("web.internal", A, None));
    let reply = reply(&question, &addresses(2), true);
    assert_eq!(reply[..12], [0xab, 0xcd, 0x85, 0, 0, 1, 0, 2, 0, 0, 0, 0]);
    assert_eq!(reply[12..message.len()], message[12..]);
    let first = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 10, 0, 0, 0];
    assert_eq!(reply[message.len()..message.len() + 16], first);
}

#[test]
fn what_is_too_long_for_udp_is_cut_and_says_so() {
    for (edns, is_udp, is_cut) in
        [(None, true, true), (Some(512), true, true), (Some(4_096), true, false), (None, false, false)]
    {
        let question = read(&asked("web.internal", A, edns)).expect("a question");
        let reply = reply(&question, &addresses(60), is_udp);
        assert_eq!((reply[2] & 2 != 0, reply[7] == 0), (is_cut, is_cut), "{edns:?} {is_udp}");
        assert!(!is_udp || reply.len() <= 1_232);
    }
}

#[test]
fn addresses_of_targets_are_left_out_before_anything_is_cut() {
    let service = |number: u16| Record::Service {
        priority: 1,
        weight: 1,
        port: number,
        target: format!("backend-{number}.nodes.internal"),
        address: IpAddr::from([10, 0, 0, 1]),
    };
    for (count, answers, additional, is_cut) in [(2, 2, 2, false), (8, 8, 0, false), (12, 0, 0, true)] {
        let answer = Answer { records: (0..count).map(service).collect(), ..addresses(0) };
        let question = read(&asked("web.internal", SRV, None)).expect("a question");
        let reply = reply(&question, &answer, true);
        assert_eq!((reply[7], reply[11], reply[2] & 2 != 0), (answers, additional, is_cut), "{count}");
    }
}

#[test]
fn another_version_of_edns_is_told_so() {
    let mut message = asked("web.internal", A, Some(1_232));
    let version = message.len() - 5;
    message[version] = 1;
    let question = read(&message).expect("a question");
    let reply = reply(&question, &addresses(2), true);
    let end = &reply[reply.len() - 11..];
    assert_eq!((reply[3], reply[7], end[2], end[5]), (0, 0, 41, BAD_VERSION));
}

#[test]
fn an_absence_has_the_zones_start() {
    let question = read(&asked("none.internal", A, Some(1_232))).expect("a question");
    let answer = Answer { outcome: Outcome::NoName, ..addresses(0) };
    let reply = reply(&question, &answer, true);
    assert_eq!((reply[3], reply[6..12].to_vec()), (3, vec![0, 0, 0, 1, 0, 1]));
}

#[test]
fn what_is_no_question_is_told_so_or_left_alone() {
    let good = asked("web.internal", A, None);
    for length in 0..12 {
        assert_eq!(read(&good[..length]), Err(NotAQuestion::Silence));
    }
    let changed = |at: usize, byte: u8| {
        let mut message = good.clone();
        message[at] = byte;
        read(&message)
    };
    assert_eq!(changed(2, 0x80), Err(NotAQuestion::Silence), "a reply");
    let outcome = |read: Result<Question, NotAQuestion>| match read {
        Err(NotAQuestion::Answer(_, outcome)) => Some(outcome),
        _ => None,
    };
    assert_eq!(outcome(changed(2, 0x28)), Some(Outcome::NotImplemented), "an update");
    let last = good.len() - 1;
    assert_eq!(outcome(changed(last, 3)), Some(Outcome::Refused), "another class");
    assert_eq!(outcome(changed(last - 2, 252)), Some(Outcome::NotImplemented), "a zone transfer");
    for (at, byte) in [(5, 2), (5, 0), (7, 1), (9, 1), (11, 1), (12, 0xc0), (12, 64), (13, b'.'), (13, 0)] {
        assert_eq!(outcome(changed(at, byte)), Some(Outcome::Malformed), "{at} {byte}");
    }
    for length in 12..good.len() {
        assert_eq!(outcome(read(&good[..length])), Some(Outcome::Malformed), "{length}");
    }
    assert_eq!(refusal([1, 2, 1, 0], Outcome::Refused), [1, 2, 0x81, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
}
