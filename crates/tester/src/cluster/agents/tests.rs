//! Agents in this process, without a network between: the engine and the stub are real.

use std::{
    net::TcpListener,
    sync::{Arc, mpsc},
    time::Duration,
};

use parking_lot::Mutex;

use super::step::part_of;
use super::{
    AgentCall, AgentDesk, AgentError, AgentLink, AgentOrder, AgentRefusal, AgentStart, AgentStop, Agents,
};
use crate::{
    cluster::{Cluster, Job, most_parts, part},
    load::{Stop, Trust},
    stub::{Stub, StubOptions},
};
use tidegate_judge::measurement::{Bench as _, Loop, Measurement, StepPlan};

const VERSION: &str = "1.2.3";

/// What becomes of an agent's next step as soon as that has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkFault {
    BreaksOff,
    FallsSilent,
    BeginsLate,
}

/// A desk that is asked directly.
struct DirectLink {
    name: String,
    desk: Arc<AgentDesk>,
    fault: Mutex<Option<LinkFault>>,
    /// A word for each stop that it is told.
    told: mpsc::SyncSender<()>,
    stops: Mutex<mpsc::Receiver<()>>,
}

impl DirectLink {
    fn new(name: &str) -> Arc<Self> {
        Self::with(name, None)
    }

    fn with(name: &str, fault: Option<LinkFault>) -> Arc<Self> {
        let desk = Arc::new(AgentDesk::new(VERSION, "unused".into(), Vec::new()));
        let (told, stops) = mpsc::sync_channel(64);
        let (fault, stops) = (Mutex::new(fault), Mutex::new(stops));
        Arc::new(Self { name: name.to_owned(), desk, fault, told, stops })
    }

    /// Returns when it was told to stop.
    fn is_told_to_stop(&self) {
        self.stops.lock().recv_timeout(Duration::from_secs(10)).unwrap();
    }
}

fn refused(refusal: &AgentRefusal) -> AgentError {
    AgentError(refusal.to_string())
}

impl AgentLink for DirectLink {
    fn address(&self) -> &str {
        &self.name
    }

    fn ask(&self, call: AgentCall, body: &str) -> Result<String, AgentError> {
        if call == AgentCall::Stop {
            self.told.try_send(()).unwrap();
        }
        self.desk.answer(call, body.as_bytes()).map_err(|refusal| refused(&refusal))
    }

    fn step(&self, body: &str, line: &mut dyn FnMut(&str) -> bool) -> Result<(), AgentError> {
        let (sender, lines) = mpsc::sync_channel::<String>(64);
        let fault = self.fault.lock().take();
        // The answer of an agent that falls silent does not end either.
        let open = (fault == Some(LinkFault::FallsSilent)).then(|| sender.clone());
        let say = Box::new(move |line: String| sender.send(line).is_ok());
        self.desk.begin(body.as_bytes(), say).map_err(|refusal| refused(&refusal))?;
        let mut is_silent = false;
        for text in lines {
            if is_silent {
                continue;
            }
            let is_late = fault == Some(LinkFault::BeginsLate) && text.contains("started");
            if !line(if is_late { "{\"started\":{\"late_us\":1500000}}" } else { text.trim_end() }) {
                break;
            }
            match fault.filter(|_| text.contains("started")) {
                Some(LinkFault::BreaksOff) => return Err(AgentError("the cable was cut".to_owned())),
                Some(LinkFault::FallsSilent) => is_silent = true,
                Some(LinkFault::BeginsLate) | None => {}
            }
        }
        drop(open);
        Ok(())
    }
}

fn plan(connections: u32, measure_ms: u64, max_requests: u64) -> StepPlan {
    let discipline = Loop::Closed { think_us: 0 };
    StepPlan { connections, discipline, warmup_ms: 0, measure_ms, max_requests }
}

fn stub() -> (Stub, Stop) {
    let stop = Stop::default();
    (Stub::start(StubOptions::new("127.0.0.1:0".parse().unwrap()), stop.clone()).unwrap(), stop)
}

