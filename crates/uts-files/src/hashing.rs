//! Hashing what is on the disk already: the costliest thing that a peer can ask for, with a few
//! hundred bytes.
//!
//! It is done a slice at a time. When nobody waits for it any more, no further slice begins; and
//! for each slice a client waits for its turn (`Resource::Processor`), so that one with many large
//! files keeps the others waiting for no longer than a slice takes.

use super::blocks::BLOCK_BYTES;
use super::error::Fault;
use super::message::{Entry, Held};
use super::sparse::{Run, Runs, hash_zeros};
use super::stream::Content;
use super::work::in_turn;
use blake3::Hasher;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use uts_ledger::Payer;

/// Bytes that are hashed in one go: within a second even from a slow disk, and long enough to be
/// worth a change of threads.
pub(super) const SLICE_BYTES: u64 = 8 * 1024 * 1024;
/// Hashes the first `bytes` of a file; returns how many there were.
/// It is done on behalf of `payer`.
pub(super) async fn hash_prefix(
    file: File,
    bytes: u64,
    name: &[u8],
    payer: &Payer,
) -> Result<(File, Hasher, u64), Fault> {
    let (mut source, mut hasher) = ((Runs::of(&file), file), Hasher::new());
    let mut done = 0;
    while done < bytes {
        let slice = SLICE_BYTES.min(bytes - done);
        let path = name.to_vec();
        let hashed;
        (source, hasher, hashed) = in_turn(payer, move || {
            let hashed = hash_slice(&mut source, done, slice, &mut hasher);
            Ok((source, hasher, hashed.map_err(|e| Fault::io(&path, &e))?))
        })
        .await?;
        done += hashed;
        if hashed < slice {
            break;
        }
    }
    Ok((source.1, hasher, done))
}

/// The content of an open file after what the receiver holds, if that is a prefix of it.
pub(super) async fn content_after(
    file: File,
    entry: Entry,
    held: Option<Held>,
    payer: &Payer,
) -> Result<Content, Fault> {
    let Some(held) = held.filter(|held| held.bytes <= entry.size) else {
        return Ok(Content { file, entry, from: 0, hasher: Hasher::new(), delta: None, packing: None });
    };
    let (file, hasher, bytes) = hash_prefix(file, held.bytes, &entry.path, payer).await?;
    if bytes == held.bytes && *hasher.finalize().as_bytes() == held.hash {
        return Ok(Content { file, entry, from: bytes, hasher, delta: None, packing: None });
    }
    Ok(Content { file, entry, from: 0, hasher: Hasher::new(), delta: None, packing: None })
}

/// Hashes this many bytes of a file from `start` on; fewer if it ends before.
fn hash_slice(
    (runs, file): &mut (Runs, File),
    start: u64,
    bytes: u64,
    hasher: &mut Hasher,
) -> io::Result<u64> {
    let mut block = vec![0; BLOCK_BYTES];
    let (mut at, end) = (start, start.saturating_add(bytes));
    while at < end {
        let run = match runs.next(file, at, end)? {
            // Beyond the end of a file that has become shorter there is a hole too.
            Run::Hole(bytes) if at + bytes <= file.metadata()?.len() => {
                hash_zeros(hasher, bytes);
                at += bytes;
                continue;
            }
            Run::Data(bytes) | Run::Hole(bytes) => bytes,
        };
        let want = usize::try_from(run).map_or(BLOCK_BYTES, |run| run.min(BLOCK_BYTES));
        match file.read_at(block.get_mut(..want).unwrap_or_default(), at)? {
            0 => break,
            n => {
                hasher.update(block.get(..n).unwrap_or_default());
                at += n as u64;
            }
        }
    }
    Ok(at - start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::tests::payer;
    use std::io::Write;

    #[tokio::test]
    async fn slices_make_the_hash_of_the_whole() {
        let data: Vec<u8> = (0..2 * SLICE_BYTES + 7).map(|i| (i % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&data).unwrap();
        let payer = payer();
        for (bytes, expected) in [(0, 0), (5, 5), (SLICE_BYTES, SLICE_BYTES), (u64::MAX, data.len() as u64)] {
            let file = file.try_clone().unwrap();
            let (_, hasher, done) = hash_prefix(file, bytes, b"f", &payer).await.unwrap();
            assert_eq!(done, expected);
            assert_eq!(hasher.finalize(), blake3::hash(&data[..expected as usize]));
        }
    }
}
