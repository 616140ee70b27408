//! Data of the demonstration of a call, which it leaves in `call.json`, and which its page is made
//! from.
//!
//! Times are seconds, and milliseconds where a name says so, of virtual time since the call began.

use crate::record_file;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file with all data.
pub const DATA_FILE: &str = "call.json";

/// The version of this form; a reader refuses others.
pub const FORMAT: u32 = 1;

/// A call, as its participants saw and heard it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// The program and its version.
    pub version: String,
    /// The command that made it.
    pub command: String,
    /// Seed of what becomes of the packets.
    pub seed: u64,
    /// End of the call.
    pub end_s: f64,
    /// Paths between the participants, in words.
    pub paths: Vec<String>,
    /// Levels of a participant's picture, from the least.
    pub levels: Vec<Level>,
    /// Participants.
    pub people: Vec<Person>,
    /// Changes from outside: who comes, who goes, what becomes of the paths.
    pub happenings: Vec<Happening>,
    /// Streams from each participant to each other.
    pub streams: Vec<Stream>,
}

/// A level of a participant's sound and picture.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Level {
    /// Its name.
    pub name: String,
    /// Rate of what is sent at it, in kbit/s.
    pub kbit_s: u64,
}

/// A participant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Person {
    /// The name.
    pub name: String,
    /// When it comes.
    pub from_s: f64,
    /// When it goes.
    pub to_s: f64,
}

/// A change from outside.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Happening {
    /// When.
    pub t_s: f64,
    /// A few words.
    pub short: String,
    /// A sentence.
    pub text: String,
}

/// Everything that one participant sends to another.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stream {
    /// The sender, by its place.
    pub from: usize,
    /// The receiver, by its place.
    pub to: usize,
    /// Levels of the picture, as the sender chose them.
    pub changes: Vec<Change>,
    /// Exchanges of mechanisms for what the sender sends.
    pub exchanges: Vec<Exchange>,
    /// Sound.
    pub voice: Shown,
    /// Pictures.
    pub picture: Shown,
    /// The sender's pointer, if it has one.
    pub pointer: Option<Shown>,
}

/// A change of the level.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Change {
    /// When.
    pub t_s: f64,
    /// The level from then on, by its place.
    pub to: usize,
    /// Reason, in words.
    pub why: String,
}

/// An exchange of mechanisms.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Exchange {
    /// When it was agreed.
    pub t_s: f64,
    /// Data that it is for: of all, or of one kind.
    pub of: String,
    /// Facts that were seen.
    pub seen: String,
    /// Changes of the profile.
    pub changes: String,
    /// Effect that was expected.
    pub expects: String,
    /// Effect that it had, if that was told.
    pub brought: String,
}

/// Messages of a flow that were shown, as columns of equal length, in the order in which they were.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Shown {
    /// Time between two that are made, in milliseconds.
    pub every_ms: u64,
    /// When each was made that was to be shown.
    pub made_ms: Vec<u32>,
    /// When those were made that were shown.
    pub shown_made_ms: Vec<u32>,
    /// When they were shown.
    pub shown_ms: Vec<u32>,
    /// Level at which they were made.
    pub level: Vec<u8>,
    /// Time by which each is ahead of the sound, in milliseconds; behind it if negative. `None`
    /// before any sound was heard, and of the sound itself.
    pub skew_ms: Vec<Option<i32>>,
}

impl Shown {
    /// Share (0 to 1) of what was made in a stretch of time that was shown; `None` if nothing was
    /// made.
    pub fn share(&self, from_s: f64, to_s: f64) -> Option<f64> {
        let within = |ms: &&u32| (from_s..to_s).contains(&(f64::from(**ms) / 1e3));
        let made = self.made_ms.iter().filter(within).count();
        let shown = self.shown_made_ms.iter().filter(within).count();
        (made > 0).then(|| shown as f64 / made as f64)
    }

