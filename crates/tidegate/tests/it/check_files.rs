//! What `tidegate check` calls good can start here: it looks at the files, folders and addresses that a configuration names.
//! What it calls wrong says what would be right.

use std::fs;
use std::path::Path;

use crate::support::binary;

const GATEWAY: &str = "gateway.listener = [{ listen = '127.0.0.1:0' }]\nupstream = [{ name = 'app', servers = ['http://127.0.0.1:3000'] }]\n\
                       route = [{ name = 'app', upstream = 'app' }]\n";
const EDGE: &str = "[[edge.listener]]\nlisten = '127.0.0.1:PORT'\n[[edge.backend]]\nname = 'a'\naddress = '127.0.0.1:3000'\n";

/// The exit status of a command on the file `t.toml` of the folder, and what it says.
fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = binary();
    for listen in ["HTTP", "GRPC", "RESP", "INTAKE", "EDGE_API"] {
        command.env(format!("TIDEGATE_{listen}_LISTEN"), "127.0.0.1:0");
    }
    let output = command.args(arguments).current_dir(folder).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn what_serve_cannot_start_with_is_a_mistake_of_check() {
    let port = tidegate_testkit::free_port().to_string();
    let edge = EDGE.replace("PORT", &port);
    let second = format!("[[edge.listener]]\nlisten = '0.0.0.0:{port}'\napp = 'x'\n");
    let cases = [
        ("edge.country_database", format!("edge.country_database = 'none.mmdb'\n{edge}")),
        ("edge.country_database", format!("edge.country_database = 'file'\n{edge}")),
        ("access_log.to", format!("access_log.to = 'none/log'\n{GATEWAY}")),
        ("access_log.to", format!("access_log.to = 'folder'\n{GATEWAY}")),
        ("data_dir", format!("data_dir = 'file'\n{GATEWAY}")),
        ("data_dir", format!("data_dir = 'file/data'\n{GATEWAY}")),
        ("edge.listener[1].listen", format!("{edge}{second}")),
    ];
    for (setting, text) in cases {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("file"), "hello").unwrap();
        fs::create_dir(folder.join("folder")).unwrap();
        fs::write(folder.join("t.toml"), &text).unwrap();
        let (code, said) = run(folder, &["check", "t.toml"]);
        assert!(code == Some(2) && said.starts_with("t.toml:") && said.contains(setting), "{text}\n{said}");
        let (code, said) = run(folder, &["serve", "--config", "t.toml"]);
        assert!([Some(1), Some(2)].contains(&code), "{text}\n{said}");
    }
}

#[test]
fn an_address_of_another_machine_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    // 203.0.113.0/24 is for documents: no machine has it.
    let text = GATEWAY.replace("127.0.0.1:0", "203.0.113.5:8080");
    fs::write(folder.path().join("t.toml"), text).unwrap();
    let (code, said) = run(folder.path(), &["check", "t.toml"]);
    let warning =
        "warning: gateway.listener[0].listen is 203.0.113.5:8080, and this machine has no such address";
    assert!(code == Some(0) && said.contains(warning), "{said}");
}

#[test]
fn an_edge_of_which_names_have_no_address_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let [edge, names] = [(); 2].map(|()| tidegate_testkit::free_port());
    let check = |advertise: &str| {
        let text = format!(
            "[edge]\nregion = 'sa'\napi_listen = 'off'\ndns_listen = '127.0.0.1:{names}'\n{advertise}\n\
             listener = [{{ listen = '0.0.0.0:{edge}' }}]\n"
        );
        fs::write(folder.path().join("t.toml"), text).unwrap();
        run(folder.path(), &["check", "t.toml"])
    };
    let (code, said) = check("");
    let warning = "is on every address of its machine, so that sa.pops.internal has no address of it: say in edge.advertise";
    assert!(code == Some(0) && said.contains(warning), "{said}");
    let (code, said) = check("advertise = ['203.0.113.7']");
    assert!(code == Some(0) && !said.contains("pops.internal"), "{said}");
    let (code, said) = check("advertise = ['0.0.0.0']");
    assert!(code == Some(2) && said.contains("edge.advertise"), "{said}");
}

#[test]
fn a_misspelt_list_of_a_group_is_answered_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.toml"), "[[edge.backends]]\nname = 'a'\naddress = '127.0.0.1:1'\n")
        .unwrap();
    let (code, said) = run(folder.path(), &["check", "t.toml"]);
    let problem = "edge.backends: is not a known key; did you mean \"backend\"?";
    assert!(code == Some(2) && said.contains(problem), "{said}");
    assert!(said.contains(", listener, backend, place)"), "{said}");
}
