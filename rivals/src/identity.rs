//! Certificates. A server makes its own for each run, and its clients trust that one and no other.

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use uts_end::{Context, Role};

/// The name in the certificate. Who the server is follows from the certificate, not from this.
pub const SERVER_NAME: &str = "server.test";

/// The protocol that both ends name (ALPN), as QUIC asks for.
pub const PROTOCOL: &[u8] = b"uts-rival";

/// Who an end is, or whom it trusts.
pub enum Who {
    /// A server.
    Server(Box<Identity>),
    /// A client.
    Client(Trusted),
}

impl Who {
    /// What an end needs.
    ///
    /// # Errors
    /// [`Identity::new`], [`Trusted::read`].
    pub fn of(context: &Context<'_>) -> Result<Who, String> {
        Ok(match context.role {
            Role::Server => Who::Server(Box::new(Identity::new()?)),
            Role::Client => Who::Client(Trusted::read(context.peer)?),
        })
    }

    /// What clients are to be told, of a server.
    pub fn shown(&self) -> Option<String> {
        match self {
            Who::Server(identity) => Some(identity.shown()),
            Who::Client(_) => None,
        }
    }
}

/// A server's certificate and key (ECDSA on P-256).
pub struct Identity(CertifiedKey<KeyPair>);

impl Identity {
    /// A new one.
    ///
    /// # Errors
    /// If there are no random numbers.
    pub fn new() -> Result<Identity, String> {
        generate_simple_self_signed([SERVER_NAME.to_owned()])
            .map(Identity)
            .map_err(|e| format!("no certificate: {e}"))
    }

    /// What clients are to be told, as hexadecimal digits.
    pub fn shown(&self) -> String {
        self.0.cert.der().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The certificate.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.0.cert.der().clone()
    }

    /// Its key.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.0.signing_key.serialize_der()).into()
    }

    /// Certificate and key as PEM.
    pub fn pem(&self) -> (String, String) {
        (self.0.cert.pem(), self.0.signing_key.serialize_pem())
    }
}

/// What a client trusts: the certificate that it was given.
#[derive(Clone, Debug)]
pub struct Trusted(CertificateDer<'static>);

impl Trusted {
    /// Reads what [`Identity::shown`] gave.
    ///
    /// # Errors
    /// If that was not given, or is something else.
    pub fn read(shown: Option<&str>) -> Result<Trusted, String> {
        let shown = shown.ok_or("the server's identity is missing: give --peer what it has printed")?;
        let wrong =
            || format!("--peer: `{shown:.20}…` is not a certificate as a server of uts-rival prints it");
        let digits: Option<Vec<u8>> = shown
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let trusted = Trusted(CertificateDer::from(digits.ok_or_else(wrong)?));
        trusted.roots().map_err(|_| wrong())?;
        Ok(trusted)
    }

    /// For rustls.
    ///
    /// # Errors
    /// If it is no certificate.
    pub fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.clone()).map_err(|e| format!("the server's certificate: {e}"))?;
        Ok(roots)
    }

    /// The certificate as PEM.
    pub fn pem(&self) -> String {
        pem::encode(&pem::Pem::new("CERTIFICATE", self.0.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_text_and_back() {
        let identity = Identity::new().expect("identity");
        let trusted = Trusted::read(Some(&identity.shown())).expect("trusted");
        assert_eq!(trusted.0, identity.certificate());
        let lines = |pem: &str| pem.split_whitespace().collect::<Vec<_>>().concat();
        assert_eq!(lines(&trusted.pem()), lines(&identity.pem().0));
        for wrong in [None, Some(""), Some("12"), Some("xyz"), Some("äöü")] {
            let why = Trusted::read(wrong).expect_err("refused");
            assert!(why.contains("--peer"), "{why}");
        }
    }
}
