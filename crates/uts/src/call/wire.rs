//! The bytes of a call: the header of a request, and the frames of both halves of its flow
//! (spec/calls.md). For those who read or write calls elsewhere than over a connection of this
//! library: a capture, a gateway.

use bytes::{Buf, Bytes};
use core::time::Duration;
use uts_wire::varint::{Reader, put_varint};

/// The longest name of a method, in bytes. (L-2)
pub const METHOD_BYTES_MAX: usize = 255;
/// The longest text of a refusal or a failure, in bytes. (L-4)
pub const TEXT_BYTES_MAX: usize = 255;

/// The first byte of a call. (L-2)
const VERSION: u8 = 1;
/// Bytes of a header before the name of the method: version, time left, length.
const HEADER_FIXED: usize = 6;

/// Codes of resets and stops. (L-7)
pub(super) mod code {
    /// The call is given up.
    pub const CANCELLED: u64 = 0;
    /// Its time is over.
    pub const DEADLINE: u64 = 1;
    /// The other end has broken a rule of calls.md.
    pub const BREACH: u64 = 2;
}

/// Kinds of frames. (L-3, L-4)
pub(super) mod kind {
    pub const MESSAGE: u8 = 0;
    pub const REFUSED: u8 = 1;
    pub const FAILED: u8 = 2;
}

/// A reason of a server for not running a call. (L-5)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It has no method of this name.
    NoSuchMethod,
    /// It runs as many calls as it takes, or has no memory for the request.
    Busy,
    /// It is about to stop.
    Stopping,
    /// The request breaks a rule, is longer than the method takes, or is no value of its type.
    BadRequest,
    /// The header was not whole in time, or nothing more of the request has come.
    TooLate,
    /// A reason that this version does not know.
    Other(u8),
}

impl Refusal {
    /// All that have a number of their own, with it.
    pub(super) const NUMBERED: [(u8, Refusal); 5] = [
        (1, Refusal::NoSuchMethod),
        (2, Refusal::Busy),
        (3, Refusal::Stopping),
        (4, Refusal::BadRequest),
        (5, Refusal::TooLate),
    ];

    fn number(self) -> u8 {
        match self {
            Refusal::Other(number) => number,
            known => Self::NUMBERED.iter().find(|(_, refusal)| *refusal == known).map_or(0, |(n, _)| *n),
        }
    }

    fn of(number: u8) -> Self {
        let known = Self::NUMBERED.iter().find(|(n, _)| *n == number);
        known.map_or(Refusal::Other(number), |(_, refusal)| *refusal)
    }

    /// Reasons that may be gone a moment later.
    pub(super) fn is_temporary(self) -> bool {
        matches!(self, Refusal::Busy | Refusal::Stopping)
    }
}

/// Bytes that are no call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Breach(pub(super) String);

fn breach<T>(why: impl Into<String>) -> Result<T, Breach> {
    Err(Breach(why.into()))
}

/// The begin of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name of the method: 1 to [`METHOD_BYTES_MAX`] bytes.
    pub method: String,
    /// Time that is left for the call, in milliseconds on the wire; `None` = it has no deadline.
    pub left: Option<Duration>,
}

impl Header {
    /// Writes it. (L-2)
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        // Less than a millisecond is not none.
        let millis = self.left.map_or(0, |left| u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1));
        out.extend_from_slice(&millis.to_be_bytes());
        put_text(out, &self.method);
    }

    /// Reads it, once it is whole. (L-2)
    fn parse(read: &[u8]) -> Result<Option<Self>, Breach> {
        match read.first() {
            None => return Ok(None),
            Some(&VERSION) => {}
            Some(other) => return breach(format!("version {other} of calls; this end has {VERSION}")),
        }
        let Some((fixed, name)) = read.split_first_chunk::<HEADER_FIXED>() else { return Ok(None) };
        let [_, a, b, c, d, len] = *fixed;
        if len == 0 {
            return breach("a method without a name");
        }
        let Some(name) = name.get(..usize::from(len)) else { return Ok(None) };
        let Ok(method) = String::from_utf8(name.to_vec()) else {
            return breach("the name of a method is not UTF-8");
        };
        let millis = u32::from_be_bytes([a, b, c, d]);
        let left = (millis > 0).then(|| Duration::from_millis(millis.into()));
        Ok(Some(Header { method, left }))
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.push(u8::try_from(end).unwrap_or(u8::MAX));
    out.extend_from_slice(&text.as_bytes()[..end]);
}

/// Writes the head of a message. (L-3)
pub fn put_message_head(out: &mut Vec<u8>, len: usize) {
    out.push(kind::MESSAGE);
    put_varint(out, len as u64);
}

/// Writes a refusal. (L-4)
pub fn put_refused(out: &mut Vec<u8>, why: Refusal, text: &str) {
    out.extend_from_slice(&[kind::REFUSED, why.number()]);
    put_text(out, text);
}

