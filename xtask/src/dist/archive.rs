//! `tidegate-image.tar`: the image as one file, for who has a runtime of containers and neither sources nor a registry.
//!
//! It is what `docker save` writes, because `docker load`, `podman load`, buildah, skopeo and containerd all read that; of an
//! archive of the OCI they would leave out the health check.
//!
//! ```text
//!   manifest.json           the tags, and which of the files below is what
//!   <sha256>.json           what deploy/Dockerfile says: user, environment, volume, health check, words
//!   <sha256>/layer.tar      image/root/ as it is, image/data/ in its place, of the image's user; compressed
//! ```
//!
//! The Dockerfile is the one place where an image is described: its instructions are read here, and one that is not known
//! here is an error. That both ways give the same image is tried with buildah. The layer is compressed and not the whole: podman 4.3
//! takes no archive that is. The sum in the names and in the configuration is that of the plain layer.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use super::{Dist, image};
use crate::chore::{capture, run};

/// Where `image/data` is in the image.
const DATA: &str = "var/lib/tidegate";

/// Writes the archive of the folder `image`.
///
/// # Errors
/// When the Dockerfile has what is not known here, or tar or gzip refuses.
pub(super) fn write(dist: &Dist) -> anyhow::Result<()> {
    let staged = dist.to.join("archive");
    fs::create_dir_all(&staged).context("archive/")?;
    let layer = layer(dist, &staged)?;
    let source = dist.source("deploy/Dockerfile");
    let dockerfile = fs::read_to_string(&source).with_context(|| source.display().to_string())?;
    let configuration = configuration(&dockerfile, &super::date(&dist.root, "+%FT%TZ")?, &layer)?;
    let name = put(&staged, &serde_json::to_vec(&configuration)?)?;
    let manifest = json!([{
        "Config": name,
        "RepoTags": [format!("tidegate:{}", dist.version), "tidegate:latest"],
        "Layers": [format!("{layer}/layer.tar")],
    }]);
    fs::write(staged.join("manifest.json"), serde_json::to_vec(&manifest)?).context("manifest.json")?;

    let file = dist.to.join("tidegate-image.tar");
    tar(dist, &["--create", "--owner=0", "--group=0"], &file, &staged, &names(&staged)?)?;
    fs::remove_dir_all(&staged).context("archive/")
}

/// Writes the layer below `staged`, in a folder of its sum's name, and returns that.
fn layer(dist: &Dist, staged: &Path) -> anyhow::Result<String> {
    let (made, image) = (staged.join("layer.tar"), dist.to.join("image"));
    let root = image.join("root");
    tar(dist, &["--create", "--owner=0", "--group=0"], &made, &root, &names(&root)?)?;
    let user = [format!("--owner={}", image::USER), format!("--group={}", image::USER)];
    let place = format!("--transform=s,^data,{DATA},");
    tar(dist, &["--append", &user[0], &user[1], &place], &made, &image, &["data".to_owned()])?;
    let sum = sum(&made)?;
    // -n: without name and time.
    let effort = if dist.is_quick { "-1n" } else { "-9n" };
    run(dist.command("gzip").arg(effort).arg(&made))?;
    let folder = staged.join(&sum);
    fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
    fs::rename(staged.join("layer.tar.gz"), folder.join("layer.tar")).context("layer.tar")?;
    Ok(sum)
}

/// Writes a folder, which is in another one, into a compressed file.
///
/// # Errors
/// When tar or gzip refuses.
pub(super) fn compressed(dist: &Dist, inside: &Path, folder: &str, file: &Path) -> anyhow::Result<()> {
    let plain = file.with_extension("tar");
    tar(dist, &["--create", "--owner=0", "--group=0"], &plain, inside, &[folder.to_owned()])?;
    let effort = if dist.is_quick { "-1nf" } else { "-9nf" };
    run(dist.command("gzip").arg(effort).arg(&plain))?;
    let made = plain.with_extension("tar.gz");
    fs::rename(&made, file).with_context(|| made.display().to_string())
}

/// Runs tar so that the same files give the same bytes.
fn tar(dist: &Dist, what: &[&str], file: &Path, folder: &Path, names: &[String]) -> anyhow::Result<()> {
    let same = ["--sort=name", "--format=gnu", "--mode=a+rX,go-w", "--numeric-owner"];
    let mut tar = dist.command("tar");
    tar.args(what).args(same).arg(format!("--mtime=@{}", dist.epoch)).arg("--file").arg(file);
    run(tar.arg("--directory").arg(folder).args(names))
}

