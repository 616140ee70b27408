//! Difference between a file and the one that its receiver has under the same name.
//!
//! Both ends cut their file where its content says so (FastCDC, Xia et al., USENIX ATC 2016), so
//! that what is inserted or removed moves the cuts, but makes no others. The receiver tells the
//! hashes of its pieces. The sender sends what is in none of them, and of the others where the
//! receiver has them. The hash of the whole file is compared at the end, as always.

use super::error::{Fault, FaultKind};
use super::hashing::SLICE_BYTES;
use super::message::{Sum, SumHash};
use super::path::RelPath;
use super::sparse::{HOLE_BYTES_MAX, Run, Runs};
use super::tree::Tree;
use super::work::{at_work, in_turn};
use cap_fs_ext::FollowSymlinks;
use fastcdc::v2020::FastCDC;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use uts_ledger::{Charge, Payer, Resource};

/// Files of less are sent as they are: the question costs a round trip. Chosen: so much takes as
/// long at 20 Mbit/s over 100 ms.
const DELTA_BYTES_MIN: u64 = 256 * 1024;

/// Pieces that are told of a file at the most: 4 MiB of memory. What lies behind them is sent.
pub(super) const SUMS_MAX: usize = 1 << 16;

/// Sums in one frame, at the most: each takes up to 31 bytes there, and a frame has
/// [`super::message::FRAME_BYTES_MAX`].
pub(super) const SUMS_PER_FRAME: usize = 2000;

/// Bytes that a receiver is told to take from its own file at once, at the most: as many as a chunk
/// has.
pub(super) const COPY_BYTES_MAX: u32 = 1 << 20;

/// Mean length of a piece, in bytes: so many that a file has [`PIECES`], within these bounds. The
/// sums are a five-hundredth of a file at the most.
const AVERAGE_MIN: u32 = 16 << 10;
const AVERAGE_MAX: u32 = 256 << 10;
const PIECES: u64 = 1 << 14;

/// A piece has at least the mean by this, and at most the mean times that (FastCDC, section 3.3).
const SHORTEST: u32 = 4;
const LONGEST: u32 = 4;

/// Memory of a sum and of its place among others, in bytes, about.
const SUM_BYTES: usize = 64;

/// True if a difference may be worth its question: of a file that lacks so many bytes, where one of
/// so many stands.
pub(super) fn is_worth_asking(there: u64, lacking: u64) -> bool {
    there.min(lacking) >= DELTA_BYTES_MIN
}

/// The mean length of the pieces of a file of so many bytes.
fn average_of(size: u64) -> u32 {
    let average = (size / PIECES).clamp(AVERAGE_MIN.into(), AVERAGE_MAX.into());
    (average as u32).next_power_of_two()
}

/// The hash of a piece.
fn sum_hash(piece: &[u8]) -> SumHash {
    let mut hash = SumHash::default();
    hash.copy_from_slice(blake3::hash(piece).as_bytes().split_at(size_of::<SumHash>()).0);
    hash
}

/// Next part of a file that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// So many zeros in front, of which the file system tells.
    Hole(u64),
    /// A piece of so many bytes, which stands in front.
    Piece(usize),
}

/// A file while it is cut, from some byte on.
#[derive(Debug)]
pub(super) struct Cutter {
    average: usize,
    runs: Runs,
    /// Place in the file of what stands in front.
    at: u64,
    /// Bytes that were read; those before `front` have been taken.
    read: Vec<u8>,
    front: usize,
    /// Bytes of the run of data that have not been read.
    unread: u64,
    _memory: Charge,
}

impl Cutter {
    /// `None` without memory for it.
    pub(super) fn new(file: &File, average: u32, at: u64, payer: &Payer) -> Option<Cutter> {
        let average = average.clamp(AVERAGE_MIN, AVERAGE_MAX).next_power_of_two() as usize;
        let longest = average * LONGEST as usize;
        let memory = payer.charge(Resource::Memory, 2 * longest).ok()?;
        let read = Vec::with_capacity(2 * longest);
        Some(Cutter { average, runs: Runs::of(file), at, read, front: 0, unread: 0, _memory: memory })
    }

    fn longest(&self) -> usize {
        self.average * LONGEST as usize
    }

    /// The bytes in front.
    pub(super) fn front(&self, bytes: usize) -> &[u8] {
        self.read.get(self.front..self.front + bytes).unwrap_or_default()
    }

    /// Takes bytes off the front.
    pub(super) fn take(&mut self, bytes: usize) {
        self.front += bytes;
        self.at += bytes as u64;
    }

    /// Takes a hole off the front.
    pub(super) fn skip(&mut self, bytes: u64) {
        self.at += bytes;
    }

