//! `docs/images/limit-*.svg`: what each limit does with the same requests, drawn from its own verdicts.
//!
//! ```text
//!   policy's numbers + requests --check, charge--> admitted or refused, and what remains between --> SVG
//! ```
//!
//! The files are committed, and this test says when one is not what the code does: `INSTA_UPDATE=always` writes them anew.

#[path = "support/svg.rs"]
mod svg;

use std::fmt::Write;

use serde_json::{Value, json};
use svg::{LEFT, WIDTH, assert_is_kept, frame, text};
use tidegate_algorithms::limit::{Limit, PermitId, State};
use tidegate_algorithms::policy::parse;
use tidegate_algorithms::time::{Now, SECOND};

/// Fixed windows begin here: a whole day in UTC.
const START: u64 = 1_700_006_400;
/// Midnight in Berlin, a day before its clocks change.
const SATURDAY: u64 = 1_774_652_400;
const HOUR: u64 = 3_600;
/// A stretch of time on the picture.
#[derive(Clone, Copy)]
struct Span {
    /// What its seconds are counted from, in Unix seconds.
    start: u64,
    from: f64,
    to: f64,
}

impl Span {
    fn x(self, at: f64) -> f64 {
        LEFT + WIDTH * (at - self.from) / (self.to - self.from)
    }

    fn now(self, at: f64) -> Now {
        Now::at(self.start * SECOND + (at * SECOND as f64).round() as u64)
    }
}

/// A request, and what became of it.
struct Decided {
    at: f64,
    allowed: bool,
    /// Seconds until it is its turn.
    delay: f64,
}

fn limit(mut document: Value) -> Limit {
    document["name"] = "picture".into();
    parse(&document, "").unwrap().quota.limit
}

/// What a limit says to requests, and what remains at each point of the picture.
fn run(limit: &Limit, span: Span, requests: &[f64]) -> (Vec<Decided>, Vec<u64>) {
    let (mut state, mut decided, mut rest) = (State::Fresh, Vec::new(), Vec::new());
    let mut waiting = requests.iter().copied().peekable();
    for point in 0..WIDTH as u64 {
        let at = span.from + (span.to - span.from) * point as f64 / WIDTH;
        while let Some(request) = waiting.next_if(|request| *request <= at) {
            let now = span.now(request);
            let verdict = limit.check(&mut state, now, 1);
            if verdict.allowed {
                limit.charge(&mut state, now, 1, PermitId(decided.len() as u64));
            }
            let delay = verdict.delay as f64 / SECOND as f64;
            decided.push(Decided { at: request, allowed: verdict.allowed, delay });
        }
        rest.push(limit.check(&mut state, span.now(at), 0).remaining);
    }
    (decided, rest)
}

/// The most that were admitted within a window's length.
fn most_within(seconds: f64, decided: &[Decided]) -> usize {
    let admitted: Vec<f64> = decided.iter().filter(|it| it.allowed).map(|it| it.at).collect();
    let from = |begin: f64| admitted.iter().filter(|at| (begin..begin + seconds).contains(at)).count();
    admitted.iter().map(|begin| from(*begin)).max().unwrap_or_default()
}

fn mark(svg: &mut String, x: f64, y: f64, allowed: bool) {
    if allowed {
        writeln!(svg, r#"<circle class="yes" cx="{x:.1}" cy="{y}" r="2.4"/>"#).unwrap();
    } else {
        writeln!(svg, r#"<path class="no" d="M{:.1} {} l4.8 4.8m0 -4.8l-4.8 4.8"/>"#, x - 2.4, y - 2.4)
            .unwrap();
    }
}

/// The requests in a row, and below them what remains.
struct Chart<'c> {
    title: &'c str,
    description: &'c str,
    document: Value,
    span: Span,
    requests: Vec<f64>,
    /// Where a window, or a day, begins.
    edges: &'c [f64],
    labels: &'c [(f64, &'c str)],
    /// The window's length that the picture counts in, and its name.
    window: Option<(f64, &'c str)>,
}

