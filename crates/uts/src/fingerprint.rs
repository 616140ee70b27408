//! The name of a public key, short enough to be read aloud and compared.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use core::fmt;
use core::str::FromStr;
use ring::digest;
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;

const PREFIX: &str = "SHA256:";

/// SHA-256 over the SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7) of a key. It stays the same
/// when a certificate is renewed for the same key. Shown as `SHA256:` and 43 characters of base64,
/// as ssh shows its keys. (K-10)
///
/// ```
/// use uts::{Fingerprint, Identity};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fingerprint = Identity::generate()?.fingerprint();
/// let text = fingerprint.to_string();
/// assert!(text.starts_with("SHA256:"));
/// assert_eq!(text.parse::<Fingerprint>()?, fingerprint);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

/// Why a text is not a fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FingerprintError {
    /// It does not say by which hash.
    #[error("`{0}` is not a fingerprint: it has to begin with SHA256:")]
    Prefix(String),
    /// The text behind the prefix is not base64.
    #[error("`{0}` is not a fingerprint: what follows SHA256: is not base64")]
    Base64(String),
    /// It has another length.
    #[error("`{text}` is not a fingerprint: it holds {bytes} bytes instead of 32")]
    Length {
        /// Text as it was given.
        text: String,
        /// The bytes that it holds.
        bytes: usize,
    },
}

impl Fingerprint {
    /// The fingerprint of a key, given as DER of its SubjectPublicKeyInfo.
    pub fn of_spki(spki_der: &[u8]) -> Self {
        let digest = digest::digest(&digest::SHA256, spki_der);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Fingerprint(bytes)
    }

    /// The fingerprint of the key that a certificate is for.
    ///
    /// # Errors
    /// If it is not a certificate.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        Ok(Self::of_spki(parsed.subject_public_key_info().as_ref()))
    }

    /// The hash itself.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let hash = text.strip_prefix(PREFIX).ok_or_else(|| FingerprintError::Prefix(text.to_owned()))?;
        let bytes = STANDARD_NO_PAD
            .decode(hash.trim_end_matches('='))
            .map_err(|_| FingerprintError::Base64(text.to_owned()))?;
        let bytes = <[u8; 32]>::try_from(bytes)
            .map_err(|bytes| FingerprintError::Length { text: text.to_owned(), bytes: bytes.len() })?;
        Ok(Fingerprint(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let fingerprint = Fingerprint::of_spki(b"a key");
        let text = fingerprint.to_string();
        assert_eq!(text.len(), PREFIX.len() + 43);
        assert_eq!(text.parse(), Ok(fingerprint));
        assert_eq!(format!("{text}=").parse(), Ok(fingerprint), "padding is accepted");
    }

    #[test]
    fn anything_else_is_refused_with_the_reason() {
        let error = |text: &str| text.parse::<Fingerprint>().expect_err("refused").to_string();
        assert!(error("MD5:12").contains("begin with SHA256:"));
        assert!(error("SHA256:not base64").contains("is not base64"));
        assert!(error("SHA256:AAAA").contains("3 bytes instead of 32"));
    }
}
