//! A server that answers every request with the same short JSON body: the wall that the decision
//! service runs against, measured beside nginx by `regression/http-hello`.
//!
//! `hello ADDRESS [CORES] [shared]` serves until it is killed; it prints the address it listens
//! on. With `shared`, all cores accept from one socket's queue instead of one socket each.

use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::http::{Body, Handle, HandleFuture, HttpConfig, Peer, Reply, RequestBody, Server};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::{Cores, available_cores};
use tidegate_net::stats::{Route, Stats};

struct Hello;

impl Handle for Hello {
    fn handle<'a>(&'a self, _request: Request<RequestBody>, _peer: &'a Peer) -> HandleFuture<'a> {
        Box::pin(async move {
            let body = Bytes::from_static(br#"{"allowed":true,"remaining":99}"#);
            let mut response = Response::new(Body::Full(body));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            Reply::new(Route::new(1), response)
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    let count = arguments.next().map_or(Ok(available_cores()), |count| count.parse::<NonZeroUsize>())?;
    let cores = Cores::start(count)?;
    let drain = Drain::new();
    let stats = Arc::new(Stats::new(cores.count(), &["other", "/"]));
    let gate =
        Gate { permits: Permits::new(20_000), buffers: Buffers::new(64 << 20), drain: drain.clone(), stats };
    let listeners = if arguments.next().as_deref() == Some("shared") {
        Listeners::adopt(&std::net::TcpListener::bind(address)?, count)?
    } else {
        Listeners::bind(&ListenConfig::new(address, count))?
    };
    writeln!(std::io::stdout(), "listening on {}", listeners.address())?;
    Server::new(Hello, HttpConfig::default(), gate).start(&cores, listeners);
    drain.advance(Stage::Ready);
    cores.handle(0).clone().block_on(drain.reached(Stage::Stopped));
    cores.stop();
    Ok(())
}
