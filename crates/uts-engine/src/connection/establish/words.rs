//! Errors of TLS, in words for people: its own texts name the types of a program.

use rustls::{AlertDescription, CertificateError, Error};

/// Words before the reason why a certificate is not valid.
pub const CERTIFICATE: &str = "its certificate is not valid: ";

/// An error of TLS as a line for people, of the peer.
pub(in crate::connection) fn of_tls(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::Other(why)) => why.0.to_string(),
        Error::InvalidCertificate(why) => format!("{CERTIFICATE}{}", of_certificate(why)),
        Error::PeerIncompatible(why) => format!("it is not compatible: {}", spaced(&format!("{why:?}"))),
        Error::PeerMisbehaved(why) => format!("it broke the rules of TLS: {}", spaced(&format!("{why:?}"))),
        Error::AlertReceived(AlertDescription::Unknown(number)) => {
            format!("it ended the handshake: alert {number}")
        }
        Error::AlertReceived(alert) => format!("it ended the handshake: {}", spaced(&format!("{alert:?}"))),
        Error::InvalidMessage(why) => {
            format!("its message of TLS cannot be read: {}", spaced(&format!("{why:?}")))
        }
        // The others have words of their own.
        other => other.to_string(),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::NotValidForNameContext { expected, presented } => {
            let named: Vec<String> = presented.iter().map(ToString::to_string).collect();
            let named = if named.is_empty() { "nobody".to_owned() } else { named.join(", ") };
            format!("it is not for {} but for {named}", expected.to_str())
        }
        E::ExpiredContext { .. }
        | E::NotValidYetContext { .. }
        | E::ExpiredRevocationListContext { .. }
        | E::InvalidPurposeContext { .. } => error.to_string(),
        E::UnknownIssuer => "nobody who is trusted has issued it".to_owned(),
        other => spaced(&format!("{other:?}")),
    }
}

/// The name of a case as words: `NoCipherSuitesInCommon` is `no cipher suites in common`. What the
/// case holds is left out.
fn spaced(name: &str) -> String {
    let mut words = String::new();
    let mut was_small = false;
    for c in name.chars().take_while(|c| c.is_ascii_alphanumeric()) {
        if c.is_ascii_uppercase() && was_small {
            words.push(' ');
        }
        was_small = !c.is_ascii_uppercase();
        words.push(c.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::{OtherError, PeerIncompatible};
    use std::sync::Arc;

    #[test]
    fn no_error_shows_the_types_of_a_program() {
        #[derive(Debug, thiserror::Error)]
        #[error("not one of mine")]
        struct Mine;
        let name = ServerName::try_from("example.org").unwrap();
        let presented = vec!["a.example".to_owned(), "b.example".to_owned()];
        let not_valid = CertificateError::NotValidForNameContext { expected: name, presented };
        for (error, words) in [
            (CertificateError::Other(OtherError(Arc::new(Mine))).into(), "not one of mine"),
            (
                CertificateError::UnknownIssuer.into(),
                "its certificate is not valid: nobody who is trusted has issued it",
            ),
            (CertificateError::BadSignature.into(), "its certificate is not valid: bad signature"),
            (
                not_valid.into(),
                "its certificate is not valid: it is not for example.org but for a.example, b.example",
            ),
            (
                PeerIncompatible::NoCipherSuitesInCommon.into(),
                "it is not compatible: no cipher suites in common",
            ),
            (
                Error::AlertReceived(AlertDescription::HandshakeFailure),
                "it ended the handshake: handshake failure",
            ),
            (Error::AlertReceived(AlertDescription::Unknown(77)), "it ended the handshake: alert 77"),
        ] {
            assert_eq!(of_tls(&error), words);
        }
    }
}
