//! Dictionaries of the user (`--dictionary`), for a mechanism that compresses messages with what
//! both ends have.

use crate::given::read_file;
use std::path::Path;
use uts_functions::presentation::dictionary::{self, DICTIONARY_BYTES_MAX};

/// Reads a dictionary, and keeps it for as long as the program runs.
///
/// # Errors
/// A line that says what is wrong with the file.
pub fn register(file: &Path) -> Result<u32, String> {
    let bytes = read_file("--dictionary", file, DICTIONARY_BYTES_MAX, "dictionary")?;
    dictionary::register(&bytes).map_err(|error| format!("--dictionary {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts::Requirements;
    use uts_functions::Function;
    use uts_tunnel::dictionary::complete;

    fn asked(presentation: &str) -> String {
        let mut requirements = Requirements::bulk();
        requirements.set("uts.profile.presentation", presentation).expect("in the library");
        complete(&mut requirements);
        requirements.pinned(Function::Presentation).expect("set").to_string()
    }

    #[test]
    fn what_needs_a_dictionary_gets_the_first() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, content: &[u8]| {
            let file = dir.path().join(name);
            std::fs::write(&file, content).expect("written");
            file
        };
        let wrong = |name: &str, content: &[u8]| register(&write(name, content)).expect_err(name);
        assert!(
            wrong("short", b"seven b")
                .ends_with("short: a dictionary of 7 bytes (expected 8 to 1048576 bytes)")
        );
        let damaged = [&0xec30_a437_u32.to_le_bytes()[..], &[7; 100]].concat();
        assert!(wrong("damaged", &damaged).contains("damaged: the dictionary is damaged"));
        let long = wrong("long", &vec![7; DICTIONARY_BYTES_MAX + 1]);
        assert!(long.ends_with("long: longer than 1048576 bytes, no dictionary is"), "{long}");
        let none = register(&dir.path().join("none")).expect_err("no such file");
        assert!(none.starts_with("--dictionary ") && none.contains("none: No such file"), "{none}");
        assert_eq!(asked("zstd"), "uts.profile.presentation=zstd", "nothing was registered");
        let first = register(&write("first", b"what messages have in common")).expect("a dictionary");
        let second = register(&write("second", b"what others have in common")).expect("a dictionary");
        for (presentation, expected) in [
            ("zstd", format!("zstd(dictionary={first})")),
            ("zstd(level=9)", format!("zstd(level=9,dictionary={first})")),
            (&format!("zstd(dictionary={second})"), format!("zstd(dictionary={second})")),
            ("lz4", "lz4".to_owned()),
        ] {
            assert_eq!(asked(presentation), format!("uts.profile.presentation={expected}"));
        }
    }
}
