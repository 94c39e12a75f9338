//! `cargo xtask charts`: what Helm and Kubernetes' own schemas say of the chart of `deploy/helm`, and the manifests that it
//! makes of the examples.
//!
//! ```text
//!   deploy/helm/values-<name>.yaml ── helm lint, helm template ──> deploy/helm/rendered/<name>.yaml ──┬─ strict reading
//!   k8s.io/kubernetes, prometheus-operator ── schemas ── target/charts/schemas ── kubeconform ─────────┘
//!   deploy/prometheus/adapter.yaml ── the Prometheus adapter's own code ──> deploy/helm/rendered/adapter.json
//! ```
//!
//! The schemas are made of what the projects publish as Go modules, so no other site is asked. Strict reading knows no
//! custom resources and no fields that are demanded; schemas know both, and nothing of what Go reads into a value. Both are
//! tried with what they must refuse, too.
//!
//! Helm takes three minutes of a core to build, so no test does: the manifests are committed, and tests look at those. This
//! is for who changes the chart. At the end, when all of it holds, the digests of what was read and written go into
//! `rendered/SHA256SUMS`; a test compares them, so no change of the chart is without this. Values that must be refused are here, because
//! Helm merges them and its templates refuse some.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::chore::{capture, run};
use crate::go;

/// The examples, by the name in their files.
const EXAMPLES: [&str; 3] = ["one", "cluster", "postgres"];
/// Pods whose load the autoscaler of an example asks for: the namespace, and their names.
const ASKED_FOR: [&str; 4] = ["limits", "tidegate-0", "tidegate-1", "tidegate-2"];
/// The Kubernetes that manifests are made for.
const KUBERNETES: &str = "1.34";
/// Where its kinds are described, as a Go module and a file in it.
const KINDS: (&str, &str) = ("k8s.io/kubernetes@v1.34.4", "api/openapi-spec/swagger.json");
/// The same of monitors, which are a resource of the Prometheus operator.
const MONITORS: (&str, &str) = (
    "github.com/prometheus-operator/prometheus-operator@v0.85.0",
    "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
);
/// What `xtask/charts/go.mod` pins.
const PROGRAMS: [&str; 2] = ["helm.sh/helm/v3/cmd/helm", "github.com/yannh/kubeconform/cmd/kubeconform"];
/// Where the digests are.
const SUMS: &str = "deploy/helm/rendered/SHA256SUMS";
/// Values that the chart refuses, and a word of the reason.
const REFUSED: [(&str, &str); 7] = [
    ("secrets.existing=a,replicas=2", "value must be 1"),
    ("secrets.existing=a,stoer=redis", "'stoer' not allowed"),
    ("secrets.existing=a,secrets.adminToken=short", "does not match pattern"),
    ("secrets.grpcToken=sixteen-letters-and-more", "secrets.adminToken"),
    ("secrets.existing=a,memoryMaxBytes=1GB", "does not match pattern"),
    ("secrets.existing=a,autoscaling.capacityPerNode=20000", "'capacityPerNode' not allowed"),
    ("secrets.existing=a,autoscaling.enabled=true", "value must be false"),
];
/// Changes of `rendered/cluster.yaml` that its schemas refuse, and a word of the reason.
const MISTAKES: [(&str, &str, &str); 5] = [
    ("  maxReplicas: 10\n", "", "'maxReplicas'"),
    ("minReplicas: 3", "minReplicas: three", "want integer"),
    ("policyTypes: [Ingress]", "policyType: [Ingress]", "'policyType' not allowed"),
    ("  endpoints:\n    - port: http", "  endpoints:\n    - prot: http", "'prot' not allowed"),
    ("kind: ServiceMonitor", "kind: ServiceMonitors", "could not find schema"),
];

/// Lints the chart, writes its manifests anew, and reads them as Kubernetes would.
///
/// # Errors
/// When Helm cannot be built, the chart is not in order, or what must be refused is not.
pub(crate) fn charts(root: &Path) -> anyhow::Result<()> {
    go::setup(root)?;
    go::programs(root, "charts", &PROGRAMS)?;
    let manifests = render(root)?;
    let folder = root.join("xtask/charts");
    run(go::program(root, "go").args(["run", "./manifests"]).args(&manifests).current_dir(folder))?;
    conform(root, &manifests)?;
    adapter(root)?;
    let sums = root.join(SUMS);
    fs::write(&sums, digests(root)?).with_context(|| sums.display().to_string())
}