    /// The part in front of a file that ends at `end`; `None` there.
    ///
    /// # Errors
    /// Errors of the disk; [`io::ErrorKind::UnexpectedEof`] if the file has become shorter.
    pub(super) fn cut(&mut self, file: &File, end: u64) -> io::Result<Option<Cut>> {
        if self.read.len() == self.front && self.unread == 0 {
            if self.at >= end {
                return Ok(None);
            }
            match self.runs.next(file, self.at, end)? {
                Run::Hole(bytes) => return Ok(Some(Cut::Hole(bytes.min(HOLE_BYTES_MAX)))),
                Run::Data(bytes) => self.unread = bytes,
            }
        }
        if self.read.len() - self.front < self.longest() && self.unread > 0 {
            self.fill(file)?;
        }
        let (shortest, longest) = (self.average / SHORTEST as usize, self.longest());
        let front = self.read.get(self.front..).unwrap_or_default();
        let piece = FastCDC::new(front, shortest, self.average, longest).next();
        Ok(piece.map(|piece| Cut::Piece(piece.length)))
    }

    /// Reads as much as there is room for.
    fn fill(&mut self, file: &File) -> io::Result<()> {
        self.read.drain(..self.front);
        self.front = 0;
        let held = self.read.len();
        let room = (2 * self.longest()).saturating_sub(held);
        let bytes = usize::try_from(self.unread).map_or(room, |unread| unread.min(room));
        self.read.resize(held + bytes, 0);
        let space = self.read.get_mut(held..).unwrap_or_default();
        file.read_exact_at(space, self.at + held as u64)?;
        self.unread -= bytes as u64;
        Ok(())
    }
}

/// A file that is to be replaced, to which the content of its successor may refer.
#[derive(Debug)]
pub(super) struct Basis {
    pub(super) file: File,
    /// Mean length by which it was cut.
    pub(super) average: u32,
    /// Its pieces, or as many as [`SUMS_MAX`] allows; none without memory for the work.
    pub(super) sums: Vec<Sum>,
}

impl Basis {
    /// Cuts the file at `target`, on behalf of `payer`.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) async fn read(tree: &Tree, target: &RelPath, payer: &Payer) -> Result<Basis, Fault> {
        let (tree, target) = (tree.clone(), target.clone());
        let name = target.as_bytes().to_vec();
        let (file, entry) = at_work(payer, move || tree.open_file(&target, FollowSymlinks::No)).await?;
        Basis::of(file, entry.size, &name, payer).await
    }

    async fn of(mut file: File, size: u64, name: &[u8], payer: &Payer) -> Result<Basis, Fault> {
        let (average, mut sums) = (average_of(size), Vec::new());
        let Some(mut cutter) = Cutter::new(&file, average, 0, payer) else {
            return Ok(Basis { file, average, sums });
        };
        let mut has_ended = false;
        while !has_ended {
            let name = name.to_vec();
            (file, cutter, sums, has_ended) = in_turn(payer, move || {
                let cut = sum_slice(&mut cutter, &file, size, &mut sums);
                let has_ended = cut.map_err(|e| Fault::io(&name, &e))?;
                Ok((file, cutter, sums, has_ended))
            })
            .await?;
        }
        Ok(Basis { file, average, sums })
    }
}

/// Cuts a slice of a file that ends at `end`. True if no more is to be cut.
fn sum_slice(cutter: &mut Cutter, file: &File, end: u64, sums: &mut Vec<Sum>) -> io::Result<bool> {
    let until = cutter.at.saturating_add(SLICE_BYTES);
    while cutter.at < until {
        match cutter.cut(file, end)? {
            Some(Cut::Hole(bytes)) => cutter.skip(bytes),
            Some(Cut::Piece(bytes)) if sums.len() < SUMS_MAX => {
                let hash = sum_hash(cutter.front(bytes));
                sums.push(Sum { at: cutter.at, bytes: bytes as u32, hash });
                cutter.take(bytes);
            }
            _ => return Ok(true),
        }
    }
    Ok(false)
}

/// Pieces that a receiver has, by their hashes.
#[derive(Debug)]
pub(super) struct Known {
    average: u32,
    pieces: BTreeMap<SumHash, (u64, u32)>,
    memory: Vec<Charge>,
}

impl Known {
    /// None, of a file that is cut so.
    pub(super) fn new(average: u32) -> Known {
        Known { average, pieces: BTreeMap::new(), memory: Vec::new() }
    }

    /// Memory that it takes, in bytes.
    pub(super) fn charged(&self) -> usize {
        self.memory.iter().map(Charge::amount).sum()
    }

