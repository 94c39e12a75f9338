//! The image, of the archive that is offered, as its user, on a root that cannot be written, with no other file of this machine
//! in sight; and what tools for containers make of that archive and of the Dockerfile.
//!
//! It is started by chroot in a mount namespace, because containers with namespaces and groups of their own are not to be had
//! everywhere. buildah is the same code as podman, and needs neither daemon nor groups.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tidegate_net::clock::monotonic;
use tidegate_testkit::free_port;

use crate::packages::{MINUTE, Packed, administrator, denial, done, is_root, text};
use crate::support::{Tidegate, agent};

/// Where the image's own resolver is told to ask.
const NAME_SERVER: &str = "127.86.53.1";
/// Runs the words of an image, `$2` and on, as its user `$1` below its root `$0`, of which only the data can be written.
const ALONE: &str = r#"
mount --bind "$0" "$0"
mount --bind "$0/var/lib/tidegate" "$0/var/lib/tidegate"
mount -o remount,bind,ro "$0"
user="$1"; shift
exec chroot ${user:+"--userspec=$user"} "$0" "$@"
"#;

/// The archive, unpacked.
struct Image {
    root: PathBuf,
    user: String,
    environment: BTreeMap<String, String>,
    words: Vec<String>,
    port: u16,
}

impl Image {
    /// Below a folder, completed by what whoever runs containers puts there: hosts and resolver.
    fn unpacked(folder: &Path) -> Self {
        let [archive, root] = ["archive", "root"].map(|name| folder.join(name));
        for made in [&archive, &root] {
            fs::create_dir(made).unwrap();
        }
        let unpack = |file: &Path, to: &Path| {
            done(Command::new("tar").arg("-xf").arg(file).arg("--directory").arg(to));
        };
        unpack(&Packed::once().now().join("tidegate-image.tar"), &archive);
        let read = |name: &Value| -> Value {
            serde_json::from_slice(&fs::read(archive.join(name.as_str().unwrap())).unwrap()).unwrap()
        };
        let image = &read(&"manifest.json".into())[0];
        let config = &read(&image["Config"])["config"];
        unpack(&archive.join(image["Layers"][0].as_str().unwrap()), &root);
        fs::write(root.join("etc/hosts"), "127.0.0.1 by-the-file.test\n").unwrap();
        fs::write(root.join("etc/resolv.conf"), format!("nameserver {NAME_SERVER}\n")).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();

        let strings = |value: &Value| -> Vec<String> {
            value.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
        };
        let environment = strings(&config["Env"]);
        let environment = environment.iter().map(|pair| pair.split_once('=').unwrap());
        let mut environment: BTreeMap<_, _> =
            environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let port = free_port();
        let listen = environment.insert("TIDEGATE_HTTP_LISTEN".to_owned(), format!("0.0.0.0:{port}"));
        assert_eq!(listen.as_deref(), Some("0.0.0.0:4000"));
        assert_eq!(environment["TIDEGATE_DATA_DIR"], "/var/lib/tidegate");
        assert_eq!(strings(&config["Healthcheck"]["Test"]), ["CMD", "/usr/bin/tidegate", "health"]);
        assert_eq!(strings(&config["Cmd"]), ["serve"]);
        let user = config["User"].as_str().unwrap().to_owned();
        Self { root, user, environment, words: strings(&config["Entrypoint"]), port }
    }

    /// The entry point with these words, as the image's user.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = administrator("unshare");
        let path = std::env::var("PATH").unwrap();
        command.env_clear().env("PATH", format!("/usr/sbin:/sbin:{path}"));
        if !is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--mount", "sh", "-ec", ALONE]).arg(&self.root);
        command.arg(if is_root() { &self.user } else { "" }).args(&self.words).args(arguments);
        command.envs(self.environment.iter().filter(|(name, _)| *name != "PATH"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn prints(&self, arguments: &[&str]) -> String {
        text(&done(&mut self.command(arguments)))
    }
}
/// Answers every question for an IPv4 address with 127.0.0.1, and others with nothing.
fn name_server() -> Option<UdpSocket> {
    let socket = UdpSocket::bind((NAME_SERVER, 53)).ok()?;
    let server = socket.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, asker)) = server.recv_from(&mut packet) {
            // The header, and the question: a name that ends with a zero, its type, its class.
            let Some(end) = packet[12..length].iter().position(|byte| *byte == 0).map(|at| 12 + at + 5)
            else {
                continue;
            };
            let wants_address = packet[end - 3] == 1;
            let mut reply = packet[..end].to_vec();
            reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(wants_address), 0, 0, 0, 0]);
            if wants_address {
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
            }
            if server.send_to(&reply, asker).is_err() {
                return;
            }
        }
    });
    Some(socket)
}

