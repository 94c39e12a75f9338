//! The intake's listener, as it changes with the file. Whether there is an intake is decided at the start, when its log is opened.

use std::sync::Arc;

use tidegate_intake::{Intake, IntakeService};
use tidegate_net::accept::Gate;
use tidegate_net::drain::Drain;
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::Listeners;
use tidegate_net::runtime::Cores;

use super::listeners::{DeclaredListener, ListenerTerms, Listening, ServeListener, WantedListener};
use crate::config::{Config, Listener};

/// What serves the intake's listener; clones share it.
#[derive(Clone, Debug)]
pub(super) struct ListeningIntake(Arc<IntakeListener>);

impl ListeningIntake {
    pub(super) fn new(intake: &Arc<Intake>, config: HttpConfig, gate: Gate) -> Self {
        Self(Arc::new(IntakeListener { service: IntakeService(Arc::clone(intake)), config, gate }))
    }
}

impl Listening for ListeningIntake {
    fn wanted(&self, config: &Config) -> Vec<WantedListener> {
        let intake = &config.settings.intake;
        let wanted = intake.listen.map(|address| WantedListener {
            declared: DeclaredListener {
                listener: Listener::INTAKE,
                address,
                terms: ListenerTerms::Settings(intake.tls.clone()),
            },
            server: self.0.clone(),
        });
        wanted.into_iter().collect()
    }
}

/// The intake on a listener.
#[derive(Debug)]
struct IntakeListener {
    service: IntakeService,
    config: HttpConfig,
    gate: Gate,
}

impl ServeListener for IntakeListener {
    fn serve(&self, sockets: Listeners, drain: Drain, cores: &Cores) {
        let gate = Gate { drain, ..self.gate.clone() };
        Server::new(self.service.clone(), self.config.clone(), gate).start(cores, sockets);
    }
}
