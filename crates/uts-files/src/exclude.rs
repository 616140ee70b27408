//! Entries that are left out of the directories that are copied.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Patterns of names that are left out, with everything beneath them.
///
/// `*` and `?` stand for characters of a name, `**` for any number of directories, `[a-z]` and
/// `{a,b}` for one of several. A pattern without `/` is compared with each name, one with it with
/// the path from the directory that is copied; one that ends with `/` is of directories only.
#[derive(Clone, Debug, Default)]
pub struct Exclude(Arc<Patterns>);

#[derive(Debug, Default)]
struct Patterns {
    names: GlobSet,
    paths: GlobSet,
    directory_names: GlobSet,
    directory_paths: GlobSet,
}

impl Exclude {
    /// Reads patterns.
    ///
    /// # Errors
    /// The pattern that is none, and why, in words.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Exclude, String> {
        let mut sets = [const { Vec::new() }; 4];
        for pattern in patterns.iter().map(AsRef::as_ref) {
            let (text, of_directories) = match pattern.strip_suffix('/') {
                Some(text) => (text, true),
                None => (pattern, false),
            };
            let has_slash = text.contains('/');
            let text = text.strip_prefix('/').unwrap_or(text);
            if text.is_empty() {
                return Err(format!("`{pattern}` is no pattern of a name"));
            }
            let glob = GlobBuilder::new(text).literal_separator(true).build();
            let glob = glob.map_err(|error| format!("`{pattern}` is no pattern: {}", error.kind()))?;
            if let Some(set) = sets.get_mut(usize::from(has_slash) + 2 * usize::from(of_directories)) {
                set.push(glob);
            }
        }
        let [names, paths, directory_names, directory_paths] = sets.map(|globs| {
            let mut builder = GlobSetBuilder::new();
            for glob in globs {
                builder.add(glob);
            }
            builder.build().map_err(|error| error.to_string())
        });
        Ok(Exclude(Arc::new(Patterns {
            names: names?,
            paths: paths?,
            directory_names: directory_names?,
            directory_paths: directory_paths?,
        })))
    }

    /// True if an entry of a directory is left out, itself or with a directory that it is in.
    /// `path` is the path from the directory that is copied.
    pub(super) fn has(&self, path: &[u8], is_directory: bool) -> bool {
        let above = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| at);
        above.map(|at| (path.get(..at).unwrap_or_default(), true)).chain([(path, is_directory)]).any(
            |(path, is_directory)| {
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
                let (name, path) = (Path::new(OsStr::from_bytes(name)), Path::new(OsStr::from_bytes(path)));
                let Patterns { names, paths, directory_names, directory_paths } = &*self.0;
                names.is_match(name)
                    || paths.is_match(path)
                    || (is_directory && (directory_names.is_match(name) || directory_paths.is_match(path)))
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_of_names_or_of_paths() {
        let exclude = Exclude::new(&["*.o", "/top", "a/*.txt", "cache/", "**/deep/x"]).unwrap();
        for (path, is_directory, is_out) in [
            ("b.o", false, true),
            ("d/b.o", false, true),
            ("b.os", false, false),
            ("top", false, true),
            ("d/top", false, false),
            ("a/b.txt", false, true),
            ("a/b/c.txt", false, false),
            ("d/a/b.txt", false, false),
            ("cache", false, false),
            ("cache", true, true),
            ("d/cache/any/thing", false, true),
            ("q/deep/x", false, true),
            ("top/below", false, true),
        ] {
            assert_eq!(exclude.has(path.as_bytes(), is_directory), is_out, "{path}");
        }
        assert!(!Exclude::default().has(b"x", true));
        assert!(exclude.has(b"\xff.o", false), "names need not be text");
    }

    #[test]
    fn what_is_no_pattern_is_named() {
        for wrong in ["[", "", "/", "a{b"] {
            let why = Exclude::new(&[wrong]).unwrap_err();
            assert!(why.contains(&format!("`{wrong}`")), "{why}");
        }
    }
}
