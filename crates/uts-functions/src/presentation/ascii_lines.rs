//! Text whose lines end as on the network: each line feed travels as carriage return and line feed,
//! and a lone carriage return as carriage return and zero (the network virtual terminal, RFC 854;
//! what FTP calls ASCII).

use super::{Error, Presentation, plain, read_form};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Unasked};
use std::borrow::Cow;

/// Form byte: text in the network's form follows.
pub(super) const FORM: u8 = 2;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct AsciiLines;

impl AsciiLines {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Presentation,
        number: 2,
        name: "ascii-lines",
        what: "line ends travel as carriage return and line feed, as in RFC 854",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts { forms: &[FORM], unasked: Unasked::Never, streams: true, ..Facts::PLAIN },
        // How many lines there are, the path does not know. A byte at a time, at both ends.
        predict: |_, facts, p| p.cpu_ns += 2.0 * facts.mtu_bytes as f64,
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        AsciiLines
    }
}

impl Presentation for AsciiLines {
    fn present<'a>(&self, message: &'a [u8]) -> Cow<'a, [u8]> {
        // presentation.md R-7.
        let more = message.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
        if more == 0 {
            return Cow::Owned(plain(message));
        }
        let mut out = Vec::with_capacity(message.len().saturating_add(more).saturating_add(1));
        out.push(FORM);
        append(message, &mut out);
        Cow::Owned(out)
    }

    fn present_stream<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        // presentation.md R-16.
        let more = bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
        let mut out = Vec::with_capacity(bytes.len().saturating_add(more));
        append(bytes, &mut out);
        Cow::Owned(out)
    }

    fn unpresent<'a>(&self, data: &'a [u8], max_bytes: usize) -> Result<Cow<'a, [u8]>, Error> {
        read_form(data, max_bytes)
    }
}

/// Appends text in the network's form.
fn append(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'\n' => out.extend_from_slice(b"\r\n"),
            b'\r' => out.extend_from_slice(b"\r\0"),
            other => out.push(*other),
        }
    }
}

/// Reads the network's form of a stream, as it comes: a pair may come in two pieces
/// (presentation.md R-17).
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Where the next piece begins if nothing is missing.
    next: u64,
    /// The last piece ended in a carriage return, which is not handed over yet.
    has_return: bool,
    /// By how many bytes what was handed over is shorter than what came.
    shorter: u64,
}

impl Lines {
    /// Reads a piece that begins at this position; appends the text to `out`. Says where the text
    /// begins in the stream as it was written.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for what no sender makes.
    pub fn read(&mut self, position: u64, piece: &[u8], out: &mut Vec<u8>) -> Result<u64, Error> {
        let follows = position == self.next;
        // The other half of a pair may be missing in front of the piece.
        let mut may_be_torn = !follows && position > 0;
        self.has_return &= follows;
        self.next = position.saturating_add(piece.len() as u64);
        // The carriage return in front was counted with the piece before.
        let begin = position.saturating_sub(self.shorter);
        let before = out.len();
        for byte in piece {
            let is_torn = core::mem::take(&mut may_be_torn);
            match (byte, core::mem::take(&mut self.has_return)) {
                (b'\n', true) => out.push(b'\n'),
                (0, true) => out.push(b'\r'),
                (_, true) => return Err(Error::Corrupt),
                (b'\n', false) if !is_torn => return Err(Error::Corrupt),
                (b'\r', false) => self.has_return = true,
                (other, false) => out.push(*other),
            }
        }
        self.shorter += (piece.len() - (out.len() - before)) as u64;
        Ok(begin)
    }

    /// Where bytes begin in the stream as it was written that travelled as they are; nothing may be
    /// left of what came before them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if half of a pair is.
    pub fn skip(&mut self, position: u64, bytes: u64) -> Result<u64, Error> {
        let is_torn = self.has_return && position == self.next;
        (self.next, self.has_return) = (position.saturating_add(bytes), false);
        if is_torn { Err(Error::Corrupt) } else { Ok(position.saturating_sub(self.shorter)) }
    }

    /// True if the stream may end here.
    pub fn may_end(&self) -> bool {
        !self.has_return
    }
}

/// Text from the network's form.
pub(super) fn read(data: &[u8], max_bytes: usize) -> Result<Cow<'_, [u8]>, Error> {
    // Each carriage return stands for itself and what follows it.
    let bytes = data.len() - data.iter().filter(|byte| **byte == b'\r').count();
    if bytes > max_bytes {
        return Err(Error::TooLarge { bytes, max_bytes });
    }
    let mut out = Vec::with_capacity(bytes);
    let mut rest = data.iter();
    while let Some(byte) = rest.next() {
        // presentation.md R-8.
        out.push(match byte {
            b'\r' => match rest.next() {
                Some(b'\n') => b'\n',
                Some(0) => b'\r',
                None => return Err(Error::Truncated),
                Some(_) => return Err(Error::Corrupt),
            },
            b'\n' => return Err(Error::Corrupt),
            other => *other,
        });
    }
    Ok(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_travel_as_in_rfc_854() {
        assert_eq!(AsciiLines.present(b"one\ntwo\rthree\r\n")[..], *b"\x02one\r\ntwo\r\0three\r\0\r\n");
        assert_eq!(AsciiLines.present(b"no line")[..], *b"\0no line");
        assert_eq!(AsciiLines.unpresent(b"\x02one\r\ntwo\r\0", 8).as_deref(), Ok(&b"one\ntwo\r"[..]));
    }

    #[test]
    fn a_stream_is_read_in_whatever_pieces_it_comes() {
        let text = b"one\ntwo\rthree\r\n\0\n\n";
        let data = AsciiLines.present_stream(text);
        assert_eq!(data[..], *b"one\r\ntwo\r\0three\r\0\r\n\0\r\n\r\n");
        for size in 1..data.len() {
            let (mut lines, mut out, mut at) = (Lines::default(), Vec::new(), 0);
            for piece in data.chunks(size) {
                let before = out.len() as u64;
                assert_eq!(lines.read(at, piece, &mut out), Ok(before), "pieces of {size}");
                at += piece.len() as u64;
            }
            assert!(out == text && lines.may_end(), "pieces of {size}");
            // What follows and has no form of its own has its place, too.
            assert_eq!(lines.skip(at, 10), Ok(text.len() as u64));
        }
    }

    #[test]
    fn what_no_sender_makes_of_a_stream_is_refused() {
        let mut out = Vec::new();
        assert_eq!(Lines::default().read(0, b"a\nb", &mut out), Err(Error::Corrupt));
        let mut torn = Lines::default();
        assert_eq!(torn.read(0, b"a\r", &mut out), Ok(0));
        assert!(!torn.may_end());
        assert_eq!(torn.clone().skip(2, 5), Err(Error::Corrupt));
        for other in [b"\rb", b"ab"] {
            assert_eq!(torn.clone().read(2, other, &mut out), Err(Error::Corrupt));
        }
        // Behind what was given up, the first byte may be half of a pair.
        assert!(torn.read(50, b"\nb", &mut out).is_ok());
    }

    #[test]
    fn what_no_sender_makes_is_refused() {
        assert_eq!(AsciiLines.unpresent(b"\x02a\r", 9), Err(Error::Truncated));
        assert_eq!(AsciiLines.unpresent(b"\x02a\rb", 9), Err(Error::Corrupt));
        assert_eq!(AsciiLines.unpresent(b"\x02a\nb", 9), Err(Error::Corrupt));
        assert_eq!(AsciiLines.unpresent(b"\x02abc", 2), Err(Error::TooLarge { bytes: 3, max_bytes: 2 }));
    }
}
