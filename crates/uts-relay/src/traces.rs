//! Traces of delivery opportunities, from files.

use std::path::Path;
use std::sync::Arc;
use uts_path::Trace;

/// Most bytes that a trace's file may have: 256 MiB, some nine hours at 12 Mbit/s.
const MAX_BYTES: u64 = 256 << 20;

/// Reads a trace in Mahimahi's format, as [`PathConfig::resolve`](uts_path::PathConfig::resolve)
/// asks for.
///
/// # Errors
/// In words: the file cannot be read or is too big, or the line that is wrong.
pub fn read(name: impl AsRef<Path>) -> Result<Arc<Trace>, String> {
    let unreadable = |cause| format!("cannot read it: {cause}");
    let bytes = std::fs::metadata(&name).map_err(unreadable)?.len();
    if bytes > MAX_BYTES {
        return Err(format!("it has {bytes} bytes; a trace may have {MAX_BYTES}"));
    }
    let text = std::fs::read_to_string(&name).map_err(unreadable)?;
    text.parse().map(Arc::new).map_err(|e: uts_path::SpecError| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_or_the_error_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lte");
        assert!(read(&file).unwrap_err().starts_with("cannot read it: "));
        std::fs::write(&file, "3\n5\n").unwrap();
        assert_eq!(read(&file).unwrap().times_ms(), [3, 5]);
        std::fs::write(&file, "3\nfive\n").unwrap();
        assert!(read(&file).unwrap_err().starts_with("line 2: must be a time"));
        assert!(read(directory.path()).is_err());
    }
}