fn job(stub: &Stub) -> Job {
    let scenario =
        "name = \"agents\"\n[[request]]\npath = \"/\"\n[[step]]\nconnections = 1\nduration_s = 1.0\n";
    Job::new(format!("http://{}/", stub.address()), scenario.to_owned(), None, 1)
}

/// A step by these agents.
fn run(agents: Agents, plan: &StepPlan) -> Measurement {
    let (stub, stop) = stub();
    let mut cluster = Cluster::new(job(&stub), 1, "unused".into(), Vec::new()).over(agents);
    let measured = cluster.run(plan).unwrap();
    stop.stop();
    stub.join().unwrap();
    measured
}

fn met(links: Vec<Arc<DirectLink>>) -> Agents {
    Agents::meet(links.into_iter().map(|link| link as Arc<dyn AgentLink>).collect(), VERSION).unwrap()
}

#[test]
fn two_agents_measure_what_one_measures() {
    let step = plan(5, 60_000, 101);
    let one = run(met(vec![DirectLink::new("a")]), &step);
    let two = run(met(vec![DirectLink::new("a"), DirectLink::new("b")]), &step);
    for measured in [&one, &two] {
        assert_eq!((measured.sent, measured.good, measured.established), (101, 101, 5));
        assert_eq!((measured.response.len(), measured.statuses[&200]), (101, 101));
        assert_eq!(measured.plan, step);
    }
    let shares: Vec<(&str, u32, u64)> =
        two.agents.iter().map(|share| (share.agent.as_str(), share.connections, share.good)).collect();
    assert_eq!(shares, [("a", 3, 51), ("b", 2, 50)]);
    assert!(
        two.agents.iter().all(|share| share.lost.is_none() && share.clock_error_us < 1_000_000),
        "{two:?}"
    );
}

/// The places in the one schedule that all threads of these orders take, as processes and threads find them, and how many there are.
fn places(orders: &[AgentOrder]) -> Vec<(u32, u32)> {
    let mut places = Vec::new();
    for AgentOrder { job, plan, processes, .. } in orders {
        let ((own, of), processes) = (job.share, most_parts(plan, *processes));
        for process in 0..processes {
            let threads = job.threads.min(part(plan, process, processes).connections);
            let first = (own * processes + process) * threads;
            places.extend((0..threads).map(|thread| (first + thread, of * processes * threads)));
        }
    }
    places.sort_unstable();
    places
}

#[test]
fn agents_take_each_place_of_the_one_schedule_once() {
    let whole = |connections, max_requests, processes| AgentOrder {
        version: VERSION.to_owned(),
        run: "run".to_owned(),
        step: 1,
        job: Job { threads: 4, ..Job::new("http://127.0.0.1:1/".to_owned(), String::new(), None, 1) },
        plan: plan(connections, 1_000, max_requests),
        processes,
        contact: false,
    };
    for (connections, requests, processes, expected) in [
        (5, 0, 1, 4),
        (5, 0, 4, 4),
        (9, 0, 3, 6),
        (2, 0, 2, 2),
        (100, 0, 2, 16),
        (100, 3, 1, 2),
        (100, 7, 2, 4),
    ] {
        let whole = whole(connections, requests, processes);
        let orders: Vec<AgentOrder> = (0..2).map(|index| part_of(&whole, index, 2)).collect();
        let every: Vec<(u32, u32)> = (0..expected).map(|place| (place, expected)).collect();
        assert_eq!(places(&orders), every, "{whole:?}");
    }
}

#[test]
fn an_agent_that_is_lost_in_the_middle_takes_its_share_with_it_and_is_named() {
    let links = vec![DirectLink::new("stays"), DirectLink::with("goes", Some(LinkFault::BreaksOff))];
    let measured = run(met(links), &plan(4, 1_000, 0));
    assert_eq!((measured.plan.connections, measured.established), (2, 2));
    assert!(measured.good > 0 && measured.seconds > 0.9, "{measured:?}");
    let lost: Vec<Option<&str>> = measured.agents.iter().map(|share| share.lost.as_deref()).collect();
    assert_eq!(lost, [None, Some("the cable was cut")]);
}

