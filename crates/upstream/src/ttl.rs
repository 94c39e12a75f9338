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
    servers: Vec<SocketAddr>,
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
    let asked = ask_as(settings, name, addresses, unconfirmed);
    timeout(PATIENCE_IN_ALL, asked).await.unwrap_or(Err(NoServerAnswered))
}

/// As [`holds`], by these settings.
async fn ask_as(
    mut settings: ResolvConf,
    name: &str,
    addresses: &[IpAddr],
    unconfirmed: Duration,
) -> Result<Option<Duration>, NoServerAnswered> {
    let kind = if addresses.iter().any(IpAddr::is_ipv4) { A } else { AAAA };
    let mut is_answered = true;
    for form in forms(name, &settings) {
        match ask_each(&mut settings.servers, &form, kind, addresses).await {
            NameReply::Addresses { seconds, is_known } => {
                let time = Duration::from_secs(seconds.into()).clamp(LEAST, MOST);
                return Ok(Some(if is_known { time } else { time.min(unconfirmed) }));
            }
            NameReply::NoAddress => {}
            NameReply::Unusable => is_answered = false,
        }
    }
    if is_answered { Ok(None) } else { Err(NoServerAnswered) }
}

/// The first usable reply of the servers to a question. The one that gave it becomes the first: the servers before it, which may be
/// dead, are not waited for again with the next form of the name.
async fn ask_each(servers: &mut [SocketAddr], name: &str, kind: u16, addresses: &[IpAddr]) -> NameReply {
    for place in 0..servers.len() {
        match ask(servers[place], name, kind, addresses).await {
            None | Some(NameReply::Unusable) => {}
            Some(reply) => {
                servers.rotate_left(place);
                return reply;
            }
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
                let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                settings.servers.extend(address.map(|address| SocketAddr::new(address, PORT)));
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
        settings.servers.push((Ipv4Addr::LOCALHOST, PORT).into());
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
async fn ask(server: SocketAddr, name: &str, kind: u16, addresses: &[IpAddr]) -> Option<NameReply> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Keyed by chance at each call.
    let [first, second, ..] = RandomState::new().hash_one(name).to_be_bytes();
    let Some(question) = question([first, second], name, kind) else { return Some(NameReply::NoAddress) };
    let exchange = async {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await.ok()?;
        socket.connect(server).await.ok()?;
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

    const NO_SUCH_NAME: u8 = 3;
    const SERVER_FAILURE: u8 = 2;
    const KNOWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
    const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 8);
    const UNCONFIRMED: Duration = Duration::from_secs(30);

    fn at(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse().expect("an address"), PORT)).collect()
    }

    #[test]
    fn settings_are_read_as_the_c_library_does() {
        let text = "# ours\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver 2001:db8::1\nsearch a.test b.test.\noptions edns0 ndots:2\n";
        let settings = read_settings(text);
        assert_eq!(settings.servers, at(&["192.0.2.1", "2001:db8::1"]));
        assert_eq!(forms("x", &settings), ["x.a.test", "x.b.test", "x"]);
        assert_eq!(forms("x.y.z", &settings), ["x.y.z", "x.y.z.a.test", "x.y.z.b.test"]);
        assert_eq!(forms("x.", &settings), ["x"]);
        let bare = read_settings("");
        assert_eq!((bare.servers, bare.dots), (at(&["127.0.0.1"]), 1));
    }

    /// A server of names that sends what `reply` makes of each question; `None`: nothing.
    async fn server(reply: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> SocketAddr {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a socket");
        let address = socket.local_addr().expect("an address");
        drop(tokio::spawn(async move {
            let mut question = [0; MAX_REPLY];
            while let Ok((length, peer)) = socket.recv_from(&mut question).await {
                if let Some(reply) = reply(&question[..length]) {
                    socket.send_to(&reply, peer).await.expect("it is sent");
                }
            }
        }));
        address
    }

    fn refusal(question: &[u8], code: u8) -> Option<Vec<u8>> {
        let mut reply = question.to_vec();
        reply[2] |= 0x80;
        reply[3] |= code;
        Some(reply)
    }

    fn answer(question: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
        let mut reply = refusal(question, 0)?;
        reply[7] = 1;
        // The name that was asked for, an address of the Internet, and 60 s.
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend(address.octets());
        Some(reply)
    }

    async fn asked(
        servers: Vec<SocketAddr>,
        suffixes: &[&str],
    ) -> Result<Option<Duration>, NoServerAnswered> {
        let suffixes = suffixes.iter().map(|suffix| (*suffix).to_owned()).collect();
        let settings = ResolvConf { servers, suffixes, dots: MAX_DOTS };
        ask_as(settings, "a.test", &[KNOWN.into()], UNCONFIRMED).await
    }

    #[tokio::test]
    async fn what_servers_of_names_say_is_told_from_that_they_say_nothing() {
        let knows = server(|question| answer(question, KNOWN)).await;
        let knows_another = server(|question| answer(question, OTHER)).await;
        let knows_none = server(|question| refusal(question, NO_SUCH_NAME)).await;
        let fails = server(|question| refusal(question, SERVER_FAILURE)).await;
        let is_silent = server(|_| None).await;
        let minute = Some(Duration::from_secs(60));
        assert!(matches!(asked(vec![knows], &[]).await, Ok(time) if time == minute));
        assert!(matches!(asked(vec![knows_another], &[]).await, Ok(Some(UNCONFIRMED))));
        assert!(matches!(asked(vec![knows_none, knows], &[]).await, Ok(None)), "it has answered");
        assert!(matches!(asked(vec![fails, is_silent], &[]).await, Err(NoServerAnswered)));
        assert!(matches!(asked(vec![fails, is_silent, knows], &[]).await, Ok(time) if time == minute));
    }

    #[tokio::test]
    async fn a_server_of_names_that_is_dead_is_waited_for_once_and_not_for_each_form_of_a_name() {
        let dead = server(|_| None).await;
        let knows = server(|question| {
            let is_bare = question[12..].starts_with(b"\x01a\x04test\0");
            if is_bare { answer(question, KNOWN) } else { refusal(question, NO_SUCH_NAME) }
        })
        .await;
        let asked = asked(vec![dead, knows], &["a", "b", "c", "d", "e", "f"]);
        let told = timeout(PATIENCE_IN_ALL, asked).await.expect("the dead one has not used up the patience");
        assert!(matches!(told, Ok(Some(_))), "{told:?}");
    }
}
