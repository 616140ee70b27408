//! The file that is carried, and its hash.

use super::check_stop;
use anyhow::{Context, Result, bail};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use ring::digest;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use uts_record::demo::FileFacts;

const CHUNK_BYTES: usize = 1 << 20;

/// Makes a file that follows from the seed, which cannot be compressed.
pub(super) fn make(dir: &Path, bytes: u64, seed: u64, stop: &AtomicBool) -> Result<(PathBuf, FileFacts)> {
    if bytes == 0 {
        bail!("a file of no bytes has nothing to carry");
    }
    let path = dir.join("demo.bin");
    let cannot = || format!("cannot write {}", path.display());
    let mut file = File::create(&path).with_context(cannot)?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        check_stop(stop)?;
        random.fill_bytes(&mut chunk);
        let part = chunk.get(..usize::try_from(left).unwrap_or(CHUNK_BYTES)).unwrap_or(&chunk);
        file.write_all(part).with_context(cannot)?;
        left -= part.len() as u64;
    }
    drop(file);
    let sha256 = hash(&path, stop)?;
    Ok((path, FileFacts { name: "demo.bin".into(), bytes, sha256, generated: true }))
}

/// Looks at a given file.
pub(super) fn examine(path: &Path, stop: &AtomicBool) -> Result<FileFacts> {
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !metadata.is_file() {
        bail!("{} is not a file", path.display());
    }
    if metadata.len() == 0 {
        bail!("{} is empty: there is nothing to carry", path.display());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(FileFacts { name, bytes: metadata.len(), sha256: hash(path, stop)?, generated: false })
}

/// The name that the copy gets: the file's own, as far as it means nothing in a URL or to a shell.
pub(super) fn destination_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let name: String = name.chars().map(plain).take(100).collect();
    if name.starts_with(['.', '-']) || name.is_empty() { format!("file{name}") } else { name }
}

/// The SHA-256 of a file's contents, in hexadecimal.
pub(super) fn hash(path: &Path, stop: &AtomicBool) -> Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(cannot)?;
    let mut context = digest::Context::new(&digest::SHA256);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        check_stop(stop)?;
        let count = file.read(&mut chunk).with_context(cannot)?;
        if count == 0 {
            break;
        }
        context.update(chunk.get(..count).unwrap_or_default());
    }
    Ok(context.finish().as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_follows_from_its_seed() {
        let dir = tempfile::tempdir().unwrap();
        let go = AtomicBool::new(false);
        let hash_of = |seed| make(dir.path(), 2_500_001, seed, &go).unwrap().1.sha256;
        assert_eq!(hash_of(1), hash_of(1));
        assert_ne!(hash_of(1), hash_of(2));
        assert_eq!(std::fs::metadata(dir.path().join("demo.bin")).unwrap().len(), 2_500_001);
    }

    #[test]
    fn the_hash_is_sha256() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        let facts = examine(&path, &AtomicBool::new(false)).unwrap();
        assert_eq!(facts.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn what_cannot_be_carried_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        let go = AtomicBool::new(false);
        let refused = |path: &Path| examine(path, &go).unwrap_err().to_string();
        assert!(refused(&empty).ends_with("is empty: there is nothing to carry"));
        assert!(refused(dir.path()).ends_with("is not a file"));
        assert!(refused(&dir.path().join("none")).starts_with("cannot read "));
        assert!(hash(&empty, &AtomicBool::new(true)).is_err());
    }

    #[test]
    fn destinations_are_plain_names() {
        assert_eq!(destination_name("a b?.tar.gz"), "a_b_.tar.gz");
        assert_eq!(destination_name(".."), "file..");
        assert_eq!(destination_name("</script>"), "__script_");
    }
}
