//! Files of a run that may be compressed (gzip, RFC 1952), which the programs of others read as
//! they are: Wireshark, pandas, DuckDB.

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};

/// End of the name of a compressed file, behind its own.
pub const SUFFIX: &str = ".gz";

/// The place of a file, or of its compressed form if only that is there.
pub fn place(path: &Path) -> PathBuf {
    let compressed = with_suffix(path);
    if !path.is_file() && compressed.is_file() { compressed } else { path.to_owned() }
}

/// Opens a file, or its compressed form if only that is there: what is read is the same.
///
/// # Errors
/// There is neither, or it cannot be opened. Errors of the compressed form come with what is read.
pub fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let place = place(path);
    let file = File::open(&place)?;
    Ok(if is_compressed(&place) { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
}

/// The length of a file's contents, in bytes, compressed or not.
///
/// # Errors
/// It cannot be read.
pub(crate) fn contents_bytes(path: &Path) -> io::Result<u64> {
    match is_compressed(path) {
        true => io::copy(&mut open(path)?, &mut io::sink()),
        false => Ok(fs::metadata(path)?.len()),
    }
}

/// The name of a file's contents.
pub(crate) fn contents_name(path: &Path) -> PathBuf {
    if is_compressed(path) { path.with_extension("") } else { path.to_owned() }
}

/// Compresses the files of a directory in their places, one after the other. Says how many bytes
/// there were at most meanwhile.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn compress_all(dir: &Path) -> io::Result<u64> {
    let (mut files, mut bytes) = (Vec::new(), 0);
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += entry.metadata()?.len();
        if !is_compressed(&entry.path()) {
            files.push(entry.path());
        }
    }
    files.sort();
    let mut most = bytes;
    for path in files {
        let mut file = File::open(&path)?;
        let compressed = File::create(with_suffix(&path))?;
        let mut encoder = GzEncoder::new(BufWriter::new(compressed), Compression::default());
        io::copy(&mut file, &mut encoder)?;
        let compressed = encoder.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        compressed.sync_data()?;
        bytes += compressed.metadata()?.len();
        most = most.max(bytes);
        bytes -= file.metadata()?.len();
        fs::remove_file(&path)?;
    }
    Ok(most)
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == &SUFFIX[1..])
}

fn with_suffix(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(SUFFIX);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_files_are_read_as_what_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let files = [("a.csv", "t_s,flow\n".repeat(10_000).into_bytes()), ("b.pcap", vec![7; 70_000])];
        for (name, contents) in &files {
            fs::write(dir.path().join(name), contents).unwrap();
        }
        fs::write(dir.path().join("empty.csv"), []).unwrap();
        let raw: u64 = files.iter().map(|(_, contents)| contents.len() as u64).sum();
        let most = compress_all(dir.path()).unwrap();
        let left: Vec<PathBuf> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.len() == 3 && left.iter().all(|path| is_compressed(path)), "{left:?}");
        let bytes: u64 = left.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(bytes < raw / 10, "{bytes} of {raw}");
        assert!(most > raw && most <= raw + bytes, "{most} of {raw}");
        for (name, contents) in &files {
            let (mut read, path) = (Vec::new(), dir.path().join(name));
            open(&path).unwrap().read_to_end(&mut read).unwrap();
            assert!(read == *contents, "{name}");
            assert_eq!(contents_bytes(&place(&path)).unwrap(), contents.len() as u64);
            assert_eq!(contents_name(&place(&path)), path);
        }
        // A second time nothing is left to do.
        assert_eq!(compress_all(dir.path()).unwrap(), bytes);
        assert_eq!(open(&dir.path().join("c.csv")).err().unwrap().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_compressed_file_that_is_cut_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        fs::write(&path, (0..9999).map(|n| format!("{n}\n")).collect::<String>()).unwrap();
        compress_all(dir.path()).unwrap();
        let whole = fs::read(place(&path)).unwrap();
        fs::write(place(&path), &whole[..whole.len() / 2]).unwrap();
        assert!(open(&path).unwrap().read_to_end(&mut Vec::new()).is_err());
    }
}
