//! For how long an answer of DNS holds, which the system's resolver does not say.
//!
//! ```text
//!   getaddrinfo ──> addresses, by whatever means this machine has for names
//!   the servers of /etc/resolv.conf, asked the same ──> the TTL, if one of these addresses is among theirs;
//!                                                       if they have others, the system is asked again after their TTL
//!                                                       or the time that was set, whichever is shorter
//! ```
//!
//! So the addresses are the system's in any case, and a name from a file, by mDNS or of a VPN client is what it is without
//! this: its TTL is not known. Requests do not wait for it: an answer is used at once, and its time is learned meanwhile.
//!
//! A forged reply could make an address be used for [`MOST`] at most, and needs the number and the port of a question that
//! is under way.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tidegate_wire::dns::lookup::{NameReply, question, read_reply};
use tidegate_wire::dns::{A, AAAA};
use tokio::net::UdpSocket;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// The shortest and the longest lifetime that are used, whatever DNS says.
pub(crate) const LEAST: Duration = Duration::from_secs(1);
pub(crate) const MOST: Duration = Duration::from_secs(3_600);

const SETTINGS: &str = "/etc/resolv.conf";
const MAX_SETTINGS_BYTES: u64 = 64 << 10;
/// As the C library has it.
const MAX_SERVERS: usize = 3;
const MAX_SUFFIXES: usize = 6;
const MAX_DOTS: usize = 15;
/// How long one server is waited for, and all of them for all forms of a name.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_IN_ALL: Duration = Duration::from_secs(3);
/// What a reply may be without more ado.
const MAX_REPLY: usize = 1_500;

const PORT: u16 = 53;

/// What `/etc/resolv.conf` says.
#[derive(Debug, PartialEq, Eq)]
struct ResolvConf {
    servers: Vec<IpAddr>,
    /// What is put behind names.
    suffixes: Vec<String>,
    /// So many dots make a name that is asked for as it is before anything is put behind it.
    dots: usize,
}

/// No server said anything of a name, so that asking again may help.
#[derive(Debug)]
pub(crate) struct NoServerAnswered;

/// How long it holds that `name` has these addresses; `None`: the servers do not know it. What they do not confirm holds for
/// `unconfirmed` at most.
pub(crate) async fn holds(
    name: &str,
    addresses: &[IpAddr],
    unconfirmed: Duration,
) -> Result<Option<Duration>, NoServerAnswered> {
    let settings = spawn_blocking(|| {
        let mut text = String::new();
        File::open(SETTINGS).ok()?.take(MAX_SETTINGS_BYTES).read_to_string(&mut text).ok()?;
        Some(read_settings(&text))
    });
    let Ok(Some(settings)) = settings.await else { return Ok(None) };
    let kind = if addresses.iter().any(IpAddr::is_ipv4) { A } else { AAAA };
    let asked = async {
        let mut is_answered = true;
        for form in forms(name, &settings) {
            match ask_each(&settings.servers, &form, kind, addresses).await {
                NameReply::Addresses { seconds, is_known } => {
                    let time = Duration::from_secs(seconds.into()).clamp(LEAST, MOST);
                    return Ok(Some(if is_known { time } else { time.min(unconfirmed) }));
                }
                NameReply::NoAddress => {}
                NameReply::Unusable => is_answered = false,
            }
        }
        if is_answered { Ok(None) } else { Err(NoServerAnswered) }
    };
    timeout(PATIENCE_IN_ALL, asked).await.unwrap_or(Err(NoServerAnswered))
}

/// The first usable reply of the servers to a question.
async fn ask_each(servers: &[IpAddr], name: &str, kind: u16, addresses: &[IpAddr]) -> NameReply {
    for server in servers {
        match ask(*server, name, kind, addresses).await {
            None | Some(NameReply::Unusable) => {}
            Some(reply) => return reply,
        }
    }
    NameReply::Unusable
}

fn read_settings(text: &str) -> ResolvConf {
    let mut settings = ResolvConf { servers: Vec::new(), suffixes: Vec::new(), dots: 1 };
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") if settings.servers.len() < MAX_SERVERS => {
                settings.servers.extend(words.next().and_then(|word| word.parse::<IpAddr>().ok()));
            }
            Some("search" | "domain") => {
                settings.suffixes = words.take(MAX_SUFFIXES).map(str::to_owned).collect();
            }
            Some("options") => {
                let dots = words.find_map(|word| word.strip_prefix("ndots:")?.parse::<usize>().ok());
                settings.dots = dots.unwrap_or(settings.dots).min(MAX_DOTS);
            }
            _ => {}
        }
    }
    if settings.servers.is_empty() {
        settings.servers.push(Ipv4Addr::LOCALHOST.into());
    }
    settings
}

/// The names that the C library asks for in place of `name`, in its order.
fn forms(name: &str, settings: &ResolvConf) -> Vec<String> {
    let bare = name.trim_end_matches('.');
    let long = settings.suffixes.iter().map(|suffix| format!("{bare}.{}", suffix.trim_end_matches('.')));
    let whole = bare.to_owned();
    if name.ends_with('.') {
        vec![whole]
    } else if bare.matches('.').count() >= settings.dots {
        std::iter::once(whole).chain(long).collect()
    } else {
        long.chain([whole]).collect()
    }
}

/// What a server says; `None`: nothing.
async fn ask(server: IpAddr, name: &str, kind: u16, addresses: &[IpAddr]) -> Option<NameReply> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Keyed by chance at each call.
    let [first, second, ..] = RandomState::new().hash_one(name).to_be_bytes();
    let Some(question) = question([first, second], name, kind) else { return Some(NameReply::NoAddress) };
    let exchange = async {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await.ok()?;
        socket.connect(SocketAddr::new(server, PORT)).await.ok()?;
        socket.send(&question).await.ok()?;
        let mut reply = [0; MAX_REPLY];
        loop {
            let length = socket.recv(&mut reply).await.ok()?;
            let reply = &reply[..length];
            if reply.starts_with(&[first, second]) && reply.get(2).is_some_and(|flags| flags & 0x80 != 0) {
                return Some(read_reply(reply, addresses));
            }
        }
    };
    timeout(PATIENCE, exchange).await.ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn settings_are_read_as_the_c_library_does() {
        let text = "# ours\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver 2001:db8::1\nsearch a.test b.test.\noptions edns0 ndots:2\n";
        let settings = read_settings(text);
        assert_eq!(settings.servers, addresses(&["192.0.2.1", "2001:db8::1"]));
        assert_eq!(forms("x", &settings), ["x.a.test", "x.b.test", "x"]);
        assert_eq!(forms("x.y.z", &settings), ["x.y.z", "x.y.z.a.test", "x.y.z.b.test"]);
        assert_eq!(forms("x.", &settings), ["x"]);
        let bare = read_settings("");
        assert_eq!((bare.servers, bare.dots), (addresses(&["127.0.0.1"]), 1));
    }
}
