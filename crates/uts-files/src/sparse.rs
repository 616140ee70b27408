//! Holes of sparse files: they are found where the file system tells of them (lseek(2) with
//! SEEK_DATA and SEEK_HOLE), carried by their length, and made again.

use blake3::Hasher;
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The longest hole that is carried at once, in bytes: hashing it takes a tenth of a second.
pub(super) const HOLE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes in a block as `stat` counts them, whatever the file system has.
const STAT_BLOCK_BYTES: u64 = 512;

/// Next stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// This many bytes of content.
    Data(u64),
    /// This many bytes that read as zeros.
    Hole(u64),
}

/// A file as data and holes.
#[derive(Debug)]
pub(super) struct Runs {
    /// It has fewer blocks than its length takes.
    has_holes: bool,
    /// Where the data ends that was found last.
    data_ends_at: u64,
}

impl Runs {
    /// Of an open file.
    pub(super) fn of(file: &File) -> Runs {
        let has_holes = file.metadata().is_ok_and(|m| m.blocks() * STAT_BLOCK_BYTES < m.len());
        Runs { has_holes, data_ends_at: 0 }
    }

    /// True if there may be holes.
    pub(super) fn has_holes(&self) -> bool {
        self.has_holes
    }

    /// Stretch at `at`, up to `end`. Moves the file's position.
    pub(super) fn next(&mut self, file: &File, at: u64, end: u64) -> io::Result<Run> {
        let left = end.saturating_sub(at);
        if !self.has_holes {
            return Ok(Run::Data(left));
        }
        if at < self.data_ends_at {
            return Ok(Run::Data(left.min(self.data_ends_at - at)));
        }
        let data_at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data_at) => data_at,
            // Nothing but a hole up to the end.
            Err(rustix::io::Errno::NXIO) => end,
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {
                self.has_holes = false;
                return Ok(Run::Data(left));
            }
            Err(error) => return Err(error.into()),
        };
        if data_at > at {
            return Ok(Run::Hole(data_at.min(end).saturating_sub(at)));
        }
        self.data_ends_at = rustix::fs::seek(file, SeekFrom::Hole(at))?;
        Ok(Run::Data(left.min(self.data_ends_at.saturating_sub(at)).max(1)))
    }
}

/// Adds zeros to a hash.
pub(super) fn hash_zeros(hasher: &mut Hasher, mut bytes: u64) {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    while bytes > 0 {
        let n = usize::try_from(bytes).map_or(ZEROS.len(), |bytes| bytes.min(ZEROS.len()));
        hasher.update(ZEROS.get(..n).unwrap_or_default());
        bytes -= n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn runs_are_the_whole_file_in_order() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10_000_000).unwrap();
        for at in [1_000_000, 1_004_096, 9_999_000] {
            file.write_all_at(&[7; 1000], at).unwrap();
        }
        let mut runs = Runs::of(&file);
        let (mut at, mut holes) = (0, 0);
        let end = file.metadata().unwrap().len();
        while at < end {
            let (bytes, is_hole) = match runs.next(&file, at, end).unwrap() {
                Run::Data(bytes) => (bytes, false),
                Run::Hole(bytes) => (bytes, true),
            };
            assert!(bytes > 0 && at + bytes <= end);
            if is_hole {
                holes += bytes;
                let mut block = vec![1; usize::try_from(bytes).unwrap()];
                file.read_exact_at(&mut block, at).unwrap();
                assert!(block.iter().all(|&byte| byte == 0), "content in a hole");
            }
            at += bytes;
        }
        assert_eq!(at, end);
        assert!(holes > 9_000_000 || !Runs::of(&file).has_holes, "{holes}");
    }

    #[test]
    fn zeros_are_hashed_as_if_they_were_read() {
        let mut hasher = Hasher::new();
        hash_zeros(&mut hasher, 200_001);
        assert_eq!(hasher.finalize(), blake3::hash(&vec![0; 200_001]));
    }
}