impl Chart<'_> {
    fn draw(self) -> String {
        let limit = limit(self.document);
        let (decided, rest) = run(&limit, self.span, &self.requests);
        let is_queue = matches!(limit, Limit::LeakyBucket(_));
        let fact = match self.window {
            Some((seconds, name)) => format!("most in any {name}: {}", most_within(seconds, &decided)),
            None => String::new(),
        };
        let top = if is_queue { 118.0 } else { 82.0 };
        let bottom = top + 76.0;
        let mut svg = frame(bottom + 36.0, self.title, self.description, &fact);
        for edge in self.edges {
            let x = self.span.x(*edge);
            writeln!(svg, r#"<path class="edge" d="M{x:.1} 40V{bottom}"/>"#).unwrap();
        }
        text(&mut svg, "small", LEFT - 10.0, 60.0, "end", "requests");
        for one in &decided {
            mark(&mut svg, self.span.x(one.at), 56.0, one.allowed);
        }
        if is_queue {
            self.span.draw_turns(&mut svg, &decided);
        }
        draw_rest(&mut svg, &rest, limit.quota(), top, bottom);
        writeln!(svg, r#"<path class="axis" d="M{LEFT} {bottom}h{WIDTH}"/>"#).unwrap();
        for (at, label) in self.labels {
            text(&mut svg, "small", self.span.x(*at), bottom + 17.0, "middle", label);
        }
        svg + "</svg>\n"
    }
}

impl Span {
    /// When each admitted request is sent on.
    fn draw_turns(self, svg: &mut String, decided: &[Decided]) {
        text(svg, "small", LEFT - 10.0, 96.0, "end", "sent on");
        for one in decided.iter().filter(|one| one.allowed && one.at + one.delay <= self.to) {
            let (from, to) = (self.x(one.at), self.x(one.at + one.delay));
            writeln!(svg, r#"<path class="way" d="M{from:.1} 60L{to:.1} 89"/>"#).unwrap();
            mark(svg, to, 92.0, true);
        }
    }
}

/// What could be spent at each moment, as an area with steps.
fn draw_rest(svg: &mut String, rest: &[u64], quota: u64, top: f64, bottom: f64) {
    let y = |units: u64| bottom - (bottom - top) * units as f64 / quota as f64;
    let mut path = format!("M{LEFT} {bottom}V{:.1}", y(rest[0]));
    for (point, pair) in rest.windows(2).enumerate() {
        if pair[0] != pair[1] {
            write!(path, "H{:.1}V{:.1}", LEFT + point as f64 + 1.0, y(pair[1])).unwrap();
        }
    }
    writeln!(svg, r#"<path class="rest" d="{path}H{:.1}V{bottom}Z"/>"#, LEFT + WIDTH).unwrap();
    text(svg, "small", LEFT - 10.0, top + 5.0, "end", &quota.to_string());
    text(svg, "small", LEFT - 10.0, (top + bottom) / 2.0 + 4.0, "end", "remaining");
    text(svg, "small", LEFT - 10.0, bottom + 3.0, "end", "0");
}

/// One a second from 50 to 69 s, then one every five seconds: more than ten a minute all the time.
fn minutes() -> Vec<f64> {
    (50..70).chain((75..160).step_by(5)).map(f64::from).collect()
}

fn windowed(title: &str, description: &str, document: Value, edges: &[f64]) -> String {
    Chart {
        title,
        description,
        document,
        span: Span { start: START, from: 40.0, to: 160.0 },
        requests: minutes(),
        edges,
        labels: &[
            (40.0, "40 s"),
            (60.0, "60 s"),
            (80.0, "80 s"),
            (100.0, "100 s"),
            (120.0, "120 s"),
            (140.0, "140 s"),
        ],
        window: Some((60.0, "60 s")),
    }
    .draw()
}

/// Who holds a permit: when it asked, and when it gave it back, or that it never did.
const HOLDERS: [(f64, Option<f64>); 9] = [
    (2.0, Some(15.0)),
    (4.0, Some(19.0)),
    (7.0, None),
    (10.0, Some(20.0)),
    (16.0, Some(31.0)),
    (20.0, Some(34.0)),
    (23.0, Some(30.0)),
    (32.0, Some(45.0)),
    (35.0, Some(52.0)),
];

fn concurrency() -> String {
    let limit = limit(json!({"algorithm": "concurrency", "limit": 3, "lease_seconds": 20}));
    let Limit::Concurrency(slots) = &limit else { panic!("it is one") };
    let span = Span { start: START, from: 0.0, to: 60.0 };
    let description = "Three permits: the fourth request is refused, a permit that is never given back comes back by itself when its lease ends.";
    let mut svg = frame(198.0, "concurrency: 3 at once, a lease of 20 s", description, "");
    text(&mut svg, "small", LEFT - 10.0, 60.0, "end", "requests");
    text(&mut svg, "small", LEFT - 10.0, 120.0, "end", "permits");
    let mut state = State::Fresh;
    let mut rows = [0.0_f64; 3];
    let mut returns: Vec<(f64, PermitId)> = Vec::new();
    for (number, (at, back)) in HOLDERS.iter().enumerate() {
        returns.retain(|(when, id)| *when > *at || !slots.release(&mut state, span.now(*when), *id));
        let (now, id) = (span.now(*at), PermitId(number as u64));
        let allowed = limit.check(&mut state, now, 1).allowed;
        mark(&mut svg, span.x(*at), 56.0, allowed);
        if !allowed {
            continue;
        }
        limit.charge(&mut state, now, 1, id);
        let end = back.unwrap_or(at + slots.lease as f64 / SECOND as f64);
        returns.extend(back.map(|back| (back, id)));
        let row = rows.iter().position(|free| free <= at).unwrap();
        rows[row] = end;
        let (x, y, width) = (span.x(*at), 78.0 + 26.0 * row as f64, span.x(end) - span.x(*at));
        let class = if back.is_some() { "held" } else { "gone" };
        writeln!(svg, r#"<rect class="{class}" x="{x:.1}" y="{y}" width="{width:.1}" height="18" rx="3"/>"#)
            .unwrap();
        if back.is_none() {
            text(
                &mut svg,
                "small",
                x + width / 2.0,
                y + 13.0,
                "middle",
                "its holder crashed: the lease ends",
            );
        }
    }
    writeln!(svg, r#"<path class="axis" d="M{LEFT} 164h{WIDTH}"/>"#).unwrap();
    for at in [0.0, 20.0, 40.0, 60.0] {
        text(&mut svg, "small", span.x(at), 181.0, "middle", &format!("{at} s"));
    }
    svg + "</svg>\n"
}

fn calendar() -> String {
    let day = HOUR as f64 * 24.0;
    Chart {
        title: "calendar: 12 a day in Berlin, the clocks change on Sunday",
        description: "A request an hour over three days; each day admits twelve, and the Sunday has 23 hours.",
        document: json!({"algorithm": "calendar", "limit": 12, "period": "day", "time_zone": "Europe/Berlin"}),
        span: Span { start: SATURDAY, from: 0.0, to: 71.0 * HOUR as f64 },
        requests: (0..71).map(|hour| f64::from(hour) * HOUR as f64 + 900.0).collect(),
        edges: &[day, day + 23.0 * HOUR as f64],
        labels: &[
            (day / 2.0, "Saturday, 24 hours"),
            (day * 1.5 - 1_800.0, "Sunday, 23 hours"),
            (day * 2.5 - 3_600.0, "Monday, 24 hours"),
        ],
        window: None,
    }
    .draw()
}

fn pictures() -> [(&'static str, String); 7] {
    let windows = [60.0, 120.0];
    let per_minute = |algorithm: &str| json!({"algorithm": algorithm, "limit": 10, "window_seconds": 60});
    let with_burst = |algorithm: &str, burst: u64| {
        let mut document = per_minute(algorithm);
        document["burst"] = burst.into();
        document
    };
    [
        (
            "token-bucket",
            windowed(
                "token_bucket: 10 a minute, a burst of 10",
                "A burst of ten passes at once; after that one unit comes back every six seconds.",
                with_burst("token_bucket", 10),
                &[],
            ),
        ),
        (
            "leaky-bucket",
            windowed(
                "leaky_bucket: 10 a minute, 3 in the queue",
                "Admitted requests are sent on six seconds apart, however they came.",
                with_burst("leaky_bucket", 3),
                &[],
            ),
        ),
        (
            "fixed-window",
            windowed(
                "fixed_window: 10 a minute",
                "Ten pass before the window ends and ten right after it: twenty in twenty seconds.",
                per_minute("fixed_window"),
                &windows,
            ),
        ),
        (
            "sliding-log",
            windowed(
                "sliding_log: 10 in any minute",
                "Ten pass; each unit comes back exactly a minute after it was spent.",
                per_minute("sliding_log"),
                &[],
            ),
        ),
        (
            "sliding-counter",
            windowed(
                "sliding_counter: about 10 in any minute",
                "The last window's count fades as the present one goes on.",
                per_minute("sliding_counter"),
                &windows,
            ),
        ),
        ("concurrency", concurrency()),
        ("calendar", calendar()),
    ]
}

#[test]
fn the_pictures_of_the_limits_are_what_they_do() {
    for (name, drawn) in pictures() {
        assert_is_kept(&format!("limit-{name}"), &drawn);
    }
}

#[test]
fn each_picture_is_on_the_page_of_the_limits() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/algorithms.md")).unwrap();
    for (name, _) in pictures() {
        assert!(page.contains(&format!("](images/limit-{name}.svg)")), "{name}");
    }
}
