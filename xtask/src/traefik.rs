//! Traefik for the tests of `deploy/traefik.yaml` and `tidegate import traefik`: its own source without the providers that no
//! test asks.
//!
//! Traefik is in no package registry but the Go module proxy, as source. All of it takes more than an hour to build,
//! nearly all of that for the libraries of clusters and clouds that its providers of configuration use, and of one
//! package that DNS challenges use. What a request passes through needs none of them:
//!
//! ```text
//!   the module, by its checksum --copied--> .tools/traefik-source --LEFT_OUT replaced--> go build --> .tools/bin/traefik-file
//! ```
//!
//! Entry point, router, middlewares, proxy, the file provider, and their defaults stay as they are. A replaced package
//! declares what the others name of it and does nothing. Dependencies are of the versions in Traefik's own go.sum.
//! Another version of Traefik that needs more of a package than is here does not compile, and says what it misses.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::chore::{capture, run};
use crate::go;

const MODULE: &str = "github.com/traefik/traefik/v3";
const VERSION: &str = "v3.7.13";
/// Of the module's files, as Go's checksum database has it.
const SUM: &str = "h1:T8wy9KuaFzCkmXCqAzDy7t73pBDR1DHrJe3pqXpNXTw=";

/// Packages, and what the others need of each.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "acme",
        "type Configuration struct { CAServer, Storage string; DNSChallenge *DNSChallenge; \
         HTTPChallenge *HTTPChallenge; TLSChallenge *struct{} }\n\
         type DNSChallenge struct { Provider string; Propagation Propagation; \
         DisablePropagationCheck bool; DelayBeforeCheck duration }\n\
         type Propagation struct { DisableChecks bool; DelayBeforeChecks duration }\n\
         type HTTPChallenge struct { EntryPoint string }",
    ),
    ("consulcatalog", BUILT),
    (
        "docker",
        "const DockerName, SwarmName = \"docker\", \"swarm\"\n\
         type Provider struct { none; HTTPClientTimeout duration }\n\
         type SwarmProvider struct { none; HTTPClientTimeout, RefreshSeconds duration }",
    ),
    ("ecs", PLAIN),
    (
        "kubernetes/crd",
        "const ProviderName = \"kubernetescrd\"\n\
         type Provider struct { none }\n\
         func (*Provider) FillExtensionBuilderRegistry(any) {}",
    ),
    (
        "kubernetes/gateway",
        "const ProviderName = \"kubernetesgateway\"\n\
         type Provider struct { none; EntryPoints map[string]Entrypoint }\n\
         type Entrypoint struct { Address string; HasHTTPTLSConf bool }",
    ),
    (
        "kubernetes/ingress",
        "const ProviderName = \"kubernetesingress\"\n\
         type Provider struct { none; DefaultRuleSyntax string }",
    ),
    (
        "kubernetes/ingress-nginx",
        "const ProviderName = \"kubernetesingressnginx\"\n\
         type Provider struct { none; NonTLSEntryPoints []string; WatchNamespace, WatchNamespaceSelector string }",
    ),
    ("kubernetes/knative", PLAIN),
    ("kv/consul", BUILT),
    ("kv/etcd", PLAIN),
    ("kv/redis", PLAIN),
    ("kv/zk", PLAIN),
    ("nomad", BUILT),
];
const PLAIN: &str = "const ProviderName = package_name\ntype Provider struct { none }";
const BUILT: &str = "const ProviderName = package_name\ntype Provider struct { none }\n\
    type ProviderBuilder struct{}\nfunc (*ProviderBuilder) BuildProviders() []*Provider { return nil }";

