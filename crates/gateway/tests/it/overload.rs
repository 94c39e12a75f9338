//! Too much: for a server, found by how long it takes, and for this process, found by how late it is.

use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::Duration;

use crate::support::{Backend, PATIENCE, TestGateway, config, reply, status, text};
use serde_json::json;
use tidegate_algorithms::time::{SECOND, Tick};
use tidegate_gateway::access_log::{AccessLog, AccessLogSettings, Destination, LineFormat};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::{GatewaySettings, TraceGuard};
use tidegate_gateway::shed::{Priority, Shedder};
use tidegate_net::clock::monotonic;

/// A gate that requests wait at.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let is_open = self.is_open.lock().unwrap();
        drop(self.changed.wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open).unwrap());
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = monotonic();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn an_upstream_gets_no_more_at_once_than_its_adaptive_limit_and_the_rest_is_refused_or_goes_elsewhere() {
    let gate = Arc::new(Gate::default());
    let slow = {
        let gate = Arc::clone(&gate);
        Backend::start(move |_| {
            gate.pass();
            reply(200, &[], "slow")
        })
    };
    let other = Backend::named("other");
    let config = config(
        json!([
            {"name": "slow", "servers": [slow.url()], "adaptive_concurrency": {"min": 2, "max": 4}},
            {"name": "other", "servers": [other.url()]},
        ]),
        json!([
            {"name": "all", "upstream": "slow"},
            {"name": "with", "path": "/with/*", "upstream": "slow", "fallback": {"upstream": "other"}},
        ]),
    );
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let limit = || gateway.gateway.upstreams()[0].adaptive.unwrap();
    assert_eq!((limit().limit, limit().under_way), (4, 0));
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| status(&gateway.get("/")))).collect();
        until("the limit is reached", || slow.got().len() == 4);
        let refused = gateway.get("/");
        assert_eq!((status(&refused), refused.field("retry-after")), (503, Some("1")));
        assert!(text(&refused).contains("as it can take now"), "{}", text(&refused));
        assert_eq!(text(&gateway.get("/with/it")), "other");
        assert_eq!((limit().under_way, limit().refused), (4, 2));
        gate.open();
        waiting.into_iter().for_each(|it| assert_eq!(it.join().unwrap(), 200));
    });
    until("they have left", || limit().under_way == 0);
    assert_eq!((status(&gateway.get("/")), slow.got().len()), (200, 5));
}

/// Nobody is refused; what would be is counted. A limit that begins to refuse goes on from what it has found.
#[test]
fn an_adaptive_limit_in_shadow_counts_what_it_would_refuse_and_lets_it_in() {
    let gate = Arc::new(Gate::default());
    let slow = {
        let gate = Arc::clone(&gate);
        Backend::start(move |_| {
            gate.pass();
            reply(200, &[], "slow")
        })
    };
    let with = |mode: &str| {
        let adaptive = json!({"min": 2, "max": 4, "mode": mode});
        let upstream = json!([{"name": "slow", "servers": [slow.url()], "adaptive_concurrency": adaptive}]);
        config(upstream, json!([{"name": "all", "upstream": "slow"}]))
    };
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &with("shadow"));
    let limit = || gateway.gateway.upstreams()[0].adaptive.unwrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..10).map(|_| scope.spawn(|| status(&gateway.get("/")))).collect();
        until("all of them are let in", || slow.got().len() == 10);
        let now = limit();
        assert_eq!((now.limit, now.under_way, now.refused, now.shadow_refused), (4, 10, 0, 6));
        gate.open();
        waiting.into_iter().for_each(|it| assert_eq!(it.join().unwrap(), 200));
    });
    until("they have left", || limit().under_way == 0);
    assert_eq!((status(&gateway.get("/")), limit().shadow_refused), (200, 6), "there was room for this one");
    gateway.apply(&with("enforce"));
    assert_eq!((limit().is_shadow, limit().limit, limit().shadow_refused), (false, 4, 0));
    let upstream = json!({"name": "a", "servers": ["a:1"], "adaptive_concurrency": {"mode": "off"}});
    let mistakes = GatewayConfig::check(&[upstream], &[], &[]).unwrap_err();
    assert_eq!(mistakes[0].pointer, "/upstream/0/adaptive_concurrency/mode");
}

#[test]
fn an_adaptive_limit_is_lowered_where_replies_queue_up() {
    // One at a time: whoever comes beside another one waits.
    let turn = Arc::new(Mutex::new(()));
    let server = Backend::start(move |_| {
        let _turn = turn.lock().unwrap();
        let begun = monotonic();
        while begun.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        reply(200, &[], "")
    });
    let upstream = json!({"name": "app", "servers": [server.url()], "adaptive_concurrency": {"min": 1, "max": 64},
        "breaker": {"enabled": false}});
    let config = config(json!([upstream]), json!([{"name": "all", "upstream": "app"}]));
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let adaptive = || gateway.gateway.upstreams()[0].adaptive.unwrap();
    let (first, barrier) = (adaptive().limit, Barrier::new(16));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                barrier.wait();
                until("a base is known and the limit is low", || {
                    let got = status(&gateway.get("/"));
                    assert!(got == 200 || got == 503, "{got}");
                    adaptive().base > 0 && adaptive().limit < first
                });
            });
        }
    });
    until("all have left", || adaptive().under_way == 0);
    assert_eq!(status(&gateway.get("/")), 200);
}

/// Tells core after core that it is as late as that, for so many tenths of a second.
fn late(shedder: &Shedder, now: &mut u64, by: Duration, tenths: usize) {
    for _ in 0..tenths * 4 {
        *now += SECOND / 30;
        (0..2).for_each(|core| shedder.delayed(core, by, Tick(*now)));
    }
}

