//! The folder that `deploy/Dockerfile` makes an image of: a root with the binary and what it needs of this
//! system, and the empty folder of its data.
//!
//! The libraries are the ones that the loader finds for the binary here, so the image is of this distribution.
//! `archive.rs` makes one file of it, for who does not build it where it was made.
//!
//! Since glibc 2.34 names are resolved by the library itself (`files` and `dns`); where older ones load a
//! library for that, it is taken too.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::{Dist, tree};
use crate::chore::capture;

/// The user of the image, by number, so that whoever runs it can demand that it is not root.
pub(super) const USER: u32 = 10_001;
/// Debian's and Red Hat's places of the authorities that connections by TLS are verified against.
const AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
/// What older glibc loads to resolve names, beside itself.
const NAMES: [&str; 3] = ["libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2"];

/// Writes `image/`.
///
/// # Errors
/// When a library or the list of authorities is missing.
pub(super) fn folder(dist: &Dist, binary: &Path) -> anyhow::Result<()> {
    let image = dist.to.join("image");
    let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
    let put = |place: &str, bytes: &[u8], mode| tree::put(&image, place, bytes, mode);
    put("root/usr/bin/tidegate", &read(binary)?, 0o755)?;
    let linked = libraries(&capture(Command::new("ldd").arg(binary))?);
    let beside = linked.iter().find(|path| path.ends_with("libc.so.6")).context("ldd names no libc")?.clone();
    let names = NAMES.iter().map(|name| beside.with_file_name(name)).filter(|path| path.exists());
    for library in linked.iter().cloned().chain(names) {
        put(&format!("root{}", library.display()), &read(&library)?, 0o755)?;
    }
    let authorities = AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
    let authorities = authorities.context("no list of authorities: install ca-certificates")?;
    put("root/etc/ssl/certs/ca-certificates.crt", &read(authorities)?, 0o644)?;
    put("root/etc/nsswitch.conf", b"hosts: files dns\n", 0o644)?;
    let user = format!("tidegate:x:{USER}:{USER}:Tidegate:/var/lib/tidegate:/usr/sbin/nologin\n");
    put("root/etc/passwd", user.as_bytes(), 0o644)?;
    put("root/etc/group", format!("tidegate:x:{USER}:\n").as_bytes(), 0o644)?;
    put("root/usr/share/doc/tidegate/copyright", &read(&dist.source("LICENSE"))?, 0o644)?;
    put("root/usr/share/doc/tidegate/NOTICE", &read(&dist.to.join("NOTICE"))?, 0o644)?;
    // The folder of the data stands in one of root's.
    for folder in ["data", "root/var/lib"] {
        std::fs::create_dir_all(image.join(folder)).with_context(|| folder.to_owned())?;
    }
    tree::settle(dist, &image)
}

/// The files in what `ldd` prints.
fn libraries(listed: &str) -> Vec<PathBuf> {
    let file = |line: &str| {
        let found = line.split_once("=> ").map_or(line, |(_, found)| found);
        found.split_whitespace().next().filter(|path| path.starts_with('/')).map(PathBuf::from)
    };
    listed.lines().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found_in_what_ldd_prints() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x0000)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x0000)\n\tlibx.so => not found\n";
        let found = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(libraries(listed), found);
    }
}