    /// True if the receiver has none.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Takes in sums, for as long as there is memory for them.
    ///
    /// # Errors
    /// [`FaultKind::Protocol`]: more sums than a file may have.
    pub(super) fn add(&mut self, sums: Vec<Sum>, payer: &Payer) -> Result<(), Fault> {
        if self.pieces.len() + sums.len() > SUMS_MAX {
            let why = format!("more than {SUMS_MAX} sums of a file");
            return Err(Fault::new(FaultKind::Protocol, b"", why));
        }
        if let Ok(memory) = payer.charge(Resource::Memory, (sums.len() * SUM_BYTES).max(1)) {
            self.memory.push(memory);
            self.pieces.extend(sums.into_iter().map(|sum| (sum.hash, (sum.at, sum.bytes))));
        }
        Ok(())
    }
}

/// A file that is sent as its difference from what the receiver has.
#[derive(Debug)]
pub(super) struct Delta {
    cutter: Cutter,
    known: Known,
    /// Bytes in front that the receiver lacks.
    lacking: usize,
}

/// Next part of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many zeros in front.
    Hole(u64),
    /// So many bytes in front, to be sent.
    Data(usize),
    /// So many bytes in front, which the receiver has at this place of its file.
    Copy(u64, usize),
    /// Nothing.
    End,
}

impl Delta {
    /// The difference of a file from some byte on; `None` without memory for it.
    pub(super) fn new(file: &File, known: Known, from: u64, payer: &Payer) -> Option<Delta> {
        let cutter = Cutter::new(file, known.average, from, payer)?;
        Some(Delta { cutter, known, lacking: 0 })
    }

    /// Bytes in front; whoever has made use of them takes them ([`Delta::take`]).
    pub(super) fn front(&self, bytes: usize) -> &[u8] {
        self.cutter.front(bytes)
    }

    /// Takes bytes off the front.
    pub(super) fn take(&mut self, bytes: usize) {
        self.cutter.take(bytes);
        self.lacking = self.lacking.saturating_sub(bytes);
    }

    /// Takes a hole off the front.
    pub(super) fn skip(&mut self, bytes: u64) {
        self.cutter.skip(bytes);
    }

    /// The next step of a file that ends at `end`, of at most so many bytes if they are sent.
    ///
    /// # Errors
    /// See [`Cutter::cut`].
    pub(super) fn step(&mut self, file: &File, end: u64, most: usize) -> io::Result<Step> {
        if self.lacking == 0 {
            match self.cutter.cut(file, end)? {
                None => return Ok(Step::End),
                Some(Cut::Hole(bytes)) => return Ok(Step::Hole(bytes)),
                Some(Cut::Piece(bytes)) => {
                    let known = self.known.pieces.get(&sum_hash(self.cutter.front(bytes)));
                    match known.filter(|(_, known)| *known as usize == bytes && *known <= COPY_BYTES_MAX) {
                        Some((at, _)) => return Ok(Step::Copy(*at, bytes)),
                        None => self.lacking = bytes,
                    }
                }
            }
        }
        Ok(Step::Data(self.lacking.min(most)))
    }