#[test]
fn a_process_that_cannot_keep_up_refuses_low_before_normal_before_critical_and_recovers() {
    let server = Backend::named("served");
    let config = config(
        json!([{"name": "app", "servers": [server.url()]}]),
        json!([
            {"name": "low", "path": "/low", "upstream": "app", "priority": "low", "fallback": {"body": "no"}},
            {"name": "normal", "path": "/normal", "upstream": "app"},
            {"name": "critical", "path": "/critical", "upstream": "app", "priority": "critical"},
        ]),
    );
    // Nobody looks at the cores: the test says how late they are.
    let shedder = Arc::new(Shedder::new(2, Duration::from_millis(20)));
    let gateway = TestGateway::start_with(Unlimited, GatewaySettings::default(), &config, |gateway| {
        gateway.with_shedder(Some(Arc::clone(&shedder))).with_traces(TraceGuard::new(|_| true))
    });
    let asked = || ["/low", "/normal", "/critical"].map(|path| status(&gateway.get(path)));
    let mut now = SECOND;
    assert_eq!(asked(), [200, 200, 200]);
    late(&shedder, &mut now, Duration::from_millis(100), 1);
    late(&shedder, &mut now, Duration::ZERO, 30);
    assert_eq!(
        (asked(), shedder.stats().level),
        ([200, 200, 200], 0.0),
        "one late tenth of a second is none too many"
    );

    until("all of low is refused", || {
        late(&shedder, &mut now, Duration::from_millis(100), 1);
        Priority::Low.refused(shedder.stats().level) == 1.0
    });
    let refused = gateway.send(
        "GET /low HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntidegate-trace: 1\r\nauthorization: Bearer it\r\n\r\n",
    );
    assert_eq!((status(&refused), refused.field("retry-after")), (503, Some("1")));
    let steps: Vec<_> = refused.fields.iter().filter(|(name, _)| name == "tidegate-trace").collect();
    assert!(steps.iter().any(|(_, step)| step.starts_with("shed;us=")), "{steps:?}");
    assert!(text(&refused).contains("less priority"), "it is not the servers' fault: {}", text(&refused));
    assert_eq!(status(&gateway.get("/critical")), 200);
    until("all of normal is refused", || {
        late(&shedder, &mut now, Duration::from_millis(100), 1);
        Priority::Normal.refused(shedder.stats().level) == 1.0
    });
    let before = server.got().len();
    assert_eq!(asked()[..2], [503, 503]);
    assert!(server.got().len() <= before + 1, "what is refused reaches no server");
    late(&shedder, &mut now, Duration::from_secs(1), 1_000);
    let answered: Vec<u16> = std::thread::scope(|scope| {
        let ask = || status(&gateway.get("/critical"));
        let all: Vec<_> = (0..60).map(|_| scope.spawn(ask)).collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(answered.contains(&200) && answered.contains(&503), "never all of the critical: {answered:?}");
    let counted = shedder.stats();
    assert!(counted.refused.iter().all(|refused| *refused > 0), "{counted:?}");

    late(&shedder, &mut now, Duration::ZERO, 200);
    assert_eq!((asked(), shedder.stats().level), ([200, 200, 200], 0.0));
    until("no refusal waits", || shedder.stats().held == 0);
}

#[test]
fn what_is_refused_because_of_too_much_is_told_to_scripts_and_its_key_to_nobody() {
    let server = Backend::named("served");
    let low = json!({"name": "low", "path": "/low", "upstream": "app", "priority": "low", "auth": "key",
        "key_in": ["query:api"], "cors": {"origins": ["https://a.example"]}});
    let config = config(json!([{"name": "app", "servers": [server.url()]}]), json!([low]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let destination = Destination::File { path: path.clone(), max_bytes: 1 << 20, keep: 1 };
    let log = AccessLog::open(AccessLogSettings { destination, format: LineFormat::Json, rules: Vec::new() });
    let shedder = Arc::new(Shedder::new(2, Duration::from_millis(20)));
    let gateway = TestGateway::start_with(Unlimited, GatewaySettings::default(), &config, |gateway| {
        gateway.with_shedder(Some(Arc::clone(&shedder))).with_access_log(Some(log.unwrap()))
    });
    let mut now = SECOND;
    until("all of low is refused", || {
        late(&shedder, &mut now, Duration::from_millis(100), 1);
        Priority::Low.refused(shedder.stats().level) == 1.0
    });
    let ask = |method: &str, path: &str, more: &str| {
        gateway
            .send(&format!("{method} {path} HTTP/1.1\r\nhost: a\r\norigin: https://a.example\r\n{more}\r\n"))
    };
    let refused = ask("GET", "/low?api=SECRET&b=1", "");
    let allowed = refused.field("access-control-allow-origin");
    assert_eq!((status(&refused), allowed), (503, Some("https://a.example")));
    assert_eq!(status(&ask("OPTIONS", "/low", "access-control-request-method: GET\r\n")), 204);
    // Where there is no route nobody has said which parameter a key may be in.
    assert_eq!(status(&ask("GET", "/nothing?api=SECRET", "")), 404);
    assert_eq!(status(&ask("GET", "/low%2f..%2flow?api=SECRET", "")), 400);
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    until("four lines are written", || read().lines().count() == 4);
    let lines = read();
    assert!(
        lines.contains("\"/low?b=1\"") && lines.contains("\"/nothing\"") && !lines.contains("SECRET"),
        "{lines}"
    );
}
