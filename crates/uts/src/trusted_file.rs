//! Files that say whom this program trusts: only their owner and root may be able to change them,
//! for whoever can change one lets himself in. As ssh has it (`StrictModes`), for the file and the
//! directory that it is in.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Opens such a file.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::PermissionDenied`], in words, if somebody else may change
/// the file: it belongs to another user than this process's and root, group or others may write to
/// it, or the same holds for its directory and the directory keeps no names of others (sticky).
/// What is no regular file, as a pipe, is not looked at.
pub fn open_trusted(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    check(&file.metadata()?, path)?;
    Ok(file)
}

/// Makes a file that only this user may read, or opens one that is there, to append to it.
pub(crate) fn append_secret(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes the file to which `SSLKEYLOGFILE` points so that only this user may read it, if it is not
/// there yet.
///
/// # Errors
/// It can neither be made nor written.
pub fn make_key_log(path: &Path) -> io::Result<()> {
    append_secret(path).map(drop)
}

#[cfg(not(unix))]
fn check(_: &Metadata, _: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn check(file: &Metadata, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    if !file.is_file() {
        return Ok(());
    }
    let own = rustix::process::geteuid().as_raw();
    let judge = |what: &Metadata, name: &Path, is_directory: bool| {
        let mode = what.mode() & 0o7777;
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        let name = name.display();
        if what.uid() != own && what.uid() != 0 {
            return refuse(format!(
                "others could change it: {name} belongs to user {}, not to this one or root",
                what.uid()
            ));
        }
        let is_sticky = is_directory && mode & 0o1000 != 0;
        if mode & 0o022 != 0 && !is_sticky {
            return refuse(format!(
                "others could change it: {name} has mode {mode:03o}; `chmod go-w` takes that away"
            ));
        }
        Ok(())
    };
    judge(file, path, false)?;
    // A link stands in one directory, and leads to another.
    let real = path.canonicalize()?;
    for place in [path, &real] {
        let directory = place.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        judge(&std::fs::metadata(directory)?, directory, true)?;
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_others_may_write_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let place = dir.path().join("place");
        std::fs::create_dir(&place).expect("made");
        let path = place.join("file");
        std::fs::write(&path, "x").expect("written");
        let mode = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).expect("set");
        for (of_file, of_place, is_trusted) in [
            (0o600, 0o700, true),
            (0o644, 0o755, true),
            (0o664, 0o755, false),
            (0o646, 0o755, false),
            (0o644, 0o775, false),
            (0o644, 0o757, false),
            (0o644, 0o1777, true),
        ] {
            mode(&path, of_file);
            mode(&place, of_place);
            let opened = open_trusted(&path);
            assert_eq!(opened.is_ok(), is_trusted, "{of_file:o} in {of_place:o}: {opened:?}");
            if let Err(error) = opened {
                let said = error.to_string();
                assert!(said.contains("others could change it") && said.contains("chmod go-w"), "{said}");
            }
        }
        mode(&path, 0o600);
        mode(&place, 0o700);
        // A link is no way around.
        let open_to_all = dir.path().join("open");
        std::fs::create_dir(&open_to_all).expect("made");
        symlink(&path, open_to_all.join("link")).expect("made");
        assert!(open_trusted(&open_to_all.join("link")).is_ok());
        mode(&open_to_all, 0o777);
        assert!(open_trusted(&open_to_all.join("link")).is_err());
        assert!(open_trusted(&place.join("absent")).is_err_and(|e| e.kind() == io::ErrorKind::NotFound));
        assert!(open_trusted(Path::new("/dev/null")).is_ok(), "a device is no file of keys");
    }

    #[test]
    fn secrets_are_for_their_user_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("keys.log");
        make_key_log(&path).expect("made");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    }
}