    /// Takes bytes off the front that the receiver has at this place, and all that follow there as
    /// here, as far as one copy goes. `seen` is shown them in pieces. Returns their number.
    ///
    /// # Errors
    /// See [`Cutter::cut`].
    pub(super) fn take_copied(
        &mut self,
        file: &File,
        end: u64,
        (at, mut bytes): (u64, usize),
        mut seen: impl FnMut(&[u8]),
    ) -> io::Result<u32> {
        let mut copied = 0;
        loop {
            seen(self.front(bytes));
            self.take(bytes);
            copied += bytes as u32;
            match self.step(file, end, 1)? {
                Step::Copy(next, more)
                    if next == at + u64::from(copied)
                        && more as u64 + u64::from(copied) <= COPY_BYTES_MAX.into() =>
                {
                    bytes = more;
                }
                _ => return Ok(copied),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::tests::payer;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::io::{Seek, SeekFrom, Write};

    fn random(seed: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        ChaCha8Rng::seed_from_u64(seed).fill(&mut data[..]);
        data
    }

    fn file_of(data: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(data).unwrap();
        file
    }

    /// Makes the new file of the old one and the difference. Returns it, and the bytes sent.
    async fn made(old: &[u8], new: &File, from: u64) -> (Vec<u8>, usize) {
        let (out, sent, _) = told(old, new, from).await;
        (out, sent)
    }

    /// Makes it, and counts the copies, too.
    async fn told(old: &[u8], new: &File, from: u64) -> (Vec<u8>, usize, usize) {
        let payer = payer();
        let size = old.len() as u64;
        let basis = Basis::of(file_of(old), size, b"old", &payer).await.unwrap();
        let mut known = Known::new(basis.average);
        known.add(basis.sums, &payer).unwrap();
        let mut delta = Delta::new(new, known, from, &payer).unwrap();
        let (end, mut out, mut sent, mut copies) = (new.metadata().unwrap().len(), Vec::new(), 0, 0);
        loop {
            match delta.step(new, end, 100_000).unwrap() {
                Step::End => return (out, sent, copies),
                Step::Hole(bytes) => {
                    out.resize(out.len() + bytes as usize, 0);
                    delta.skip(bytes);
                }
                Step::Copy(at, bytes) => {
                    let mut seen = Vec::new();
                    let copied =
                        delta.take_copied(new, end, (at, bytes), |piece| seen.extend_from_slice(piece));
                    let copied = copied.unwrap() as usize;
                    assert!(
                        copied <= COPY_BYTES_MAX as usize && seen == old[at as usize..at as usize + copied]
                    );
                    out.extend(seen);
                    copies += 1;
                }
                Step::Data(bytes) => {
                    assert!(bytes > 0 && bytes <= 100_000);
                    out.extend_from_slice(delta.front(bytes));
                    sent += bytes;
                    delta.take(bytes);
                }
            }
        }
    }

    #[tokio::test]
    async fn what_changes_is_sent_and_little_else() {
        let old = random(1, 3_000_000);
        let inserted = [&old[..1_000_000], b"a few bytes more", &old[1_000_000..]].concat();
        let removed = [&old[..500_000], &old[500_777..]].concat();
        let mut changed = old.clone();
        changed[2_000_000..2_000_100].fill(7);
        let appended = [&old[..], &random(2, 300_000)].concat();
        let moved = [&old[1_500_000..], &old[..1_500_000]].concat();
        let longest = (average_of(3_000_000) * LONGEST) as usize;
        for (name, new, lacking) in [
            ("the same", old.clone(), 0),
            ("inserted", inserted, 16),
            ("removed", removed, 0),
            ("changed", changed, 100),
            ("appended", appended, 300_000),
            ("moved", moved, 0),
        ] {
            let (made, sent) = made(&old, &file_of(&new), 0).await;
            assert!(made == new, "{name}: another file");
            assert!(sent <= lacking + 4 * longest, "{name}: {sent} of {} bytes sent", new.len());
        }
        let other = random(3, 2_000_000);
        assert_eq!(made(&old, &file_of(&other), 0).await, (other.clone(), other.len()));
        // It begins anywhere.
        let (rest, sent) = made(&old, &file_of(&old), 700_001).await;
        assert!(rest == old[700_001..] && sent <= longest, "{sent}");
    }

    #[tokio::test]
    async fn pieces_that_follow_each_other_are_one_copy() {
        let old = random(6, 3_000_000);
        let (made, sent, copies) = told(&old, &file_of(&old), 0).await;
        assert!(made == old && sent == 0 && copies <= 4, "{copies} copies");
    }

    #[tokio::test]
    async fn holes_stay_holes() {
        let old = random(4, 1_000_000);
        let mut new = tempfile::tempfile().unwrap();
        new.seek(SeekFrom::Start(20_000_000)).unwrap();
        new.write_all(&old).unwrap();
        new.set_len(30_000_000).unwrap();
        let (made, sent) = made(&old, &new, 0).await;
        let expected = [vec![0; 20_000_000], old, vec![0; 9_000_000]].concat();
        assert!(made == expected && sent < 1_000_000, "{sent} bytes sent");
    }

    #[tokio::test]
    async fn a_file_that_becomes_shorter_is_an_error() {
        let file = file_of(&random(5, 1_000_000));
        let mut cutter = Cutter::new(&file, 1, 0, &payer()).unwrap();
        file.set_len(400_000).unwrap();
        let error = loop {
            match cutter.cut(&file, 1_000_000) {
                Ok(Some(Cut::Piece(bytes))) => cutter.take(bytes),
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn sums_are_bounded_in_number_and_length() {
        let mut known = Known::new(1 << 20);
        let sum = |n: usize| {
            let mut hash = SumHash::default();
            hash[..8].copy_from_slice(&(n as u64).to_be_bytes());
            Sum { at: 0, bytes: u32::MAX, hash }
        };
        for frame in 0..SUMS_MAX / 1024 {
            known.add((0..1024).map(|n| sum(1024 * frame + n)).collect(), &payer()).unwrap();
        }
        let fault = known.add(vec![sum(SUMS_MAX)], &payer()).unwrap_err();
        assert_eq!((fault.kind, known.pieces.len()), (FaultKind::Protocol, SUMS_MAX));
        for size in [0, 1, 1 << 20, 1 << 30, 1 << 40, u64::MAX] {
            assert!((AVERAGE_MIN..=AVERAGE_MAX).contains(&average_of(size)));
        }
    }
}
