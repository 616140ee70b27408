//! The bytes of a move: its header, and the byte that ends it. (spec/moves.md)

use super::{MoveRefusal, Repeats, Strategy, Tag};
use uts_wire::varint::{Reader, put_varint};

/// The longest header, in bytes. (B-2)
pub(super) const HEADER_BYTES_MAX: usize = 2 + 3 * 8 + 1 + 8;

/// The first byte of a move. (B-2)
const VERSION: u8 = 1;

/// Codes of stops and resets. (B-6)
pub(super) mod code {
    /// The answer says why.
    pub const REFUSED: u64 = 1;
    /// The other end has broken a rule of moves.md.
    pub const BREACH: u64 = 2;
}

/// Direction of a move, as the end sees it that begins it. (B-2)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    To,
    From,
}

/// The begin of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub operation: Operation,
    pub tag: Tag,
    /// Of the first byte in the memory that the tag names.
    pub offset: u64,
    pub bytes: u64,
    /// Wish of the end that moves from its peer: how that repeats what is lost.
    pub repeats: Repeats,
}

/// Bytes that are no move.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Breach(pub String);

impl Header {
    /// The bytes that a move begins with. (B-2)
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.operation == Operation::From)];
        for number in [self.tag.0, self.offset, self.bytes] {
            put_varint(&mut out, number);
        }
        if self.operation == Operation::From {
            let (strategy, unit) = match self.repeats {
                Repeats::AsConnection => (0, 0),
                Repeats::Blasts { strategy, kibibytes } => (strategy.number(), kibibytes.unwrap_or(0)),
            };
            out.push(strategy);
            put_varint(&mut out, unit.into());
        }
        out
    }

    /// Reads it off the front, once it is whole; says how long it is.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn parse(read: &[u8]) -> Result<Option<(Self, usize)>, Breach> {
        match read.first() {
            None => return Ok(None),
            Some(&VERSION) => {}
            Some(other) => return Err(Breach(format!("version {other} of moves; this end has {VERSION}"))),
        }
        let operation = match read.get(1) {
            None => return Ok(None),
            Some(0) => Operation::To,
            Some(1) => Operation::From,
            Some(other) => return Err(Breach(format!("a move of the unknown kind {other}"))),
        };
        let mut reader = Reader::new(&read[2..]);
        let (Ok(tag), Ok(offset), Ok(bytes)) =
            (reader.varint("tag"), reader.varint("offset"), reader.varint("length"))
        else {
            return Ok(None);
        };
        let mut repeats = Repeats::AsConnection;
        if operation == Operation::From {
            let (Ok(number), Ok(unit)) = (reader.u8("strategy"), reader.varint("blast")) else {
                return Ok(None);
            };
            // A strategy that this end does not know is none: it repeats as it does otherwise.
            if let Some(strategy) = Strategy::of(number) {
                let unit = u32::try_from(unit).ok().filter(|unit| *unit > 0);
                let kibibytes = unit.map(|unit| unit.min(super::blast::KIBIBYTES_MAX));
                repeats = Repeats::Blasts { strategy, kibibytes };
            }
        }
        let len = read.len() - reader.rest().len();
        Ok(Some((Header { operation, tag: Tag(tag), offset, bytes, repeats }, len)))
    }
}

/// The end of a move, as the end says it that has the memory. (B-4)
pub(super) fn outcome_byte(outcome: Result<(), MoveRefusal>) -> u8 {
    outcome.err().map_or(0, MoveRefusal::number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moves::Strategy;
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn what_is_written_is_read_once_it_is_whole(
            from: bool, tag in 0..1_u64 << 62, offset in 0..1_u64 << 62, bytes in 0..1_u64 << 62,
            number in 0..5_u8, unit in prop::option::of(1..=65_536_u32),
        ) {
            let operation = if from { Operation::From } else { Operation::To };
            let repeats = match Strategy::of(number).filter(|_| from) {
                Some(strategy) => Repeats::Blasts { strategy, kibibytes: unit },
                None => Repeats::AsConnection,
            };
            let header = Header { operation, tag: Tag(tag), offset, bytes, repeats };
            let mut out = header.emit();
            prop_assert!(out.len() <= HEADER_BYTES_MAX);
            for end in 0..out.len() {
                prop_assert_eq!(Header::parse(&out[..end]), Ok(None));
            }
            let len = out.len();
            out.push(7);
            prop_assert_eq!(Header::parse(&out), Ok(Some((header, len))));
        }

        #[test]
        fn nothing_makes_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Header::parse(&bytes);
        }
    }

    /// The tables of the page are those of the code.
    #[test]
    fn the_page_has_the_same_numbers() {
        let page = include_str!("../../../../spec/moves.md");
        let rows = |head: &str| -> Vec<Vec<String>> {
            let rows = page.split_once(head).unwrap_or_else(|| panic!("no table {head}")).1.lines().skip(2);
            let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
            rows.take_while(|line| line.starts_with('|')).map(cells).collect()
        };
        let refusals: Vec<(u8, String)> = rows("| byte | name |")
            .iter()
            .skip(1)
            .map(|row| (row[1].parse().expect("a number"), row[2].clone()))
            .collect();
        let ours: Vec<(u8, String)> =
            MoveRefusal::NUMBERED.iter().map(|(number, why)| (*number, format!("{why:?}"))).collect();
        assert_eq!(refusals, ours);
        let strategies: Vec<String> = rows("| strategy | name |").iter().map(|row| row[2].clone()).collect();
        let ours: Vec<String> = (1..=4).map(|n| format!("{:?}", Strategy::of(n).expect("one"))).collect();
        assert_eq!(strategies, ours);
        let codes: Vec<u64> =
            rows("| code | meaning |").iter().map(|row| row[1].parse().expect("a code")).collect();
        assert_eq!(codes, [0, code::REFUSED, code::BREACH]);
    }
}