/// Files that are no provider's.
const REPLACED: &[(&str, &str)] = &[
    // Interpreters for plugins.
    (
        "pkg/plugins/plugins.go",
        "package plugins\nimport (\"context\"; \"net/http\")\n\
         type Constructor func(context.Context, http.Handler) (http.Handler, error)\n\
         type Descriptor struct{}\ntype LocalDescriptor struct{}\n",
    ),
    // Asks Kubernetes for the name of its pod, for traces.
    (
        "pkg/types/k8sdetector.go",
        "package types\nimport (\"context\"; \"go.opentelemetry.io/otel/sdk/resource\")\n\
         type K8sAttributesDetector struct{}\n\
         func (K8sAttributesDetector) Detect(context.Context) (*resource.Resource, error) { return resource.Empty(), nil }\n",
    ),
    // Basic and digest authentication need a fork of a library that the module proxy does not have.
    (
        "pkg/middlewares/auth/basic_auth.go",
        "package auth\nimport (\"context\"; \"errors\"; \"net/http\"; \"github.com/traefik/traefik/v3/pkg/config/dynamic\")\n\
         func NewBasic(context.Context, http.Handler, dynamic.BasicAuth, string) (http.Handler, error) {\n\
         return nil, errors.New(\"basic authentication is left out\") }\n",
    ),
    (
        "pkg/middlewares/auth/digest_auth.go",
        "package auth\nimport (\"context\"; \"errors\"; \"net/http\"; \"github.com/traefik/traefik/v3/pkg/config/dynamic\")\n\
         func NewDigest(context.Context, http.Handler, dynamic.DigestAuth, string) (http.Handler, error) {\n\
         return nil, errors.New(\"digest authentication is left out\") }\n",
    ),
    // A module of its own in Traefik's repository, which no registry has: where others add fields.
    ("pkg/config/dynamic/ext/go.mod", "module github.com/traefik/traefik/dynamic/ext\n\ngo 1.26.0\n"),
    ("pkg/config/dynamic/ext/ext.go", "package ext\ntype HTTP struct{}\ntype Router struct{}\n"),
];

/// Builds it into `.tools/bin`, once per version and per what is left out.
///
/// # Errors
/// When it cannot be fetched or does not build.
pub(crate) fn traefik(root: &Path) -> anyhow::Result<()> {
    let main = fs::read_to_string(root.join("xtask/traefik/main.go")).context("xtask/traefik/main.go")?;
    let (program, stamp) = (root.join(".tools/bin/traefik-file"), root.join(".tools/traefik.built"));
    let wanted = format!("{VERSION} {SUM}\n{LEFT_OUT:?}\n{REPLACED:?}\n{main}");
    if program.exists() && fs::read_to_string(&stamp).is_ok_and(|built| built == wanted) {
        return Ok(());
    }
    let source = root.join(".tools/traefik-source");
    copy(root, &source)?;
    for (package, declarations) in LEFT_OUT {
        let folder = source.join("pkg/provider").join(package);
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        write(&folder.join("left_out.go"), &left_out(package, declarations))?;
    }
    fs::remove_dir_all(source.join("pkg/plugins")).context("pkg/plugins")?;
    for (file, text) in REPLACED {
        write(&source.join(file), text)?;
    }
    write(&source.join("cmd/file/main.go"), &main)?;
    let build = ["build", "-trimpath", "-buildvcs=false", "-o"];
    run(go::program(root, "go").args(build).arg(&program).arg("./cmd/file").current_dir(&source))?;
    fs::remove_dir_all(&source).with_context(|| source.display().to_string())?;
    fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())
}

/// What is built of the module, where it may be changed.
fn copy(root: &Path, to: &Path) -> anyhow::Result<()> {
    let module = go::module(root, &format!("{MODULE}@{VERSION}"))?;
    if module.sum != SUM {
        bail!("{MODULE}@{VERSION} is {}, not {SUM}", module.sum);
    }
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| to.display().to_string())?;
    }
    fs::create_dir_all(to.join("webui")).with_context(|| to.display().to_string())?;
    for (what, place) in [
        ("go.mod", "."),
        ("go.sum", "."),
        ("cmd", "."),
        ("pkg", "."),
        ("webui/embed.go", "webui"),
        ("webui/static", "webui"),
    ] {
        // The module cache is read-only.
        let copy = ["-r", "--no-preserve=mode"];
        capture(Command::new("cp").args(copy).arg(module.folder.join(what)).arg(to.join(place)))?;
    }
    Ok(())
}

/// The one file of a package that is left out.
fn left_out(package: &str, declarations: &str) -> String {
    let name = package.rsplit('/').next().unwrap_or(package).replace('-', "");
    format!(
        "package {name}\n\nimport (\n\tptypes \"github.com/traefik/paerser/types\"\n\
         \t\"{MODULE}/pkg/provider\"\n)\n\nconst package_name = \"{name}\"\n\ntype duration = ptypes.Duration\n\
         type none struct{{ provider.Provider }}\n\n{declarations}\n"
    )
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(file, text).with_context(|| file.display().to_string())
}
