//! The intake's lines for the admin API, whose guard has let the reader in.
//!
//! A second [`Intake`] over the same log answers it, which asks for no token and counts for itself: what the admin API's
//! readers ask is no traffic of the intake's listener.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use serde_json::{Value, json};
use tidegate_admin::api::{ReadIntake, ReaderGroup};
use tidegate_intake::access::Open;
use tidegate_intake::counters::Counters;
use tidegate_intake::forward::{Forwards, group};
use tidegate_intake::limits::Unlimited;
use tidegate_intake::{ClientSeries, Intake, IntakeService, Parts};
use tidegate_log::Log;
use tidegate_net::http::{Body, Handle, Peer, RequestBody};

use super::intake::ServedIntake;

/// Most bytes that are read for the oldest line.
const LINE_BYTES: usize = 64 << 10;

/// The reader of the intake's lines, once the intake is there.
#[derive(Debug, Default)]
pub(super) struct IntakeReader(OnceLock<Reader>);

#[derive(Debug)]
struct Reader {
    service: IntakeService,
    /// The forwards, whose groups are not to be forgotten.
    forwards: Arc<Forwards>,
}

impl IntakeReader {
    /// Reads this intake's log from now on.
    pub(super) fn read(&self, of: &ServedIntake) {
        let (log, settings, drain, clock) = of.lasting();
        let intake = Intake::new(Parts {
            log,
            settings,
            access: Arc::new(Open),
            policies: Arc::default(),
            limits: Arc::new(Unlimited),
            counters: Arc::new(Counters::default()),
            page: Box::new(|_| Response::default()),
            drain,
            clock,
            alerts: None,
            series: Arc::new(ClientSeries::new(0, clock)),
        });
        // Invariant: a process has one intake.
        let forwards = Arc::clone(of.running().forwards());
        let reader = Reader { service: IntakeService(Arc::new(intake)), forwards };
        drop(self.0.set(reader));
    }
}

impl ReadIntake for IntakeReader {
    fn query<'a>(
        &'a self,
        parameters: &'a str,
    ) -> Pin<Box<dyn Future<Output = Option<Response<Body>>> + Send + 'a>> {
        Box::pin(async move {
            let service = &self.0.get()?.service;
            let target = PathAndQuery::try_from(format!("/v1/intake/query?{parameters}")).ok()?;
            let mut request = Request::new(RequestBody::none());
            *request.uri_mut() = Uri::from(target);
            request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
            Some(service.handle(request, &this_process()).await.response)
        })
    }

    fn oldest(&self) -> Pin<Box<dyn Future<Output = Option<Value>> + Send + '_>> {
        Box::pin(async move {
            let log = self.0.get()?.log();
            let found = tokio::task::spawn_blocking(move || oldest(&log)).await.ok()?;
            Some(json!({ "oldest": found }))
        })
    }

    fn groups(&self) -> Option<Vec<ReaderGroup>> {
        let reader = self.0.get()?;
        let groups = reader.log().groups().into_iter();
        let of_forwards: Vec<String> =
            reader.forwards.states().iter().map(|state| group(state.name())).collect();
        let shown = |(name, offsets): (String, _)| ReaderGroup {
            is_of_a_forward: of_forwards.contains(&name),
            offsets,
            name,
        };
        Some(groups.map(shown).collect())
    }

    fn remove_group<'a>(
        &'a self,
        group: &'a ReaderGroup,
    ) -> Pin<Box<dyn Future<Output = Result<bool, String>> + Send + 'a>> {
        Box::pin(async move {
            let Some(log) = self.0.get().map(Reader::log) else { return Ok(false) };
            let ReaderGroup { name, offsets, .. } = group.clone();
            let removed = tokio::task::spawn_blocking(move || log.remove_group(&name, &offsets)).await;
            removed.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
        })
    }
}

impl Reader {
    fn log(&self) -> Arc<Log> {
        Arc::clone(self.service.0.log())
    }
}

fn oldest(log: &Log) -> Vec<Value> {
    let of = |partition| {
        let offset = log.offsets(partition)?.start;
        let lines = log.read(partition, offset, 1, LINE_BYTES).ok();
        // A line that cannot be read is damaged or was removed just now: it is not the oldest any more.
        let line = lines.and_then(|lines| serde_json::from_slice::<Value>(&lines.lines).ok());
        Some(json!({ "partition": partition, "offset": offset, "line": line }))
    };
    (0..).map_while(of).collect()
}

/// The peer of requests to the second intake, which are this process's own.
fn this_process() -> Peer {
    Peer {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        is_tls: false,
        tls_name: None,
        core: 0,
        is_for_operation: false,
    }
}
