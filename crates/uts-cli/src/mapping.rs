//! The administrator's mapping (`--mapping`): numbers by which this end writes functions and
//! mechanisms. It holds for all connections of the program.

use crate::given::read_file;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use uts::Connection;
use uts_engine::{MAPPING_BYTES_MAX, Mapping};

static GIVEN: RwLock<Option<Arc<Mapping>>> = RwLock::new(None);

/// Reads a file, and has the connections that are made from now on keep to it.
///
/// # Errors
/// A line that says what is wrong with the file, where, and what was expected.
pub fn register(file: &Path) -> Result<(), String> {
    let bytes = read_file("--mapping", file, MAPPING_BYTES_MAX, "mapping")?;
    let shown = file.display().to_string();
    let text = String::from_utf8(bytes).map_err(|error| format!("--mapping {shown}: {error}"))?;
    let mapping = Mapping::read(&shown, &text).map_err(|error| format!("--mapping {error}"))?;
    *GIVEN.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(mapping));
    Ok(())
}

/// The numbers that were given.
pub fn given() -> Option<Arc<Mapping>> {
    GIVEN.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Difference between the numbers of a connection's two ends, in words.
pub fn difference(connection: &Connection) -> Option<String> {
    connection.inspect(|connection| connection.numbers_difference()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_its_place() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("numbers.toml");
        let shown = file.display();
        let missing = register(&file).expect_err("it is not there");
        assert!(missing.starts_with(&format!("--mapping {shown}: ")), "{missing}");
        std::fs::write(&file, "[functions]\nfec = 4\n[fek]\n").expect("written");
        let wrong = register(&file).expect_err("there is no such function");
        let words = format!("--mapping {shown}:3: there is no table `fek`; did you mean `fec`?");
        assert_eq!(wrong, words);
        std::fs::write(&file, vec![b'#'; MAPPING_BYTES_MAX + 1]).expect("written");
        let long = register(&file).expect_err("it is too long");
        assert_eq!(long, format!("--mapping {shown}: longer than 65536 bytes, no mapping is"));
        assert_eq!(given(), None, "nothing of it is taken");
    }
}
