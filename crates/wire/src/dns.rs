//! As much of DNS as a small server of its own names needs (RFC 1035; RFC 2782 for SRV; RFC 6891 for EDNS; RFC 2308
//! for what is not there): one question in, records out.
//!
//! ```text
//!   header 12 bytes │ question: name, type, class │ OPT, if it came
//!   reply:  the same question │ answers │ SOA, if none, or asked for │ addresses of SRV targets │ OPT, if it came
//! ```
//!
//! A message has one question, of class IN, and its name has no pointers, as every resolver writes it. A reply that is
//! longer than the asker takes goes without the addresses of SRV targets, or else without any record and says so: the
//! asker comes again by TCP.
//!
//! What a client asks and reads is in [`lookup`]. Deliberately absent: zone transfers, updates, signatures.

pub mod lookup;

use std::net::IpAddr;

use thiserror::Error;

/// Longest message by TCP.
pub const MAX_MESSAGE: usize = 65_535;
/// Longest reply by UDP to a question that does not offer room for more.
const PLAIN_UDP: usize = 512;
/// Longest reply by UDP, whatever the asker says: what passes without fragments.
const MAX_UDP: usize = 1_232;
const MAX_NAME: usize = 255;
const MAX_LABEL: usize = 63;

/// IPv4 addresses.
pub const A: u16 = 1;
/// The start of a zone.
pub const SOA: u16 = 6;
/// IPv6 addresses.
pub const AAAA: u16 = 28;
/// Services.
pub const SRV: u16 = 33;
/// Everything there is.
pub const ANY: u16 = 255;
const OPT: u16 = 41;
const IN: u16 = 1;
/// Types that stand for zone transfers and the like, from and to.
const TRANSFERS: [u16; 2] = [251, 254];
/// The upper bits of the outcome "this version of EDNS is not known", as an OPT record has them.
const BAD_VERSION: u8 = 1;

/// What a reply says of its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// The name is there, although perhaps nothing of the type that was asked for.
    Found = 0,
    /// The question is malformed.
    Malformed = 1,
    /// The name is not there.
    NoName = 3,
    /// Something other than a question was asked.
    NotImplemented = 4,
    /// The name is not one of this server's.
    Refused = 5,
}

/// A message that is no question, and whether it is worth a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotAQuestion {
    /// It is a reply, or too short to be answered.
    #[error("the message is no question")]
    Silence,
    /// A reply with this outcome and these first four bytes says so.
    #[error("the message is no question that can be answered: {1:?}")]
    Answer([u8; 4], Outcome),
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The message's number.
    id: [u8; 2],
    wants_recursion: bool,
    /// As it was written, with its type and class.
    raw: Vec<u8>,
    /// The name in lower case, without the last dot.
    pub name: String,
    /// The type of records that is asked for.
    pub kind: u16,
    edns: Option<Edns>,
}

/// What an OPT record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edns {
    /// The longest reply by UDP that the asker takes.
    size: u16,
    version: u8,
}

/// One record of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// An address.
    Address(IpAddr),
    /// A service at a name.
    Service {
        /// Lower ones first.
        priority: u16,
        /// Its share among equal ones.
        weight: u16,
        /// Its port.
        port: u16,
        /// The name that has its address, without the last dot.
        target: String,
        /// The address of that name.
        address: IpAddr,
    },
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it says of the question.
    pub outcome: Outcome,
    /// The records of the question's name.
    pub records: Vec<Record>,
    /// The zone that the name is of, without the last dot.
    pub zone: &'static str,
    /// How many seconds it may be kept.
    pub ttl: u32,
}

/// Reads a question.
///
/// # Errors
/// When the message is not a question, and what to do then.
pub fn read(message: &[u8]) -> Result<Question, NotAQuestion> {
    let Some((header, rest)) = message.split_first_chunk::<12>() else { return Err(NotAQuestion::Silence) };
    let [first, second, flags, ..] = *header;
    if flags & 0x80 != 0 {
        return Err(NotAQuestion::Silence);
    }
    let wrong = |outcome| NotAQuestion::Answer([first, second, header[2], header[3]], outcome);
    if flags & 0x78 != 0 {
        return Err(wrong(Outcome::NotImplemented));
    }
    let counts = [4, 6, 8, 10].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
    let malformed = || wrong(Outcome::Malformed);
    if counts[..3] != [1, 0, 0] {
        return Err(malformed());
    }
    let (name, length) = name(rest).ok_or_else(malformed)?;
    let fixed = rest.get(length..length + 4).ok_or_else(malformed)?;
    let kind = u16::from_be_bytes([fixed[0], fixed[1]]);
    if fixed[2..] != IN.to_be_bytes() {
        return Err(wrong(Outcome::Refused));
    }
    if (TRANSFERS[0]..=TRANSFERS[1]).contains(&kind) {
        return Err(wrong(Outcome::NotImplemented));
    }
    let additional = &rest[length + 4..];
    let edns = if counts[3] == 0 { None } else { edns(additional).ok_or_else(malformed)? };
    Ok(Question {
        id: [first, second],
        wants_recursion: flags & 1 != 0,
        raw: rest[..length + 4].to_vec(),
        name,
        kind,
        edns,
    })
}

/// A name in lower case, and how many bytes it takes.
fn name(bytes: &[u8]) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut at = 0;
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return (at <= MAX_NAME).then_some((text, at));
        }
        let label = bytes.get(at..at + length).filter(|_| length <= MAX_LABEL)?;
        at += length;
        if at > MAX_NAME {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        // A dot in a label would read like two labels.
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'.';
        if !label.iter().all(is_plain) {
            return None;
        }
        text.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    }
}