/// What is in a folder, in order: an archive whose names begin with `./` is not read by everybody.
fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let names: Result<Vec<_>, _> =
        entries.map(|entry| entry.map(|entry| entry.file_name().display().to_string())).collect();
    let mut names = names?;
    names.sort();
    Ok(names)
}

fn sum(file: &Path) -> anyhow::Result<String> {
    let said = capture(Command::new("sha256sum").arg(file))?;
    Ok(said.split_whitespace().next().context("sha256sum prints nothing")?.to_owned())
}

/// Writes bytes under their sum, and returns the file's name.
fn put(folder: &Path, bytes: &[u8]) -> anyhow::Result<String> {
    let unnamed = folder.join("unnamed.json");
    fs::write(&unnamed, bytes).with_context(|| unnamed.display().to_string())?;
    let name = format!("{}.json", sum(&unnamed)?);
    fs::rename(&unnamed, folder.join(&name)).context("the image's configuration")?;
    Ok(name)
}

/// The image's configuration, as the Dockerfile has it.
fn configuration(dockerfile: &str, created: &str, layer: &str) -> anyhow::Result<Value> {
    let mut config = Map::new();
    for line in dockerfile.replace("\\\n", " ").lines() {
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let words = || serde_json::from_str::<Vec<String>>(rest).with_context(|| line.to_owned());
        let (name, value) = match word {
            // What becomes of these is the layer.
            "" | "#" | "FROM" | "ARG" | "COPY" => continue,
            "USER" => ("User", json!(rest)),
            "ENV" => ("Env", json!(rest.split_whitespace().collect::<Vec<_>>())),
            "VOLUME" => ("Volumes", json!({ rest: {} })),
            "EXPOSE" => ("ExposedPorts", json!({ format!("{rest}/tcp"): {} })),
            "ENTRYPOINT" => ("Entrypoint", json!(words()?)),
            "CMD" => ("Cmd", json!(words()?)),
            "HEALTHCHECK" => ("Healthcheck", health_check(rest)?),
            _ => bail!(
                "deploy/Dockerfile has {word}, and xtask/src/dist/archive.rs does not know what that is"
            ),
        };
        if config.insert(name.to_owned(), value).is_some() {
            bail!("deploy/Dockerfile has {word} twice");
        }
    }
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    Ok(json!({
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        "history": [{ "created": created, "created_by": "deploy/Dockerfile" }],
    }))
}

/// Its words, and its times in nanoseconds.
fn health_check(rest: &str) -> anyhow::Result<Value> {
    let (options, words) = rest.split_once("CMD ").context("HEALTHCHECK has no CMD")?;
    let mut test = vec!["CMD".to_owned()];
    test.extend(serde_json::from_str::<Vec<String>>(words).context("HEALTHCHECK")?);
    let mut check = json!({ "Test": test });
    for option in options.split_whitespace() {
        let (option, time) = option.split_once('=').with_context(|| format!("HEALTHCHECK {option}"))?;
        let name = match option {
            "--interval" => "Interval",
            "--timeout" => "Timeout",
            "--start-period" => "StartPeriod",
            _ => bail!("HEALTHCHECK has {option}"),
        };
        let seconds: u64 = time.trim_end_matches('s').parse().context("HEALTHCHECK takes whole seconds")?;
        check[name] = json!(seconds * 1_000_000_000);
    }
    Ok(check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_read_or_refused() {
        let file = "FROM scratch\nENV A=b \\\n  C=d\nUSER 7:7\nVOLUME /data\nEXPOSE 80\n\
                    HEALTHCHECK --interval=10s CMD [\"/check\", \"it\"]\nCMD [\"serve\"]\n";
        let image = configuration(file, "2026-11-24T00:00:00Z", "5f").unwrap();
        assert_eq!(
            image["config"],
            json!({
                "Env": ["A=b", "C=d"], "User": "7:7", "Volumes": { "/data": {} }, "ExposedPorts": { "80/tcp": {} },
                "Healthcheck": { "Test": ["CMD", "/check", "it"], "Interval": 10_000_000_000_u64 }, "Cmd": ["serve"],
            })
        );
        assert_eq!(image["rootfs"]["diff_ids"][0], "sha256:5f");
        for wrong in ["RUN make", "CMD serve", "USER 7\nUSER 8", "HEALTHCHECK --retries=2 CMD []"] {
            assert!(configuration(wrong, "", "").is_err(), "{wrong}");
        }
    }
}