/// Writes a failure. (L-4)
pub fn put_failed(out: &mut Vec<u8>, code: u32, text: &str) {
    out.push(kind::FAILED);
    out.extend_from_slice(&code.to_be_bytes());
    put_text(out, text);
}

/// Something that a half brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The begin of a request.
    Header(Header),
    /// Part of a message, and whether it is the last.
    Part(Bytes, bool),
    /// The call has not run: the reason, and a text for people.
    Refused(Refusal, String),
    /// It has failed: the code of the handler, and a text for people.
    Failed(u32, String),
}

/// Halves of a call, by who sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The client's.
    Request,
    /// The server's.
    Answer,
}

/// Bytes that [`Frames`] keeps at the most: the longest header, or end frame.
pub const HELD_BYTES_MAX: usize = HEADER_FIXED + METHOD_BYTES_MAX;

/// Cuts what a half brings into its items. It keeps the head of one frame, of [`HELD_BYTES_MAX`]
/// bytes at the most, and no content.
#[derive(Debug)]
pub struct Frames {
    half: Half,
    needs_header: bool,
    head: Vec<u8>,
    /// Bytes that are left of a message.
    left: Option<u64>,
    /// Something came before.
    has_begun: bool,
    /// Nothing may follow.
    is_over: bool,
}

impl Frames {
    /// At the begin of a half.
    pub fn new(half: Half) -> Self {
        let needs_header = half == Half::Request;
        Frames { half, needs_header, head: Vec::new(), left: None, has_begun: false, is_over: false }
    }

    /// Takes the next item off the front of `bytes`; `None` when all of them are taken, and more is
    /// needed.
    ///
    /// # Errors
    /// [`Breach`]; nothing is to be read behind it.
    pub fn next(&mut self, bytes: &mut Bytes) -> Result<Option<Item>, Breach> {
        loop {
            if let Some(left) = self.left {
                if bytes.is_empty() && left > 0 {
                    return Ok(None);
                }
                let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let rest = left - taken as u64;
                self.left = Some(rest).filter(|rest| *rest > 0);
                return Ok(Some(Item::Part(bytes.split_to(taken), rest == 0)));
            }
            if bytes.is_empty() {
                return Ok(None);
            }
            if self.is_over {
                return breach("something follows the end of an answer");
            }
            self.head.push(bytes.get_u8());
            if let Some(item) = self.on_head()? {
                return Ok(Some(item));
            }
        }
    }

    /// Looks whether the head is whole.
    fn on_head(&mut self) -> Result<Option<Item>, Breach> {
        if self.needs_header {
            let header = Header::parse(&self.head)?;
            if header.is_some() {
                self.needs_header = false;
                self.head = Vec::new();
            }
            return Ok(header.map(Item::Header));
        }
        let is_first = !self.has_begun;
        let Some(&kind) = self.head.first() else { return Ok(None) };
        let item = match (kind, self.half) {
            (kind::MESSAGE, _) => {
                let mut reader = Reader::new(&self.head[1..]);
                let Ok(len) = reader.varint("length of a message") else { return Ok(None) };
                self.left = Some(len);
                None
            }
            (kind::REFUSED, Half::Answer) if is_first => {
                let [_, number, text @ ..] = &self.head[..] else { return Ok(None) };
                let Some(text) = text_of(text) else { return Ok(None) };
                Some(Item::Refused(Refusal::of(*number), text))
            }
            (kind::FAILED, Half::Answer) => {
                let [_, a, b, c, d, text @ ..] = &self.head[..] else { return Ok(None) };
                let Some(text) = text_of(text) else { return Ok(None) };
                Some(Item::Failed(u32::from_be_bytes([*a, *b, *c, *d]), text))
            }
            (other, _) => return breach(format!("a frame of the unexpected kind {other}")),
        };
        self.head.clear();
        self.has_begun = true;
        self.is_over = item.is_some();
        Ok(item)
    }

    /// Bytes that it keeps.
    pub fn held_bytes(&self) -> usize {
        self.head.len()
    }

    /// True if the half may end here. (L-6)
    pub fn may_end(&self) -> bool {
        !self.needs_header && self.left.is_none() && self.head.is_empty()
    }
}