/// Writes what the Prometheus adapter makes of its rule: the query that tests ask a Prometheus.
fn adapter(root: &Path) -> anyhow::Result<()> {
    let mut says = go::program(root, "go");
    says.args(["run", "./adapter"]).arg(root.join("deploy/prometheus/adapter.yaml")).args(ASKED_FOR);
    let said = capture(says.current_dir(root.join("xtask/charts")))?;
    let file = root.join("deploy/helm/rendered/adapter.json");
    fs::write(&file, said).with_context(|| file.display().to_string())
}

/// The digests of everything that the chore reads of this repository and writes, as `sha256sum` prints them.
fn digests(root: &Path) -> anyhow::Result<String> {
    let list = "find deploy/helm deploy/prometheus/adapter.yaml xtask/charts -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs sha256sum";
    capture(Command::new("sh").args(["-c", list]).current_dir(root))
}

/// Lints the chart and writes the manifests of all examples.
fn render(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let place = root.join("deploy/helm");
    let helm = |words: &[&str]| {
        let mut command = Command::new(root.join(".tools/bin/helm"));
        command.args(words).current_dir(&place);
        command
    };
    let template =
        ["template", "tidegate", "tidegate", "--namespace", "limits", "--kube-version", KUBERNETES];
    let mut manifests = Vec::new();
    for name in EXAMPLES {
        let values = format!("values-{name}.yaml");
        run(&mut helm(&["lint", "--strict", "--quiet", "tidegate", "--values", &values]))?;
        let text = capture(helm(&template).args(["--values", &values]))?;
        let file = place.join("rendered").join(format!("{name}.yaml"));
        fs::write(&file, text).with_context(|| file.display().to_string())?;
        manifests.push(file);
    }
    for (values, reason) in REFUSED {
        let mut tried = helm(&template);
        refuses(tried.args(["--set", values]), reason)
            .with_context(|| format!("the chart, with `{values}`"))?;
    }
    Ok(manifests)
}

/// Has kubeconform compare the manifests with the schemas of their kinds, and refuse what has mistakes.
fn conform(root: &Path, manifests: &[PathBuf]) -> anyhow::Result<()> {
    let place = root.join("target/charts");
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    let schemas = place.join("schemas");
    let mut convert = go::program(root, "go");
    convert.args(["run", "./schemas"]).arg(&schemas).current_dir(root.join("xtask/charts"));
    for (module, file) in [KINDS, MONITORS] {
        convert.arg(go::module(root, module)?.folder.join(file));
    }
    run(&mut convert)?;
    let kubeconform = || {
        let mut command = Command::new(root.join(".tools/bin/kubeconform"));
        let names = schemas.join("{{.ResourceKind}}{{.KindSuffix}}.json");
        command.args(["-strict", "-summary", "-schema-location"]).arg(names);
        command
    };
    run(kubeconform().args(manifests))?;
    let cluster =
        fs::read_to_string(root.join("deploy/helm/rendered/cluster.yaml")).context("cluster.yaml")?;
    for (right, wrong, reason) in MISTAKES {
        if !cluster.contains(right) {
            bail!("cluster.yaml has no `{right}` to be tried with `{wrong}`");
        }
        let file = place.join("mistake.yaml");
        fs::write(&file, cluster.replacen(right, wrong, 1)).with_context(|| file.display().to_string())?;
        refuses(kubeconform().arg(&file), reason).with_context(|| format!("`{right}` as `{wrong}`"))?;
    }
    Ok(())
}

/// Runs a command that must fail and say why.
fn refuses(command: &mut Command, reason: &str) -> anyhow::Result<()> {
    let tried = command.output().context("it does not start")?;
    let said = [&tried.stdout[..], &tried.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    if tried.status.success() || !said.contains(reason) {
        bail!("it must be refused with `{reason}`: {said}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_was_checked_and_rendered_as_it_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let committed = fs::read_to_string(root.join(SUMS)).unwrap();
        let now = digests(root).unwrap();
        let changed: Vec<_> = now.lines().filter(|line| !committed.lines().any(|it| it == *line)).collect();
        assert!(now == committed, "run `make charts`; changed since, or gone: {changed:#?}");
        for name in EXAMPLES {
            assert!(committed.contains(&format!("  deploy/helm/rendered/{name}.yaml\n")), "{name}");
        }
        for needed in ["templates/statefulset.yaml", "values.schema.json", "values.yaml", "Chart.yaml"] {
            assert!(committed.contains(&format!("  deploy/helm/tidegate/{needed}\n")), "{needed}");
        }
    }

    #[test]
    fn a_command_that_succeeds_or_gives_another_reason_refuses_nothing() {
        let tried = |script: &str| refuses(Command::new("sh").args(["-c", script]), "the reason").is_ok();
        assert!(tried("echo for the reason; exit 1"));
        assert!(tried("echo for the reason >&2; exit 1"));
        assert!(!tried("echo for the reason"));
        assert!(!tried("echo another; exit 1"));
    }
}
