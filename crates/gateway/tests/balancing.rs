//! Which server gets a request when some are down, dead, or far away: on real sockets.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use support::{Backend, PATIENCE, TestGateway, config, reply, status, text};
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;
use tidegate_upstream::backend::BackendStatus;

fn gateway(upstream: Value) -> TestGateway<Unlimited> {
    let mut app = json!({"name": "app", "breaker": {"enabled": false}});
    app.as_object_mut().unwrap().extend(upstream.as_object().unwrap().clone());
    let config = config(json!([app]), json!([{"name": "all", "upstream": "app"}]));
    TestGateway::start(Unlimited, GatewaySettings::default(), &config)
}

fn servers(gateway: &TestGateway<Unlimited>) -> Vec<BackendStatus> {
    gateway.gateway.upstreams()[0].servers.iter().map(|(_, status)| *status).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = monotonic();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn fault_40_where_fewer_than_half_are_up_all_are_asked() {
    let down = Arc::new(Mutex::new(1));
    let backends: Vec<Backend> = (0..4)
        .map(|index| {
            let down = Arc::clone(&down);
            Backend::start(move |got| {
                let is_down = got.line.contains("/health") && index < *down.lock().unwrap();
                reply(if is_down { 500 } else { 200 }, &[], &index.to_string())
            })
        })
        .collect();
    let urls: Vec<String> = backends.iter().map(Backend::url).collect();
    let check =
        json!({"path": "/health", "interval_seconds": 0.01, "rise": 1, "fall": 1, "timeout_seconds": 60});
    let gateway = gateway(json!({"servers": urls, "check": check, "balance": "round_robin"}));
    let asked = || {
        let mut names: Vec<String> = (0..40).map(|_| text(&gateway.get("/"))).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let up = || servers(&gateway).iter().filter(|server| server.is_up).count();
    until("one is down", || up() == 3);
    assert_eq!(asked(), ["1", "2", "3"]);
    *down.lock().unwrap() = 3;
    until("three are down", || up() == 1);
    assert_eq!(asked(), ["0", "1", "2", "3"], "the checks are believed no more");
    *down.lock().unwrap() = 0;
    until("all are up", || up() == 4);
}

#[test]
fn checks_come_at_intervals_that_are_drawn() {
    const INTERVAL: Duration = Duration::from_millis(100);
    let checked: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let backend = {
        let checked = Arc::clone(&checked);
        Backend::start(move |_| {
            checked.lock().unwrap().push(monotonic());
            reply(200, &[], "")
        })
    };
    let check = json!({"path": "/", "interval_seconds": INTERVAL.as_secs_f64()});
    let _gateway = gateway(json!({"servers": [backend.url()], "check": check}));
    // A fifth more or less: about half of them are shorter than was asked for, none of which would be without that.
    until("a check comes early", || {
        let checked = checked.lock().unwrap();
        checked.windows(2).any(|pair| pair[1] - pair[0] < INTERVAL.mul_f64(0.95))
    });
}

#[test]
fn servers_are_reached_by_either_version_of_ip() {
    let Ok(probe) = std::net::TcpListener::bind("[::1]:0") else { return };
    drop(probe);
    let four = Backend::named("four");
    let six =
        Backend::start_at("[::1]:0".parse().unwrap(), |got| reply(200, &[], got.field("host").unwrap()));
    assert!(six.url().starts_with("http://[::1]:"));
    let gateway = gateway(json!({"servers": [four.url(), six.url()], "balance": "round_robin"}));
    let names: Vec<String> = (0..4).map(|_| text(&gateway.get("/"))).collect();
    assert_eq!(names.iter().filter(|name| *name == "four").count(), 2, "{names:?}");
    assert_eq!(names.iter().filter(|name| *name == "shop.example").count(), 2, "{names:?}");
    // Without a host of the client's, the server's own is asked for, in brackets.
    let old = |_| text(&gateway.send("GET / HTTP/1.0\r\n\r\n"));
    let hosts: Vec<String> = (0..2).map(old).collect();
    assert!(hosts.contains(&six.address.to_string()), "{hosts:?}");
}

/// A server that refuses at once has fewest requests at any time, so that it looks best.
#[test]
fn a_dead_server_draws_no_more_requests_than_it_takes_to_leave_it_out() {
    for balance in ["least_requests", "round_robin", "peak_ewma"] {
        let good = Backend::named("good");
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let dead = socket.local_addr().unwrap().as_socket().unwrap();
        let servers_ = [format!("http://{dead}"), good.url()];
        // Enough for all further attempts: how many there are is what is asked.
        let retries = json!({"percent": 100, "least_per_second": 1_000});
        let gateway = gateway(
            json!({"servers": servers_, "balance": balance, "eject_seconds": 3600, "retries": retries}),
        );
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        assert_eq!(status(&gateway.get("/")), 200, "{balance}");
                    }
                });
            }
        });
        let [lost, served] = servers(&gateway)[..] else { panic!("two servers") };
        println!("{balance}: {} attempts at the dead server for 400 requests", lost.failures);
        assert_eq!((served.successes, lost.ejections), (400, 1), "{balance}");
        // Those that take it out, and one more for each client that was on its way there.
        assert!(lost.failures <= 5 + 8, "{balance}: {}", lost.failures);
    }
}
