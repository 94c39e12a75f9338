//! The program by pip and by npm, from their files, each in an empty environment and without a registry.

use std::path::Path;
use std::process::Command;

use tidegate_net::clock::monotonic;

use crate::packages::{MINUTE, NEXT, Packed, denial, done, limit, package, serve, set_limit, stop, text};

/// Stores a limit, has another version installed, and finds the limit there.
fn upgraded_with_its_data(program: &Path, data: &Path, upgrade: impl FnOnce()) {
    let service = serve(program, data);
    set_limit(&service, 7);
    stop(service);
    upgrade();
    let service = serve(program, data);
    assert_eq!(limit(&service), 7);
    stop(service);
}

/// pip of an environment, with no registry to ask.
fn pip(environment: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(environment.join("bin/pip"));
    command.arg("--disable-pip-version-check").args(arguments);
    command
}

#[test]
fn pip_installs_the_program_starts_it_upgrades_it_with_its_data_and_removes_it() {
    let folder = tempfile::tempdir().unwrap();
    let (environment, data) = (folder.path().join("environment"), folder.path().join("data"));
    let [now, next] = [Packed::once().now(), Packed::once().next()].map(|it| package(&it, "whl"));
    let began = monotonic();
    done(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    done(pip(&environment, &["install", "--no-index"]).arg(now));
    let program = environment.join("bin/tidegate");
    let service = serve(&program, &data);
    denial(service.http);
    assert!(began.elapsed() < MINUTE, "{:?} from the wheel to the first denial", began.elapsed());
    stop(service);
    let mut module = Command::new(environment.join("bin/python"));
    let version = text(&done(module.args(["-m", "tidegate_server", "--version"])));
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");

    upgraded_with_its_data(&program, &data, || {
        done(pip(&environment, &["install", "--no-index"]).arg(next));
        let shown = text(&done(&mut pip(&environment, &["show", "--files", "tidegate-server"])));
        assert!(shown.contains(&format!("Version: {NEXT}\n")), "{shown}");
        assert!(shown.contains("licenses/LICENSE\n") && shown.contains("licenses/NOTICE\n"), "{shown}");
    });
    done(&mut pip(&environment, &["uninstall", "--yes", "tidegate-server"]));
    assert!(!program.exists() && data.join("control.sqlite").exists());
}

#[test]
fn pip_refuses_the_program_where_glibc_is_older_than_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let wheel = package(&Packed::once().now(), "whl");
    let name = wheel.file_name().unwrap().to_str().unwrap();
    assert!(name.contains("-py3-none-manylinux_2_"), "{name}");
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv");
    let platform = format!("manylinux_2_17_{}", std::env::consts::ARCH);
    let mut command =
        pip(&tools, &["install", "--no-index", "--no-deps", "--only-binary=:all:", "--platform"]);
    let refused = command.arg(platform).arg("--target").arg(folder.path()).arg(wheel).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("is not a supported wheel"), "{said}");
}

#[test]
fn the_page_of_both_packages_names_commands_that_there_are() {
    let page = include_str!("../../../../../deploy/package/registry.md");
    let named: Vec<_> = page.split('`').filter_map(|it| it.strip_prefix("tidegate ")).collect();
    assert!(named.len() >= 3, "{named:?}");
    for command in named {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        done(program.args(command.split(' ')).arg("--help"));
    }
}

/// npm in a folder, without a registry, and with a cache of its own.
fn npm(folder: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command.arg("--offline").current_dir(folder).env("npm_config_cache", folder.join("cache"));
    command
}

#[test]
fn npm_installs_the_program_starts_it_upgrades_it_with_its_data_and_removes_it() {
    let folder = tempfile::tempdir().unwrap();
    let (app, data) = (folder.path(), folder.path().join("data"));
    let [now, next] = [Packed::once().now(), Packed::once().next()].map(|it| package(&it, "tgz"));
    let install = |file: &Path| {
        done(npm(app, "npm").args(["install", "--no-audit", "--no-fund"]).arg(file));
    };
    let began = monotonic();
    std::fs::write(app.join("package.json"), "{}").unwrap();
    install(&now);
    let program = app.join("node_modules/.bin/tidegate");
    let service = serve(&program, &data);
    denial(service.http);
    assert!(began.elapsed() < MINUTE, "{:?} from the tarball to the first denial", began.elapsed());
    stop(service);
    let version = text(&done(npm(app, "npx").args(["tidegate", "--version"])));
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");

    let installed = app.join("node_modules/tidegate-server");
    upgraded_with_its_data(&program, &data, || {
        install(&next);
        let described = std::fs::read_to_string(installed.join("package.json")).unwrap();
        assert!(described.contains(&format!("\"version\": \"{NEXT}\"")), "{described}");
        assert!(described.contains("\"glibc\""), "npm refuses it where there is another libc: {described}");
        assert!(installed.join("LICENSE").is_file() && installed.join("NOTICE").is_file());
    });
    done(npm(app, "npm").args(["uninstall", "tidegate-server"]));
    assert!(!program.exists() && data.join("control.sqlite").exists());
}
