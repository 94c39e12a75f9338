//! Which server gets a request when some are down, dead, or far away: on real sockets.
//!
//! Over 400 lines because each way of balancing has its tests here, before the same kinds of servers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Backend, PATIENCE, Reaction, TestGateway, config, reply, status, text};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use tidegate_algorithms::recent::LEAST;
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;
use tidegate_upstream::backend::BackendStatus;

fn gateway(upstream: Value) -> TestGateway {
    let mut app = json!({"name": "app", "breaker": {"enabled": false}});
    app.as_object_mut().unwrap().extend(upstream.as_object().unwrap().clone());
    let config = config(json!([app]), json!([{"name": "all", "upstream": "app"}]));
    TestGateway::start(Unlimited, GatewaySettings::default(), &config)
}

fn servers(gateway: &TestGateway) -> Vec<BackendStatus> {
    gateway.gateway.upstreams()[0].servers.iter().map(|(_, status)| *status).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = monotonic();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// A server whose replies wait while it is told to.
fn held(name: &'static str, holds: &Arc<(Mutex<bool>, Condvar)>) -> Backend {
    let holds = Arc::clone(holds);
    Backend::start(move |_| {
        let (is_held, changed) = &*holds;
        let held = is_held.lock().unwrap();
        drop(changed.wait_timeout_while(held, PATIENCE, |held| *held).unwrap());
        reply(200, &[], name)
    })
}

/// A route that hedges, before servers of an upstream with these settings.
fn hedged(retries: Value, servers: &[&Backend], settings: &Value) -> GatewayConfig {
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    let mut app = json!({"name": "app", "breaker": {"enabled": false}, "servers": urls, "balance": "round_robin",
        "retries": retries, "eject_after": 0});
    app.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    config(json!([app]), json!([{"name": "all", "upstream": "app", "hedge": true}]))
}

/// A gateway that asks a second server where the first is late, and knows what late is.
fn hedging(retries: Value, servers: &[&Backend]) -> TestGateway {
    let config = hedged(retries, servers, &json!({}));
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    for _ in 0..LEAST + 2 {
        assert_eq!(status(&gateway.get("/")), 200);
    }
    gateway
}

#[test]
fn a_second_server_is_asked_when_the_first_is_later_than_almost_all_replies() {
    let holds = Arc::new((Mutex::new(false), Condvar::new()));
    let (slow, quick) = (held("slow", &holds), Backend::named("quick"));
    let generous = json!({"percent": 100, "least_per_second": 10_000});
    let gateway = hedging(generous, &[&slow, &quick]);
    *holds.0.lock().unwrap() = true;
    let before = slow.got().len();
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx";
    std::thread::scope(|scope| {
        // By turns: one of two goes to the slow server first.
        let posts: Vec<_> = (0..2).map(|_| scope.spawn(|| text(&gateway.send(post)))).collect();
        until("both servers have a POST", || posted(&slow) + posted(&quick) == 2);
        for _ in 0..20 {
            assert_eq!(text(&gateway.get("/")), "quick", "nobody waits for the slow one");
        }
        assert!(slow.got().len() > before + 1, "the slow one was asked first by some");
        assert_eq!(posted(&slow) + posted(&quick), 2, "what changes something is not sent twice");
        *holds.0.lock().unwrap() = false;
        holds.1.notify_all();
        let answered: Vec<String> = posts.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(answered.iter().filter(|it| *it == "slow").count(), posted(&slow));
    });
    let hedges = &gateway.gateway.hedges()[0];
    assert!(hedges.won > 0 && hedges.after > 0 && &*hedges.route == "all", "{hedges:?}");
    let in_flight = || servers(&gateway).iter().map(|server| server.in_flight).sum::<u32>();
    until("what lost is given up", || in_flight() == 0);
}

#[test]
fn second_attempts_come_out_of_the_budget_and_of_the_attempts() {
    for retries in [json!({"percent": 0, "least_per_second": 0}), json!({"attempts": 1})] {
        let holds = Arc::new((Mutex::new(false), Condvar::new()));
        let (slow, quick) = (held("slow", &holds), Backend::named("quick"));
        let gateway = hedging(retries.clone(), &[&slow, &quick]);
        *holds.0.lock().unwrap() = true;
        let refused = || gateway.gateway.hedges()[0].refused;
        let before = refused();
        let sent = || slow.got().len() + quick.got().len();
        let sent_before = sent();
        let answered = std::thread::scope(|scope| {
            let both: Vec<_> = (0..2).map(|_| scope.spawn(|| text(&gateway.get("/")))).collect();
            until("the late one is not sent again", || refused() > before);
            *holds.0.lock().unwrap() = false;
            holds.1.notify_all();
            both.into_iter().map(|it| it.join().unwrap()).collect::<Vec<String>>()
        });
        assert!(answered.iter().any(|it| it == "slow"), "{retries}: {answered:?}");
        assert_eq!((sent() - sent_before, gateway.gateway.hedges()[0].won), (2, 0), "{retries}");
    }
}

#[test]
fn what_is_late_stays_known_when_the_upstream_changes() {
    let (one, two) = (Backend::named("one"), Backend::named("two"));
    let retries = json!({"percent": 100});
    let gateway = hedging(retries.clone(), &[&one]);
    let after = || gateway.gateway.hedges()[0].after;
    let known = after();
    assert!(known > 0);
    gateway.apply(&hedged(retries, &[&one, &two], &json!({"idle_timeout_seconds": 7})));
    assert_eq!(after(), known);
}

fn posted(server: &Backend) -> usize {
    server.got().iter().filter(|got| got.line.starts_with("POST")).count()
}

#[test]
fn fault_40_where_one_is_up_it_alone_is_asked_and_where_none_is_all_are() {
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
    assert_eq!(asked(), ["3"], "one is enough");
    *down.lock().unwrap() = 4;
    until("all are down", || up() == 0);
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
    let Ok(probe) = std::net::TcpListener::bind("[::1]:0") else {
        let why = "this machine has no address of version 6";
        return tidegate_testkit::not_tested("servers by version 6 of IP", why);
    };
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

/// How often each server answered, by its name.
fn counted(gateway: &TestGateway, requests: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        *counts.entry(text(&gateway.get("/"))).or_default() += 1;
    }
    counts
}

#[test]
fn servers_get_requests_by_their_weight_and_none_without_one() {
    let [heavy, light, none] = ["heavy", "light", "none"].map(Backend::named);
    let weighted = |server: &Backend, weight: u64| json!({"url": server.url(), "weight": weight});
    let servers = json!([weighted(&heavy, 3), weighted(&light, 1), weighted(&none, 0)]);
    let gateway = gateway(json!({"servers": servers, "balance": "round_robin"}));
    assert_eq!(counted(&gateway, 40), BTreeMap::from([("heavy".to_owned(), 30), ("light".to_owned(), 10)]));
}

/// As the runbook says: a bad server is taken out by its weight. What is left is asked, whatever it answers.
#[test]
fn fault_40_the_last_server_with_a_weight_is_asked_however_often_it_fails() {
    let (last, out) = (Backend::start(|_| reply(500, &[], "its own")), Backend::named("taken out"));
    let servers = json!([last.url(), {"url": out.url(), "weight": 0}]);
    let gateway = gateway(json!({"servers": servers, "eject_seconds": 3600}));
    for _ in 0..20 {
        let reply = gateway.get("/");
        assert_eq!((status(&reply), text(&reply)), (500, "its own".to_owned()));
    }
    assert!(out.got().is_empty());
}

#[test]
fn a_ring_sends_a_client_to_its_server_and_others_elsewhere() {
    let backends = ["one", "two", "three"].map(Backend::named);
    let urls: Vec<String> = backends.iter().map(Backend::url).collect();
    let start = |urls: &[String]| {
        gateway(json!({"servers": urls, "balance": "ring_hash", "hash_by": "header:x-user"}))
    };
    let send = |gateway: &TestGateway, field: &str| {
        let answered_by =
            text(&gateway.send(&format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{field}\r\n")));
        // One whose last request has not ended yet is busier than its share, and passed over.
        until("the request has ended", || servers(gateway).iter().all(|server| server.in_flight == 0));
        answered_by
    };
    let ask = |gateway: &TestGateway, user: usize| send(gateway, &format!("x-user: {user}\r\n"));
    let running = start(&urls);
    let homes: Vec<String> = (0..60).map(|user| ask(&running, user)).collect();
    for name in ["one", "two", "three"] {
        assert!(homes.iter().filter(|home| *home == name).count() >= 5, "{name}: {homes:?}");
    }
    // Again, at another process too; and without a server only its own clients move.
    let (another, fewer) = (start(&urls), start(&urls[..2]));
    for (user, home) in homes.iter().enumerate() {
        assert_eq!((&ask(&running, user), &ask(&another, user)), (home, home), "{user}");
        assert!(home == "three" || ask(&fewer, user) == *home, "{user} had no reason to move");
    }
    // Nothing keeps requests without the field together, not even their client.
    let at: BTreeSet<String> = (0..60).map(|_| send(&running, "")).collect();
    assert_eq!(at.len(), 3, "{at:?}");
}

#[test]
fn a_server_that_comes_up_gets_little_at_first() {
    let is_down = Arc::new(AtomicBool::new(true));
    let back = {
        let is_down = Arc::clone(&is_down);
        Backend::start(move |got| {
            let fails = got.line.contains("/health") && is_down.load(SeqCst);
            reply(if fails { 500 } else { 200 }, &[], "back")
        })
    };
    let old = Backend::named("old");
    let check =
        json!({"path": "/health", "interval_seconds": 0.01, "rise": 1, "fall": 1, "timeout_seconds": 60});
    let gateway =
        gateway(json!({"servers": [old.url(), back.url()], "balance": "round_robin", "check": check,
        "slow_start_seconds": 86_400}));
    let is_up = || servers(&gateway)[1].is_up;
    until("it is down", || !is_up());
    assert_eq!(counted(&gateway, 10), BTreeMap::from([("old".to_owned(), 10)]));
    is_down.store(false, SeqCst);
    until("it is up", is_up);
    // A tenth of its share at first, of two servers one request in eleven; a day later it would be half.
    let counts = counted(&gateway, 44);
    assert_eq!(counts.get("back"), Some(&4), "{counts:?}");
}

#[test]
fn a_server_that_joins_gets_nothing_before_its_first_check_has_passed() {
    let holds = Arc::new((Mutex::new(true), Condvar::new()));
    let (old, new) = (Backend::named("old"), held("new", &holds));
    let with = |servers: Value| {
        let check = json!({"path": "/health", "interval_seconds": 0.01, "timeout_seconds": 60});
        let app = json!({"name": "app", "servers": servers, "balance": "round_robin", "check": check});
        config(json!([app]), json!([{"name": "all", "upstream": "app"}]))
    };
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &with(json!([old.url()])));
    gateway.apply(&with(json!([old.url(), new.url()])));
    until("it is checked", || !new.got().is_empty());
    assert_eq!(counted(&gateway, 20), BTreeMap::from([("old".to_owned(), 20)]));
    *holds.0.lock().unwrap() = false;
    holds.1.notify_all();
    until("it has its share", || text(&gateway.get("/")) == "new");
}

/// Sends a request and does not wait for its reply.
fn send_and_leave(gateway: &TestGateway, path: &str) -> std::net::TcpStream {
    let mut client = gateway.connect();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-user: one\r\n\r\n");
    std::io::Write::write_all(&mut client, request.as_bytes()).unwrap();
    client
}

#[test]
fn the_server_with_fewer_requests_gets_the_next_one() {
    let start = || {
        Backend::start(|got| if got.line.contains("/held") { Reaction::Silence } else { reply(200, &[], "") })
    };
    let backends = [start(), start()];
    let urls: Vec<String> = backends.iter().map(Backend::url).collect();
    let gateway = gateway(json!({"servers": urls, "balance": "least_requests"}));
    let carried = || servers(&gateway).iter().map(|server| server.in_flight).collect::<Vec<u32>>();
    let held = send_and_leave(&gateway, "/held");
    until("one of them carries it", || carried().iter().sum::<u32>() == 1);
    let busy = usize::from(carried()[1] == 1);
    for _ in 0..20 {
        assert_eq!(status(&gateway.get("/")), 200);
        until("it has ended", || carried().iter().sum::<u32>() == 1);
    }
    let got = backends.map(|backend| backend.got().len());
    assert_eq!((got[busy], got[1 - busy]), (1, 20));
    drop(held);
}

#[test]
fn by_latency_the_faster_server_gets_most() {
    const DELAY: Duration = Duration::from_millis(30);
    let slow = Backend::start(|_| {
        let begun = monotonic();
        while begun.elapsed() < DELAY {
            std::thread::park_timeout(DELAY);
        }
        reply(200, &[], "slow")
    });
    let quick = Backend::named("quick");
    let gateway = gateway(json!({"servers": [slow.url(), quick.url()], "balance": "peak_ewma"}));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| assert_eq!(status(&gateway.get("/")), 200)));
        }
    });
    let (slow, quick) = (slow.got().len(), quick.got().len());
    println!("of 200 requests the slow server got {slow}, the quick one {quick}");
    assert!(slow > 0 && quick > 2 * slow, "{slow} and {quick}");
}

