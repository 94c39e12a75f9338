//! The HTTP API as the binary serves it, in this process, on a free port, with a scratch folder.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Request;
use serde_json::Value;
use tempfile::TempDir;
use tidegate::config::{Config, Environment, File, Flags, load};
use tidegate::serve::{App, apply};
use tidegate_access::origins::TrustedOrigins;
use tidegate_access::tokens::{Credential, Scope};
use tidegate_limiter::engine::Engine;
use tidegate_limiter::policy_set::FileLayer;
use tidegate_net::drain::Stage;
use tokio::runtime::Runtime;

/// A running service; dropping it ends it.
pub struct Running {
    /// Where its HTTP listener is.
    pub address: SocketAddr,
    /// Its engine, for a look inside.
    pub engine: Arc<Engine>,
    app: Option<App>,
    config: Config,
    runtime: Runtime,
    agent: ureq::Agent,
    token: Option<&'static str>,
    _data: TempDir,
}

/// A reply, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: Value,
}

/// What a service is started with.
pub struct Setup {
    /// Its data folder, with what is stored there.
    pub data: TempDir,
    /// The file's policies and overrides.
    pub file: FileLayer,
    /// The file's tokens.
    pub tokens: Vec<Credential>,
    /// Other machines' pages that it trusts.
    pub origins: TrustedOrigins,
    /// What a request is answered that no policy applies to.
    pub on_no_match: &'static str,
    /// Further tables of the file.
    pub more: &'static str,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            data: tempfile::tempdir().unwrap(),
            file: FileLayer::default(),
            tokens: Vec::new(),
            origins: TrustedOrigins::default(),
            on_no_match: "allow",
            more: "",
        }
    }
}

impl Setup {
    pub fn start(self) -> Running {
        let Self { data, file, tokens, origins, on_no_match, more } = self;
        let TrustedOrigins { hosts, cors } = origins;
        let folder = data.path().display();
        let text = format!(
            "data_dir = \"{folder}\"\non_no_match = \"{on_no_match}\"\nruntime.workers = 1\n\
             grpc.listen = \"127.0.0.1:0\"\nresp.listen = \"127.0.0.1:0\"\nintake.listen = \"off\"\n\
             limits.body_bytes = \"64 KiB\"\nmemory = {{ max_bytes = \"16 MiB\", snapshot = false }}\n\
             [http]\nlisten = \"127.0.0.1:0\"\nproxy_headers = \"original\"\nlegacy_headers = true\n\
             allowed_hosts = {hosts:?}\ncors_origins = {cors:?}\n{more}"
        );
        let read = File { name: "tidegate.toml", bytes: text.as_bytes() };
        let mut config = load(Some(read), &Environment::default(), &Flags::default()).unwrap().config;
        config.layer = file;
        config.tokens = tokens;
        let mut app = App::build(&config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        app.start();
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let (address, engine) = (app.addresses().http, app.engine().clone());
        Running { address, engine, app: Some(app), config, runtime, agent, token: None, _data: data }
    }
}

/// Starts a service with the built-in policy.
pub fn start() -> Running {
    Setup::default().start()
}

/// Starts a service with a file's policies and, if given, an admin token.
pub fn start_with(file: FileLayer, token: Option<&'static str>) -> Running {
    let operator = [Scope::Refund, Scope::Read, Scope::Configure];
    let tokens = token.map(|token| Credential::new("admin", operator, token)).into_iter().collect();
    let mut running = Setup { file, tokens, ..Setup::default() }.start();
    running.token = token;
    running
}

/// Starts a service with what is stored in `data`.
pub fn start_in(data: TempDir) -> Running {
    Setup { data, ..Setup::default() }.start()
}

impl Running {
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], None)
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], Some(body.as_bytes()))
    }

    pub fn put(&self, path: &str, body: &str) -> Answer {
        self.send("PUT", path, &[("content-type", "application/json")], Some(body.as_bytes()))
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], None)
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut reply = match body {
            Some(body) => self.agent.run(request.body(body.to_vec()).unwrap()).unwrap(),
            None => self.agent.run(request.body(()).unwrap()).unwrap(),
        };
        let text = reply.body_mut().read_to_string().unwrap();
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() };
        Answer { status: reply.status().as_u16(), headers: reply.headers().clone(), body }
    }

    /// The same service, asked without its token.
    pub fn without_token(&self, method: &str, path: &str, authorization: Option<&str>) -> u16 {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        request = request.header("content-type", "application/json");
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        self.agent.run(request.body(b"{}".to_vec()).unwrap()).unwrap().status().as_u16()
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Running {
    pub fn app(&self) -> &App {
        self.app.as_ref().unwrap()
    }

    /// Puts other policies of the file in force, as a reload does.
    pub fn reload_policies(&self, layer: FileLayer) {
        let config = Config { layer, ..self.config.clone() };
        self.runtime.block_on(apply(self.app(), &self.config, &config)).unwrap();
    }

    /// Puts other tokens of the file in force, as a reload does.
    pub fn reload_tokens(&self, tokens: impl IntoIterator<Item = Credential>) {
        let config = Config { tokens: tokens.into_iter().collect(), ..self.config.clone() };
        self.runtime.block_on(apply(self.app(), &self.config, &config)).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(app) = self.app.take() {
            app.drain().advance(Stage::Stopped);
            self.runtime.block_on(app.stop());
        }
    }
}
