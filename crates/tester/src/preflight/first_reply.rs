//! The first request, sent once before a run on a connection of its own: a redirect or a 4xx is then said before its
//! figures are made, and not only after.
//!
//! Only requests that change nothing are sent so (GET and HEAD; RFC 9110, 9.2.1): a run of others begins with its own first
//! request. It goes by the engine's own protocols, driven by a socket that blocks. No reply within [`PATIENCE`] is no news
//! here: the run itself measures that.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use tidegate_judge::report::FirstReply;

use crate::{
    epoch::{Epoch, nanos},
    load::{
        Exchange, Options, Workload,
        http::Http,
        http2::Http2,
        protocol::{Protocol, Reply, Verdict},
        tls::Within,
    },
};

/// Longest wait for the whole reply.
const PATIENCE: Duration = Duration::from_secs(3);

/// The first reply of the target, if it is a redirect or a 4xx that the workload does not call good.
#[must_use]
pub fn first_reply(options: &Options) -> Option<FirstReply> {
    let seed = options.seed;
    match &options.exchange {
        Exchange::Http(workload) if changes_nothing(workload) => {
            ask(options, Http::new(Arc::clone(workload), seed, 0, 1).with_locations())
        }
        Exchange::Http2 { workload, grpc: false } if changes_nothing(workload) => {
            ask(options, Http2::new(Arc::clone(workload), false, options.tls.is_some(), seed, 0, 1))
        }
        _ => None,
    }
}

/// Whether no request of a workload asks for a change.
fn changes_nothing(workload: &Workload) -> bool {
    workload.requests.iter().all(|request| request.template.is_safe())
}

fn ask<P: Protocol>(options: &Options, protocol: P) -> Option<FirstReply> {
    match &options.tls {
        None => converse(options, protocol),
        Some(tls) => converse(options, Within::new(tls.clone(), protocol)),
    }
}

/// One request and its reply.
fn converse<P: Protocol>(options: &Options, mut protocol: P) -> Option<FirstReply> {
    let limit = options.connect_timeout.clamp(Duration::from_millis(1), PATIENCE);
    let mut socket = TcpStream::connect_timeout(&options.target, limit).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    socket.set_write_timeout(Some(PATIENCE)).ok()?;
    let mut state = protocol.fresh();
    let mut out = Vec::new();
    let mut may_ask = true;
    if P::CONVERSES {
        may_ask = protocol.open(&mut state);
        protocol.answer(&mut state, &mut out);
    }
    let mut buffer = vec![0; 16 << 10];
    let epoch = Epoch::start();
    while epoch.now() < nanos(PATIENCE) {
        if may_ask {
            out.extend_from_slice(protocol.request(&mut state));
        }
        socket.write_all(&out).ok()?;
        out.clear();
        let length = socket.read(&mut buffer).ok()?;
        let reply = match length {
            0 => protocol.closed(&mut state),
            _ => protocol.receive(&mut state, &buffer[..length]),
        };
        match reply {
            Reply::Done { verdict, status, .. } => {
                let is_wanted = verdict != Verdict::BadStatus;
                return FirstReply::in_doubt(status, protocol.location(&state), is_wanted);
            }
            Reply::Broken | Reply::Reset | Reply::Goaway => return None,
            Reply::More | Reply::Aside | Reply::Ready if length == 0 => return None,
            Reply::More | Reply::Aside => may_ask = false,
            Reply::Ready => may_ask = true,
        }
        if P::CONVERSES {
            protocol.answer(&mut state, &mut out);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// What is said of a server that answers one request of HTTP/1.1 with this.
    fn said(reply: &'static str, method: &str) -> Option<FirstReply> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|length| length == 1) {
                head.push(byte[0]);
            }
            socket.write_all(reply.as_bytes()).unwrap();
        });
        let mut workload = Workload::get("h", "/").unwrap();
        workload.requests[0].template =
            tidegate_wire::http1::RequestTemplate::compile(method, "h", "/", &[], None).unwrap();
        first_reply(&Options::new(target, Exchange::Http(Arc::new(workload))))
    }

    #[test]
    fn a_redirect_and_a_refusal_are_told_and_nothing_else_is() {
        let moved = "HTTP/1.1 301 Moved\r\nLocation: https://h/new\r\nContent-Length: 0\r\n\r\n";
        let found = said(moved, "GET").unwrap();
        assert_eq!((found.status, found.location.as_deref()), (301, Some("https://h/new")));
        assert_eq!(said(moved, "HEAD").map(|found| found.status), Some(301));
        let missing = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nno length";
        assert_eq!(said(missing, "GET"), Some(FirstReply { status: 404, location: None }));
        assert_eq!(said("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "GET"), None);
        assert_eq!(said("not HTTP", "GET"), None);
        assert_eq!(said("", "GET"), None, "closed without a word");
    }

    #[test]
    fn a_request_that_changes_something_is_not_sent_before_the_run() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut workload = Workload::get("h", "/").unwrap();
        workload.requests[0].template =
            tidegate_wire::http1::RequestTemplate::compile("POST", "h", "/", &[], None).unwrap();
        let options = Options::new(listener.local_addr().unwrap(), Exchange::Http(Arc::new(workload)));
        assert_eq!(first_reply(&options), None);
        assert!(listener.accept().is_err(), "no connection was made");
    }
}