#[test]
fn a_ring_passes_over_a_server_that_has_more_than_its_share() {
    const REQUESTS: usize = 12;
    let backends = [(); 3].map(|()| Backend::start(|_| Reaction::Silence));
    let urls: Vec<String> = backends.iter().map(Backend::url).collect();
    let gateway = gateway(json!({"servers": urls, "balance": "ring_hash", "hash_by": "header:x-user"}));
    let got = || backends.iter().map(|backend| backend.got().len()).collect::<Vec<usize>>();
    let mut clients = Vec::new();
    for sent in 1..=REQUESTS {
        clients.push(send_and_leave(&gateway, "/"));
        until("it has arrived", || got().iter().sum::<usize>() == sent);
    }
    // All of one user: a quarter more than a third of what is under way at most, and one for what is no whole request.
    let got = got();
    assert!(got.iter().all(|server| (1..=REQUESTS * 5 / 12 + 1).contains(server)), "{got:?}");
    assert!(got.iter().max() > got.iter().min(), "its own server has most: {got:?}");
}

#[test]
fn connections_that_wait_are_bounded_in_number_and_in_time() {
    const CLIENTS: usize = 20;
    let all = Arc::new(std::sync::Barrier::new(CLIENTS));
    let backend = Backend::start(move |got| {
        if got.line.contains("/together") {
            all.wait();
        }
        reply(200, &[], "")
    });
    let start = |backend: &Backend, keys: Value| {
        let mut app = json!({"name": "app", "servers": [backend.url()]});
        app.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let config = config(json!([app]), json!([{"name": "all", "upstream": "app"}]));
        let gateway = TestGateway::start_on(1, Unlimited, GatewaySettings::default(), &config, |it| it);
        let maintained = Arc::clone(&gateway.gateway);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(maintained.maintain());
        });
        gateway
    };
    let few = start(&backend, json!({"idle_connections": 2, "idle_timeout_seconds": 3600}));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| assert_eq!(status(&few.get("/together")), 200));
        }
    });
    until("all but two are closed", || backend.open() == 2);
    assert_eq!((status(&few.get("/")), backend.connections()), (200, CLIENTS), "one of these two is used");
    let other = Backend::named("other");
    let short = start(&other, json!({"idle_timeout_seconds": 0.5}));
    assert_eq!((status(&short.get("/")), other.connections()), (200, 1));
    until("it is closed without anybody asking", || other.open() == 0);
}
