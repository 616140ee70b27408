//! Files that decide who may do what are no files to serve: who may write to them lets others in,
//! and who may read a private key is the server.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use uts_files::path::show;

/// Refuses files that clients reach beneath the directory that is served: each with the option that
/// names it. Hidden ones are not reached unless those are served.
///
/// # Errors
/// Which file, in words.
pub fn check(dir: &Path, hidden: bool, files: &[(&str, Option<&Path>)]) -> Result<(), String> {
    let Ok(served) = std::fs::metadata(dir) else { return Ok(()) };
    for (option, file) in files {
        let Some(file) = file else { continue };
        if ways(file).iter().any(|way| is_reached(way, &served, hidden)) {
            let name = |path: &Path| show(path.as_os_str().as_encoded_bytes());
            return Err(format!(
                "{option} {}: it is beneath {}, which is served, so that clients could read or replace it; keep it \
                 elsewhere",
                name(file),
                name(dir)
            ));
        }
    }
    Ok(())
}

/// Where a file is, by real directories: where its name stands, and where a link of that name
/// leads, link by link.
fn ways(file: &Path) -> Vec<PathBuf> {
    const LINKS_MAX: usize = 40;
    let (mut ways, mut at) = (Vec::new(), file.to_owned());
    for _ in 0..LINKS_MAX {
        let parent = at.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (Ok(parent), Some(name)) = (parent.canonicalize(), at.file_name()) else { break };
        ways.push(parent.join(name));
        let Ok(target) = std::fs::read_link(&at) else { break };
        at = parent.join(target);
    }
    ways.extend(file.canonicalize());
    ways
}

/// True if a directory on the way is the one that is served, and nothing behind it is hidden.
fn is_reached(way: &Path, served: &Metadata, hidden: bool) -> bool {
    let is_served = |dir: &Path| {
        std::fs::metadata(dir).is_ok_and(|there| (there.dev(), there.ino()) == (served.dev(), served.ino()))
    };
    way.ancestors().skip(1).any(|above| {
        is_served(above) && {
            let behind = way.strip_prefix(above).unwrap_or(way);
            hidden || !behind.components().any(|name| name.as_os_str().as_encoded_bytes().starts_with(b"."))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_beneath_what_is_served_are_refused_however_they_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for made in ["srv/in", "srv/.hid", "etc"] {
            std::fs::create_dir_all(at(made)).unwrap();
        }
        for made in ["srv/in/keys", "srv/.hid/keys", "etc/keys"] {
            std::fs::write(at(made), "").unwrap();
        }
        symlink(at("srv/in/keys"), at("etc/link")).unwrap();
        symlink(at("srv"), at("etc/way")).unwrap();
        symlink(at("etc/keys"), at("srv/out")).unwrap();
        symlink("link", at("etc/again")).unwrap();
        symlink(at("srv"), at("served")).unwrap();
        let refused = |dir: &str, hidden, file: &str| {
            let said = check(&at(dir), hidden, &[("--key", None), ("--authorized-keys", Some(&at(file)))]);
            if let Err(said) = &said {
                assert!(said.starts_with("--authorized-keys ") && said.contains("which is served"), "{said}");
            }
            said.is_err()
        };
        for served in ["srv", "served", "etc/way", "srv/in/.."] {
            for file in [
                "srv/in/keys",
                "etc/link",
                "etc/way/in/keys",
                "srv/out",
                "etc/again",
                "srv/new",
                "etc/../srv/in/keys",
            ] {
                assert!(refused(served, false, file), "{file} beneath {served}");
            }
            for file in ["etc/keys", "etc/new", "srv/.hid/keys"] {
                assert!(!refused(served, false, file), "{file} is not beneath {served}");
            }
            assert!(refused(served, true, "srv/.hid/keys"));
        }
        assert!(!refused("srv/in", false, "etc/way/new"));
    }
}
