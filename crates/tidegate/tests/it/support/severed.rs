//! Two networks and a cable between them, which a script pulls: whoever is in the far one can be reached no more, and no
//! packet tells of it.

use std::path::Path;
use std::process::{Command, Output};

/// This side is 10.77.0.1; the other one, which is the network of the process `$far`, is 10.77.0.2.
const NETWORKS: &str = r#"
set -e
ip link set lo up
unshare --net sleep 600 & far=$!
in_far() { nsenter --net=/proc/$far/ns/net "$@"; }
until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do :; done
ip link add near type veth peer name far netns $far
ip address add 10.77.0.1/24 dev near
ip link set near up
in_far ip address add 10.77.0.2/24 dev far
in_far ip link set far up
"#;

/// Runs a shell script in `folder`, for three minutes at most. It has the two networks, `in_far`, which runs a command in the far
/// one, and tidegate as `$0`; `in_far ip link set far down` pulls the cable.
pub fn run(folder: &Path, script: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--kill-after", "1", "180", "unshare", "--map-root-user", "--net", "--mount", "--pid"]);
    command.args(["--fork", "--kill-child", "--mount-proc", "sh", "-c", &format!("{NETWORKS}{script}")]);
    command.arg(env!("CARGO_BIN_EXE_tidegate")).current_dir(folder).output().unwrap()
}