#[test]
fn it_serves_alone_as_its_user_with_a_token_that_the_first_start_makes() {
    let folder = tempfile::tempdir().unwrap();
    Packed::once();
    let began = monotonic();
    let image = Image::unpacked(folder.path());
    let service = Tidegate::spawn(tempfile::tempdir().unwrap(), image.command(&["serve"]), &[]);
    assert_eq!(service.http.port(), image.port);
    let here = SocketAddr::from(([127, 0, 0, 1], image.port));
    denial(here);
    assert!(began.elapsed() < MINUTE, "{:?} from the archive to the first denial", began.elapsed());
    assert!(image.prints(&["health"]).contains("\"ready\":true"));
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", service.pid())).unwrap();
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/"));
    assert!(root.is_some_and(|line| line.contains(" / ro,")), "{mounts}");

    let read = |secret: &str| {
        let url = format!("http://{here}/v1/policies");
        agent().get(url).header("authorization", format!("Bearer {secret}")).call().unwrap().status().as_u16()
    };
    let token = image.prints(&["token"]);
    assert_eq!((read("guessed-guessed-guessed"), read(token.trim())), (401, 200));

    // Names, by the libraries that are inside: from the file, and from a server.
    let by_name = |name: &str| {
        image.prints(&["health", "--live", "--server", &format!("http://{name}:{}", image.port)])
    };
    assert_eq!(by_name("by-the-file.test"), "alive\n");
    match name_server() {
        Some(_kept) => assert_eq!(by_name("by-the-server.test"), "alive\n"),
        None => {
            assert!(!is_root(), "root may answer on port 53 of {NAME_SERVER}");
            tidegate_testkit::not_tested(
                "names by a server, in the image",
                "only root may answer on port 53",
            );
        }
    }

    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success() && !ended.output.contains(token.trim()), "{}", ended.output);
}

/// Paths of files below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn its_root_has_the_binary_what_that_loads_and_the_authorities() {
    let root = Packed::once().now().join("image/root");
    let mut found = Vec::new();
    files(&root, &mut found);
    let names: Vec<String> =
        found.iter().map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect();
    for wanted in ["usr/bin/tidegate", "etc/ssl/certs/ca-certificates.crt", "etc/nsswitch.conf", "etc/passwd"]
    {
        assert!(names.iter().any(|name| name == wanted), "{wanted}: {names:?}");
    }
    assert!(names.iter().any(|name| name.ends_with("libc.so.6")), "{names:?}");
    assert!(names.len() < 20, "{names:?}");
    assert!(!names.iter().any(|name| name.ends_with("/sh") || name.ends_with("/bash")), "{names:?}");
}

/// A container of buildah, and the store that it is in.
struct Container<'s> {
    store: &'s Path,
    name: String,
}

impl<'s> Container<'s> {
    fn from(store: &'s Path, image: &str) -> Self {
        let name = text(&done(buildah(store).args(["from", image]))).trim().to_owned();
        Self { store, name }
    }

    /// What whoever runs it goes by.
    fn config(&self) -> BTreeMap<&'static str, Value> {
        let said = done(buildah(self.store).args(["inspect", "--type", "container", &self.name]));
        let said: Value = serde_json::from_slice(&said.stdout).unwrap();
        let config = &said["Docker"]["config"];
        ["User", "Env", "Entrypoint", "Cmd", "Volumes", "ExposedPorts", "Healthcheck"]
            .map(|name| (name, config[name].clone()))
            .into()
    }

    /// Each file: path, kind, mode, owner and group, and the sum of what is in it.
    fn files(&self) -> String {
        let root = text(&done(buildah(self.store).args(["mount", &self.name])));
        let list =
            "find . -mindepth 1 -printf '%P %y %m %U %G\n' | sort; find . -type f | sort | xargs sha256sum";
        text(&done(Command::new("sh").args(["-ec", list]).current_dir(root.trim())))
    }
}

/// buildah with a store of its own, and without what only a system's first process could give it.
fn buildah(store: &Path) -> Command {
    let mut command = administrator("buildah");
    command.args(["--storage-driver", "vfs", "--root"]).arg(store.join("images"));
    command.arg("--runroot").arg(store.join("run")).env("HOME", store).env("XDG_RUNTIME_DIR", store);
    command
}

#[test]
fn containers_are_the_same_from_the_archive_and_from_the_dockerfile() {
    if !is_root() {
        let why = "an image has files of another user than root, whom only root has the right to be";
        return tidegate_testkit::not_tested("containers from the archive and the Dockerfile", why);
    }
    let (folder, now) = (tempfile::tempdir().unwrap(), Packed::once().now());
    let store = folder.path();
    let archive = format!("docker-archive:{}", now.join("tidegate-image.tar").display());
    let loaded = Container::from(store, &archive);
    let dockerfile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/Dockerfile");
    let mut build = buildah(store);
    build.args(["bud", "--isolation", "chroot", "--format", "docker", "--build-arg", "tree=image"]);
    done(build.args(["--tag", "localhost/built", "--file"]).arg(dockerfile).arg(&now));
    let built = Container::from(store, "localhost/built");

    assert_eq!(loaded.config(), built.config());
    assert_eq!(loaded.config()["User"], "10001:10001");
    assert_eq!(loaded.config()["Healthcheck"]["Interval"], 10_000_000_000_u64);
    let files = loaded.files();
    assert_eq!(files, built.files());
    assert!(files.contains("var/lib/tidegate d 755 10001 10001\n"), "{files}");
    let mut run = buildah(store);
    run.args(["run", "--isolation", "chroot", &loaded.name, "--", "/usr/bin/tidegate", "--version"]);
    assert!(text(&done(&mut run)).contains(env!("CARGO_PKG_VERSION")));
    // Both names that the archive has are the image's.
    let named = text(&done(buildah(store).args(["images", "--format", "{{.Name}}:{{.Tag}}"])));
    assert!(
        named.contains(concat!("tidegate:", env!("CARGO_PKG_VERSION"))) && named.contains("tidegate:latest"),
        "{named}"
    );
}
