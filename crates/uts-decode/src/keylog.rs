//! Key logs in the form of NSS, as TLS libraries write them where `SSLKEYLOGFILE` is set: lines of
//! a label, the random of the ClientHello, and a secret.

use std::collections::HashMap;
use zeroize::Zeroizing;

/// Secrets of the sessions that a key log holds, by the random of the ClientHello.
#[derive(Default)]
pub struct KeyLog {
    sessions: HashMap<[u8; 32], Session>,
}

/// Secrets of one TLS session, of 32 or 48 bytes each.
#[derive(Clone, Default)]
pub(crate) struct Session {
    /// Of what the client sends at the level Handshake.
    pub client_handshake: Option<Zeroizing<Vec<u8>>>,
    /// Of what the server sends there.
    pub server_handshake: Option<Zeroizing<Vec<u8>>>,
    /// The exporter_master_secret of RFC 8446 section 7.1.
    pub exporter: Option<Zeroizing<Vec<u8>>>,
}

/// A line that is not as the form wants it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the key log: expected a label, 64 hexadecimal digits, and a secret of 64 or 96")]
pub struct KeyLogError {
    /// Its number, from 1.
    pub line: usize,
}

impl KeyLog {
    /// Reads a log. Comments, empty lines and labels of other protocols are passed over.
    ///
    /// # Errors
    /// [`KeyLogError`] for the first line of a label that counts here and that cannot be read.
    pub fn parse(text: &str) -> Result<Self, KeyLogError> {
        let mut log = KeyLog::default();
        log.add(text)?;
        Ok(log)
    }

    /// Adds the lines of another log.
    ///
    /// # Errors
    /// Those of [`KeyLog::parse`]; the lines before the wrong one count.
    pub fn add(&mut self, text: &str) -> Result<(), KeyLogError> {
        for (number, line) in text.lines().enumerate() {
            self.add_line(line).ok_or(KeyLogError { line: number + 1 })?;
        }
        Ok(())
    }

    /// Number of sessions with a secret that counts.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn session(&self, random: &[u8; 32]) -> Option<&Session> {
        self.sessions.get(random)
    }

    /// `None` if it cannot be read.
    fn add_line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        let label = words.next().unwrap_or_default();
        let place: fn(&mut Session) -> &mut Option<Zeroizing<Vec<u8>>> = match label {
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET" => |session| &mut session.client_handshake,
            "SERVER_HANDSHAKE_TRAFFIC_SECRET" => |session| &mut session.server_handshake,
            "EXPORTER_SECRET" => |session| &mut session.exporter,
            _ => return Some(()),
        };
        let random: [u8; 32] = bytes(words.next()?)?.try_into().ok()?;
        let secret = Zeroizing::new(bytes(words.next()?)?);
        if !matches!(secret.len(), 32 | 48) || words.next().is_some() {
            return None;
        }
        *place(self.sessions.entry(random).or_default()) = Some(secret);
        Some(())
    }
}

/// Bytes of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                Some((digit(high)? * 16 + digit(low)?) as u8)
            }
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_by_the_random_of_their_session() {
        let (random, secret) = ("ab".repeat(32), "01".repeat(48));
        let text =
            format!("# a comment\n\nCLIENT_RANDOM {random} {random}\nEXPORTER_SECRET {random} {secret}\n");
        let log = KeyLog::parse(&text).expect("it is right");
        let session = log.session(&[0xab; 32]).expect("the session");
        assert_eq!(session.exporter.as_deref().map(Vec::as_slice), Some(&[1; 48][..]));
        assert!(session.client_handshake.is_none());
        assert!(log.session(&[0; 32]).is_none());
        assert_eq!(log.sessions(), 1);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let random = "ab".repeat(32);
        let secret = "cd".repeat(32);
        for wrong in [
            "EXPORTER_SECRET".to_owned(),
            format!("EXPORTER_SECRET {random}"),
            format!("EXPORTER_SECRET {random} {}", &secret[1..]),
            format!("EXPORTER_SECRET {random} {}", &secret[2..]),
            format!("EXPORTER_SECRET {random} {}", secret.replace('c', "g")),
            format!("EXPORTER_SECRET {} {secret}", &random[2..]),
            format!("EXPORTER_SECRET {random} {secret} more"),
        ] {
            let error = KeyLog::parse(&format!("# first\n{wrong}")).err();
            assert_eq!(error, Some(KeyLogError { line: 2 }), "{wrong}");
        }
    }
}