#[test]
fn an_agent_that_falls_silent_is_told_to_stop() {
    let silent = DirectLink::with("silent", Some(LinkFault::FallsSilent));
    let agents = met(vec![DirectLink::new("stays"), Arc::clone(&silent)]);
    // The one that stays is done long before silence is a loss.
    let measured = run(agents.losing_after(Duration::from_secs(2)), &plan(4, 300, 0));
    let lost: Vec<Option<&str>> = measured.agents.iter().map(|share| share.lost.as_deref()).collect();
    assert_eq!(lost, [None, Some("it said nothing for 2 s")]);
    silent.is_told_to_stop();
}

#[test]
fn an_agent_that_begins_late_is_left_out_and_told_to_stop() {
    let late = DirectLink::with("late", Some(LinkFault::BeginsLate));
    let measured = run(met(vec![DirectLink::new("in-time"), Arc::clone(&late)]), &plan(4, 300, 0));
    let lost: Vec<Option<&str>> = measured.agents.iter().map(|share| share.lost.as_deref()).collect();
    assert_eq!(lost, [None, Some("it began 1500 ms late, and at most 1000 ms are allowed")]);
    assert_eq!((measured.established, measured.agents[1].late_us), (2, 1_500_000));
    late.is_told_to_stop();
}

#[test]
fn a_search_has_the_step_run_again_by_those_that_stay() {
    let links = vec![DirectLink::new("stays"), DirectLink::with("goes", Some(LinkFault::BreaksOff))];
    let measured = run(met(links).repeating(), &plan(4, 500, 0));
    assert_eq!((measured.plan.connections, measured.established), (4, 4));
    let shares: Vec<(&str, u32, bool)> = measured
        .agents
        .iter()
        .map(|share| (share.agent.as_str(), share.connections, share.lost.is_some()))
        .collect();
    assert_eq!(shares, [("stays", 4, false), ("goes", 2, true)]);
}

#[test]
fn the_last_agent_that_is_lost_is_an_error_that_names_it() {
    let (stub, stop) = stub();
    let mut cluster = Cluster::new(job(&stub), 1, "unused".into(), Vec::new())
        .over(met(vec![DirectLink::with("only", Some(LinkFault::BreaksOff))]));
    let error = cluster.run(&plan(1, 60_000, 0)).unwrap_err();
    assert_eq!(error.to_string(), "agent only: the cable was cut");
    stop.stop();
    stub.join().unwrap();
}

#[test]
fn a_step_whose_only_share_is_lost_names_its_agent_although_another_is_idle() {
    let (stub, stop) = stub();
    let links = vec![DirectLink::with("goes", Some(LinkFault::BreaksOff)), DirectLink::new("idle")];
    let mut cluster = Cluster::new(job(&stub), 1, "unused".into(), Vec::new()).over(met(links));
    let error = cluster.run(&plan(1, 60_000, 0)).unwrap_err();
    assert_eq!(error.to_string(), "agent goes: the cable was cut");
    stop.stop();
    stub.join().unwrap();
}

#[test]
fn an_agent_of_another_version_is_told_before_anything_is_run() {
    let link = DirectLink::new("old");
    let met = Agents::meet(vec![Arc::clone(&link) as Arc<dyn AgentLink>], "1.3.0").map(drop);
    let said = met.unwrap_err().to_string();
    assert_eq!(said, "agent old: it is tidegate 1.2.3, and this is 1.3.0: run the same version on both");
    // What else an order of another version has does not matter.
    let refused = link.desk.begin(b"{\"version\":\"1.3.0\",\"plans\":[]}", Box::new(|_| true)).unwrap_err();
    assert!(matches!(refused, AgentRefusal::Version { .. }), "{refused}");
}

