//! A listener that is handed on: another server accepts from the same sockets, and the one before drains by itself.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::drain::{Drain, DrainTiming, Drained, Stage};
use tidegate_net::http::{Body, Handle, HandleFuture, HttpConfig, Peer, Reply, RequestBody, Server};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::{Route, Stats};

use crate::common::{PATIENCE, connect, request};

/// Says which server it is.
struct Named(&'static str);

impl Handle for Named {
    fn handle<'a>(&'a self, _request: Request<RequestBody>, _peer: &'a Peer) -> HandleFuture<'a> {
        Box::pin(async move { Reply::new(Route::new(1), Response::new(Body::from(self.0))) })
    }
}

fn start(name: &'static str, drain: &Drain, cores: &Cores, listeners: Listeners) {
    let gate = Gate {
        permits: Permits::new(10),
        buffers: Buffers::new(1 << 20),
        drain: drain.clone(),
        stats: Arc::new(Stats::new(1, &["other", "routes"])),
    };
    Server::new(Named(name), HttpConfig::default(), gate).start(cores, listeners);
}

#[test]
fn what_waits_in_the_queue_is_served_by_who_takes_the_sockets_over() {
    let cores = Cores::start(NonZeroUsize::MIN).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let first = Listeners::bind(&ListenConfig::new(any, NonZeroUsize::MIN)).unwrap();
    let (second, address) = (first.try_clone().unwrap(), first.address());
    let whole = Drain::new();
    let (old, new) = (whole.part(), whole.part());
    start("old", &old, &cores, first);
    whole.advance(Stage::Ready);
    let mut idle = connect(address).unwrap();
    assert!(request(&mut idle, "/").unwrap().starts_with("HTTP/1.1 200"));

    old.hand_on();
    let timing = DrainTiming { grace: Duration::ZERO, ..DrainTiming::with_deadline(PATIENCE) };
    let drained = cores.handle(0).clone().block_on(old.run(timing));
    assert_eq!(drained, Drained { aborted: 0 }, "its loop has ended, and so has the idle connection");
    assert_eq!(whole.stage(), Stage::Ready);
    // Nobody accepts now, and the kernel takes it all the same.
    let mut waiting = connect(address).unwrap();
    waiting.write_all(b"GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n").unwrap();
    start("new", &new, &cores, second);
    let mut reply = String::new();
    waiting.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("new"), "{reply}");

    let drained = cores.handle(0).clone().block_on(whole.run(timing));
    assert_eq!((drained, new.stage()), (Drained { aborted: 0 }, Stage::Stopped));
    cores.stop();
}