    /// Times from making to showing of what was shown in a stretch of time, in milliseconds.
    pub fn delays_ms(&self, from_s: f64, to_s: f64) -> Vec<f64> {
        let columns = self.shown_ms.iter().zip(&self.shown_made_ms);
        let inside = columns.filter(|(at, _)| (from_s..to_s).contains(&(f64::from(**at) / 1e3)));
        inside.map(|(at, made)| f64::from(at.saturating_sub(*made))).collect()
    }

    /// Skews of what was shown in a stretch of time, in milliseconds.
    pub fn skews_ms(&self, from_s: f64, to_s: f64) -> Vec<f64> {
        let columns = self.shown_ms.iter().zip(&self.skew_ms);
        let inside = columns.filter(|(at, _)| (from_s..to_s).contains(&(f64::from(**at) / 1e3)));
        inside.filter_map(|(_, skew)| skew.map(f64::from)).collect()
    }

    /// Longest time in a stretch in which nothing new was shown, in seconds: 0 if fewer than two
    /// were.
    pub fn longest_gap_s(&self, from_s: f64, to_s: f64) -> f64 {
        let times = self.shown_ms.iter().map(|ms| f64::from(*ms) / 1e3);
        let inside: Vec<f64> = times.filter(|at| (from_s..to_s).contains(at)).collect();
        inside.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max)
    }
}

impl Stream {
    /// The level that the sender chose for an instant, by its place.
    pub fn level_at(&self, t_s: f64) -> usize {
        self.changes.iter().rev().find(|change| change.t_s <= t_s).map_or(0, |change| change.to)
    }
}

impl Record {
    /// The stream from one participant to another.
    pub fn stream(&self, from: usize, to: usize) -> Option<&Stream> {
        self.streams.iter().find(|stream| (stream.from, stream.to) == (from, to))
    }

    /// Stretch of time in which both ends of a stream take part.
    pub fn span_s(&self, stream: &Stream) -> (f64, f64) {
        let both = [stream.from, stream.to].map(|place| self.people.get(place).cloned().unwrap_or_default());
        (both[0].from_s.max(both[1].from_s), both[0].to_s.min(both[1].to_s))
    }
}

/// Writes the record into `dir`, which is made if missing.
///
/// # Errors
/// The file or the directory cannot be written.
pub fn write(dir: &Path, record: &Record) -> Result<()> {
    record_file::write(dir, DATA_FILE, record)
}

/// Reads the record in `dir`.
///
/// # Errors
/// The file cannot be read, is not the record of a call, or has another version.
pub fn load(dir: &Path) -> Result<Record> {
    record_file::load(dir, DATA_FILE, FORMAT, "the record of a call")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_gaps_and_skews_are_of_their_stretch() {
        let shown = Shown {
            every_ms: 20,
            made_ms: (0..10).map(|n| 20 * n).collect(),
            shown_made_ms: vec![0, 20, 100, 120, 140, 160, 180],
            shown_ms: vec![50, 70, 150, 170, 190, 210, 230],
            level: vec![0; 7],
            skew_ms: [-5, -5, 10, 10, 10, 10, 10].map(Some).to_vec(),
        };
        assert_eq!(shown.share(0.0, 0.1), Some(0.4));
        assert_eq!(shown.share(0.1, 1.0), Some(1.0));
        assert_eq!(shown.share(5.0, 6.0), None);
        assert!((shown.longest_gap_s(0.0, 1.0) - 0.08).abs() < 1e-9);
        assert!(shown.delays_ms(0.0, 1.0).iter().all(|delay| (delay - 50.0).abs() < 1e-9));
        assert_eq!(shown.skews_ms(0.0, 0.1), [-5.0, -5.0]);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let record = Record { format: FORMAT, seed: 7, end_s: 9.5, ..Record::default() };
        write(dir.path(), &record).expect("written");
        assert_eq!(load(dir.path()).expect("read"), record);
        write(dir.path(), &Record { format: FORMAT + 1, ..record }).expect("written");
        assert!(load(dir.path()).expect_err("refused").to_string().contains("has format 2"));
    }
}
