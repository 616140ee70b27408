//! Text whose lines end as on the network: each line feed travels as carriage return and line feed,
//! and a lone carriage return as carriage return and zero (the network virtual terminal, RFC 854;
//! what FTP calls ASCII).

use super::{Error, Presentation, plain, read_form};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Need, Params, Promise, Unasked};
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
        needs: &[Need::Promise(Function::Segmentation, Promise::Boundaries)],
        facts: Facts { unasked: Unasked::Never, ..Facts::PLAIN },
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
        for byte in message {
            match byte {
                b'\n' => out.extend_from_slice(b"\r\n"),
                b'\r' => out.extend_from_slice(b"\r\0"),
                other => out.push(*other),
            }
        }
        Cow::Owned(out)
    }

    fn unpresent<'a>(&self, data: &'a [u8], max_bytes: usize) -> Result<Cow<'a, [u8]>, Error> {
        read_form(data, max_bytes)
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
    fn what_no_sender_makes_is_refused() {
        assert_eq!(AsciiLines.unpresent(b"\x02a\r", 9), Err(Error::Truncated));
        assert_eq!(AsciiLines.unpresent(b"\x02a\rb", 9), Err(Error::Corrupt));
        assert_eq!(AsciiLines.unpresent(b"\x02a\nb", 9), Err(Error::Corrupt));
        assert_eq!(AsciiLines.unpresent(b"\x02abc", 2), Err(Error::TooLarge { bytes: 3, max_bytes: 2 }));
    }
}