#[test]
fn an_agent_says_that_it_is_there_while_its_connections_open() {
    // Nobody takes these connections: they wait for a TLS handshake.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let scenario =
        "name = \"slow\"\n[[request]]\npath = \"/\"\n[[step]]\nconnections = 1\nduration_s = 1.0\n";
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let order = AgentOrder {
        version: VERSION.to_owned(),
        run: "run".to_owned(),
        step: 1,
        job: Job {
            trust: Trust { anyone: true, ..Trust::default() },
            ..Job::new(url, scenario.to_owned(), None, 1)
        },
        plan: plan(1, 60_000, 0),
        processes: 1,
        contact: false,
    };
    let link = DirectLink::new("slow");
    let (sender, lines) = mpsc::sync_channel::<String>(64);
    let body = serde_json::to_vec(&order).unwrap();
    link.desk.begin(&body, Box::new(move |line| sender.send(line).is_ok())).unwrap();
    assert_eq!([lines.recv().unwrap(), lines.recv().unwrap()], ["\"waiting\"\n", "\"waiting\"\n"]);
    // Whom nobody hears ends its step.
    drop(lines);
}

#[test]
fn an_agent_whose_coordinator_is_gone_is_free_for_another_at_once() {
    let (stub, stop) = stub();
    let link = DirectLink::new("a");
    let order = |run: &str| {
        let order = AgentOrder {
            version: VERSION.to_owned(),
            run: run.to_owned(),
            step: 1,
            job: job(&stub),
            plan: plan(1, 60_000, 0),
            processes: 1,
            contact: false,
        };
        serde_json::to_vec(&order).unwrap()
    };
    let (sender, lines) = mpsc::sync_channel::<()>(64);
    let unheard = move |_line: String| {
        sender.send(()).unwrap();
        false
    };
    link.desk.begin(&order("killed"), Box::new(unheard)).unwrap();
    // The step has ended when nobody can say anything of it any more.
    assert!(lines.iter().count() >= 2);
    link.desk.begin(&order("next"), Box::new(|_| false)).unwrap();
    stop.stop();
    stub.join().unwrap();
}

#[test]
fn an_agent_works_for_one_run_at_a_time_and_within_its_bounds() {
    let (stub, stop) = stub();
    let link = DirectLink::new("a");
    let order_of = |run: &str, connections: u32, max_connecting: u32| {
        let order = AgentOrder {
            version: VERSION.to_owned(),
            run: run.to_owned(),
            step: 7,
            job: Job { max_connecting, ..job(&stub) },
            plan: plan(connections, 60_000, 0),
            processes: 1,
            contact: true,
        };
        serde_json::to_vec(&order).unwrap()
    };
    let order = |run: &str, connections: u32| order_of(run, connections, 512);
    let (sender, lines) = mpsc::sync_channel::<String>(64);
    let refused = |body: &[u8]| link.desk.begin(body, Box::new(|_| true)).unwrap_err();
    assert!(matches!(refused(&order("first", 2_000_000)), AgentRefusal::OutOfRange(_)));
    assert!(matches!(refused(&order_of("first", 1, 0)), AgentRefusal::OutOfRange(_)));
    link.desk.begin(&order("first", 1), Box::new(move |line| sender.send(line).is_ok())).unwrap();
    assert_eq!(lines.iter().find(|line| line != "\"waiting\"\n").unwrap(), "\"ready\"\n");
    assert!(matches!(refused(&order("second", 1)), AgentRefusal::Busy));
    // Nobody else can start or stop it.
    let start = |run: &str, step: u64| {
        let start = AgentStart { run: run.to_owned(), step, at_ns: 0 };
        link.ask(AgentCall::Start, &serde_json::to_string(&start).unwrap())
    };
    let stop_step = |run: &str, step: u64, is_over: bool| {
        let stop = AgentStop { run: run.to_owned(), step, is_over };
        link.ask(AgentCall::Stop, &serde_json::to_string(&stop).unwrap()).unwrap();
    };
    assert!(start("second", 7).is_err());
    stop_step("second", 7, true);
    // What comes late was meant for the step before.
    assert!(start("first", 6).is_err());
    stop_step("first", 6, false);
    start("first", 7).unwrap();
    assert!(lines.iter().any(|line| line.contains("started")));
    stop_step("first", 7, true);
    assert!(lines.iter().any(|line| line.starts_with("{\"done\"")));
    // The run is over, so that the agent is kept for nobody.
    link.desk.begin(&order("second", 1), Box::new(|_| false)).unwrap();
    stop.stop();
    stub.join().unwrap();
}