/// A text, once it is whole. What is no UTF-8 in it is replaced: people read it, nothing else does.
fn text_of(read: &[u8]) -> Option<String> {
    let (len, text) = read.split_first()?;
    Some(String::from_utf8_lossy(text.get(..usize::from(*len))?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All items of some bytes, which come in pieces that end at `cuts`.
    fn read(half: Half, bytes: &[u8], cuts: &[usize]) -> Result<(Vec<Item>, bool), Breach> {
        let (mut frames, mut items, mut from) = (Frames::new(half), Vec::new(), 0);
        for to in cuts.iter().copied().chain([bytes.len()]) {
            let mut piece = Bytes::copy_from_slice(&bytes[from.min(to)..to]);
            from = from.max(to);
            while let Some(item) = frames.next(&mut piece)? {
                match (items.last_mut(), item) {
                    // Where it was cut is nobody's business.
                    (Some(Item::Part(before, last @ false)), Item::Part(more, is_last)) => {
                        *before = [&before[..], &more[..]].concat().into();
                        *last = is_last;
                    }
                    (_, item) => items.push(item),
                }
            }
            assert!(frames.held_bytes() <= HELD_BYTES_MAX && piece.is_empty());
        }
        Ok((items, frames.may_end()))
    }

    fn request(method: &str, left: Option<Duration>, messages: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        Header { method: method.to_owned(), left }.emit(&mut out);
        for message in messages {
            put_message_head(&mut out, message.len());
            out.extend_from_slice(message);
        }
        out
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_wherever_it_is_cut(
            method in "[a-zß/]{1,100}",
            millis in prop::option::of(1_u32..),
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..5),
            mut cuts in prop::collection::vec(0_usize..600, 0..20),
        ) {
            let left = millis.map(|millis| Duration::from_millis(millis.into()));
            let bytes = request(&method, left, &messages);
            cuts.iter_mut().for_each(|cut| *cut = (*cut).min(bytes.len()));
            cuts.sort_unstable();
            let (items, may_end) = read(Half::Request, &bytes, &cuts).expect("a request");
            let mut expected = vec![Item::Header(Header { method, left })];
            expected.extend(messages.into_iter().map(|message| Item::Part(message.into(), true)));
            prop_assert_eq!(items, expected);
            prop_assert!(may_end);
        }

        #[test]
        fn nothing_makes_it_fail_or_hold_much(bytes in prop::collection::vec(any::<u8>(), 0..600), answer: bool) {
            let half = if answer { Half::Answer } else { Half::Request };
            let _ = read(half, &bytes, &[]);
        }
    }

    #[test]
    fn ends_of_answers_are_read_and_nothing_behind_them() {
        let mut out = Vec::new();
        put_failed(&mut out, 7, "no");
        assert_eq!(read(Half::Answer, &out, &[3]), Ok((vec![Item::Failed(7, "no".into())], true)));
        let long = "ß".repeat(200);
        let mut refused = Vec::new();
        put_refused(&mut refused, Refusal::Busy, &long);
        let expected = vec![Item::Refused(Refusal::Busy, "ß".repeat(127))];
        assert_eq!(read(Half::Answer, &refused, &[]), Ok((expected, true)));
        for (half, wrong) in [
            (Half::Answer, [&out[..], &[0, 0]].concat()),
            // A refusal that is not the first: the call has run.
            (Half::Answer, [&[0, 0][..], &refused].concat()),
            (Half::Answer, vec![3]),
            (Half::Request, [&request("m", None, &[]), &out[..]].concat()),
            (Half::Request, vec![2]),
            (Half::Request, vec![1, 0, 0, 0, 0, 0]),
            (Half::Request, vec![1, 0, 0, 0, 0, 1, 0xFF]),
        ] {
            assert!(read(half, &wrong, &[]).is_err(), "{wrong:?}");
        }
        // Ends in the middle.
        let whole = request("m", None, &[vec![1, 2, 3]]);
        for end in 0..whole.len() {
            let (_, may_end) = read(Half::Request, &whole[..end], &[]).expect("a part of a request");
            assert_eq!(may_end, end == HEADER_FIXED + 1, "{end}");
        }
    }

    #[test]
    fn time_that_is_left_is_never_said_to_be_none() {
        for (left, millis) in [
            (None, 0),
            (Some(Duration::ZERO), 1),
            (Some(Duration::from_micros(1)), 1),
            (Some(Duration::from_secs(60)), 60_000),
            (Some(Duration::MAX), u32::MAX),
        ] {
            let bytes = request("m", left, &[]);
            assert_eq!(bytes[1..5], u32::to_be_bytes(millis), "{left:?}");
        }
    }

    /// The tables of the page are those of the code.
    #[test]
    fn the_page_has_the_same_numbers() {
        let page = include_str!("../../../../spec/calls.md");
        let rows = |head: &str| -> Vec<Vec<String>> {
            let rows = page.split_once(head).unwrap_or_else(|| panic!("no table {head}")).1.lines().skip(2);
            let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
            rows.take_while(|line| line.starts_with('|')).map(cells).collect()
        };
        let numbers =
            |head| -> Vec<u64> { rows(head).iter().map(|row| row[1].parse().expect("a number")).collect() };
        let refusals: Vec<(u8, String)> = rows("| reason | name |")
            .iter()
            .map(|row| (row[1].parse().expect("a number"), row[2].clone()))
            .collect();
        let ours: Vec<(u8, String)> =
            Refusal::NUMBERED.iter().map(|(number, refusal)| (*number, format!("{refusal:?}"))).collect();
        assert_eq!(refusals, ours);
        let kinds = [kind::MESSAGE, kind::REFUSED, kind::FAILED].map(u64::from);
        assert_eq!(numbers("| kind | what follows |"), kinds);
        assert_eq!(numbers("| code | meaning |"), [code::CANCELLED, code::DEADLINE, code::BREACH]);
    }
}
