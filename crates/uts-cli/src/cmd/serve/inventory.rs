//! How many files a directory holds: what a server says at first, so that a wrong directory is noticed.

use crate::ui::Clock;
use std::path::Path;

/// Entries that are looked at: a server is not to wait for a count that nobody reads to its last digit.
const ENTRIES_MAX: u64 = 10_000;
/// How long they are looked at, in seconds: file systems may be slow.
const SECONDS_MAX: f64 = 1.0;

/// Files that were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// So many at least.
    pub files: u64,
    /// Not all directories have been looked into.
    pub has_more: bool,
}

/// Counts the regular files beneath a directory, as far as they may be seen. Links are not followed.
pub fn count(dir: &Path) -> Inventory {
    count_at_most(dir, ENTRIES_MAX)
}

fn count_at_most(dir: &Path, entries_max: u64) -> Inventory {
    let clock = Clock::start();
    let mut found = Inventory::default();
    let mut entries = 0;
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        // A directory that may not be read serves nothing.
        let Ok(listing) = std::fs::read_dir(dir) else { continue };
        for entry in listing.flatten() {
            entries += 1;
            if entries > entries_max || clock.seconds() > SECONDS_MAX {
                return Inventory { has_more: true, ..found };
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if kind.is_file() => found.files += 1,
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        for name in ["1", "a/2", "a/b/3"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        // A way round in a circle.
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/round")).unwrap();
        assert_eq!(count(dir.path()), Inventory { files: 3, has_more: false });
        let cut = count_at_most(dir.path(), 2);
        assert!(cut.has_more && cut.files <= 2, "{cut:?}");
    }
}