/// What an OPT record says, if the first additional record is one. `None`: it is cut.
fn edns(additional: &[u8]) -> Option<Option<Edns>> {
    let fixed: &[u8; 11] = additional.first_chunk()?;
    let length = usize::from(u16::from_be_bytes([fixed[9], fixed[10]]));
    additional.get(11..11 + length)?;
    let is_opt = fixed[0] == 0 && fixed[1..3] == OPT.to_be_bytes();
    Some(is_opt.then(|| Edns { size: u16::from_be_bytes([fixed[3], fixed[4]]), version: fixed[6] }))
}

/// The reply to what is no question.
#[must_use]
pub fn refusal([first, second, flags, _]: [u8; 4], outcome: Outcome) -> Vec<u8> {
    vec![first, second, 0x80 | (flags & 0x79), outcome as u8, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// The reply to `question`, for UDP or for TCP.
#[must_use]
pub fn reply(question: &Question, answer: &Answer, is_udp: bool) -> Vec<u8> {
    let most = match (is_udp, question.edns) {
        (false, _) => MAX_MESSAGE,
        (true, None) => PLAIN_UDP,
        (true, Some(edns)) => usize::from(edns.size).clamp(PLAIN_UDP, MAX_UDP),
    };
    let fits = |reply: &Vec<u8>| reply.len() <= most;
    let whole = Some(written(question, answer, Extent::Whole)).filter(fits);
    let answers = || Some(written(question, answer, Extent::Answers)).filter(fits);
    whole.or_else(answers).unwrap_or_else(|| written(question, answer, Extent::Cut))
}

/// How much of an answer is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All of it.
    Whole,
    /// Without the addresses of SRV targets, which the asker can ask for.
    Answers,
    /// Nothing, with the mark that says so.
    Cut,
}

fn written(question: &Question, answer: &Answer, extent: Extent) -> Vec<u8> {
    let is_cut = extent == Extent::Cut;
    let is_unknown_version = question.edns.is_some_and(|edns| edns.version > 0);
    let records: &[Record] = if is_cut || is_unknown_version { &[] } else { &answer.records };
    let glued = if extent == Extent::Whole { records } else { &[] };
    let targets = glued.iter().filter_map(|record| match record {
        Record::Service { target, address, .. } => Some((target, *address)),
        Record::Address(_) => None,
    });
    let is_authoritative = matches!(answer.outcome, Outcome::Found | Outcome::NoName);
    let has_soa = is_authoritative && answer.records.is_empty();
    // To a question for SOA it is the answer; to other questions it says for how long there is no record.
    let is_answer = has_soa && question.kind == SOA && question.name == answer.zone;
    let additional = targets.clone().count() + usize::from(question.edns.is_some());
    let flags = [
        0x80 | (u8::from(is_authoritative) << 2)
            | (u8::from(is_cut) << 1)
            | u8::from(question.wants_recursion),
        answer.outcome as u8,
    ];
    let mut out = [question.id, flags].concat();
    // Invariant: whoever answers bounds the records far below 65,536.
    let count = |number: usize| u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes();
    let (answers, authority) = (records.len() + usize::from(is_answer), usize::from(has_soa && !is_answer));
    for number in [1, answers, authority, additional] {
        out.extend(count(number));
    }
    out.extend(&question.raw);
    for record in records {
        // A pointer to the question's name.
        out.extend([0xc0, 12]);
        match record {
            Record::Address(address) => write_address(&mut out, *address, answer.ttl),
            Record::Service { priority, weight, port, target, .. } => {
                let mut data = [priority, weight, port].map(|number| number.to_be_bytes()).concat();
                write_name(&mut data, target);
                write_record(&mut out, SRV, answer.ttl, &data);
            }
        }
    }
    if has_soa {
        write_name(&mut out, answer.zone);
        let mut data = Vec::new();
        write_name(&mut data, &format!("ns.{}", answer.zone));
        write_name(&mut data, &format!("hostmaster.{}", answer.zone));
        // Serial, refresh, retry, expire; the last says how long an absence may be remembered.
        for number in [1, 3_600, 600, 86_400, answer.ttl] {
            data.extend(number.to_be_bytes());
        }
        write_record(&mut out, SOA, answer.ttl, &data);
    }
    for (target, address) in targets {
        write_name(&mut out, target);
        write_address(&mut out, address, answer.ttl);
    }
    if question.edns.is_some() {
        let [high, low] = u16::try_from(MAX_UDP).unwrap_or(u16::MAX).to_be_bytes();
        out.extend([0, 0, 41, high, low, if is_unknown_version { BAD_VERSION } else { 0 }, 0, 0, 0, 0, 0]);
    }
    out
}

fn write_address(out: &mut Vec<u8>, address: IpAddr, ttl: u32) {
    match address {
        IpAddr::V4(ip) => write_record(out, A, ttl, &ip.octets()),
        IpAddr::V6(ip) => write_record(out, AAAA, ttl, &ip.octets()),
    }
}

fn write_record(out: &mut Vec<u8>, kind: u16, ttl: u32, data: &[u8]) {
    out.extend([kind, IN].iter().flat_map(|number| number.to_be_bytes()));
    out.extend(ttl.to_be_bytes());
    // Invariant: names have at most 255 bytes, and nothing else is long.
    out.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(data);
}

/// Whether a name can be written: none of its parts is empty or too long, nor all of it.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.len() < MAX_NAME - 1 && name.split('.').all(|label| (1..=MAX_LABEL).contains(&label.len()))
}

/// Writes a name, of which [`is_name`] is true. Of another one, labels are cut.
fn write_name(out: &mut Vec<u8>, name: &str) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(MAX_LABEL)];
        out.push(u8::try_from(label.len()).unwrap_or(0));
        out.extend(label);
    }
    out.push(0);
}

#[cfg(test)]
mod tests;
