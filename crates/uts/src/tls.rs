//! TLS 1.3 as UTS uses it: keys that are known by fingerprint, or certificates. Nothing is resumed,
//! nothing sent early.

use crate::authorized_keys::Admitted;
use crate::endpoint::ConnectOptions;
use crate::fingerprint::Fingerprint;
use crate::identity::{IdentityError, read_certificates};
use crate::listener::ServerOptions;
use crate::trust::{Expected, RefusedClient, Trust, TrustError};
use crate::trusted_file::make_key_log;
use crate::x25519_by_aws_lc::{Keys, X25519};
use core::fmt;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768;
use rustls::crypto::{
    CryptoProvider, SupportedKxGroup, aws_lc_rs, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, KeyLogFile, OtherError,
    RootCertStore, ServerConfig, SignatureScheme,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use uts_engine::config::{ALPN, ServerFor};

/// Told of clients that were refused. Called while the endpoint is at work: it must not block.
pub type OnRefused = Arc<dyn Fn(&RefusedClient) + Send + Sync>;

/// A client's TLS, and what it has seen of the server's key.
pub(crate) struct ClientTls {
    pub config: Arc<ClientConfig>,
    /// The key that was refused.
    pub refused: Arc<OnceLock<Fingerprint>>,
}

/// Groups in which the ends of a connection agree on its first secret (RFC 8446 section 4.2.7,
/// establishment.md R-12). The best that both have is taken.
///
/// ```
/// use uts::{ConnectOptions, Fingerprint, KeyExchange};
///
/// # fn example(fingerprint: Fingerprint) {
/// let mut options = ConnectOptions::pinned(fingerprint);
/// options.key_exchange = KeyExchange::Classical;
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyExchange {
    /// X25519MLKEM768, then those of [`KeyExchange::Classical`]. A recording of today stays secret
    /// as long as X25519 or ML-KEM-768 (FIPS 203) holds, and quantum computers break only the
    /// former. A client's first flight is two full datagrams instead of one, and its server's
    /// answer is 1.1 kB longer. If aws-lc was built without `AWS_LC_SYS_NO_JITTER_ENTROPY=1`, the
    /// first such connection of a process takes 20 ms more.
    #[default]
    Hybrid,
    /// X25519, then P-256 and P-384: for lines on which a kilobyte takes a second.
    Classical,
}

/// TLS for one attempt to connect. (K-1)
pub(crate) fn client(
    options: &ConnectOptions,
    expected: &Expected,
    accept_new: bool,
) -> Result<ClientTls, TlsError> {
    let provider = provider(options.key_exchange);
    let refused = Arc::new(OnceLock::new());
    let verifier: Arc<dyn ServerCertVerifier> = match (&options.trust, expected) {
        (Trust::Roots(file), _) => certificate_verifier(file, &provider)?,
        (_, expected) => {
            let accepted = match expected {
                Expected::Keys(keys) => Some(keys.clone()),
                _ if accept_new => None,
                _ => Some(Vec::new()),
            };
            Arc::new(ServerKey { accepted, refused: refused.clone(), provider: provider.clone() })
        }
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &options.identity {
        Some(identity) => builder.with_client_auth_cert(identity.certificates(), identity.key())?,
        None => builder.with_no_client_auth(),
    };
    // K-3
    config.alpn_protocols = vec![ALPN.to_vec()];
    // K-2
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    if options.key_log {
        config.key_log = key_log();
    }
    Ok(ClientTls { config: Arc::new(config), refused })
}

/// TLS of a server, and that of a client at an address.
pub(crate) struct ServerTls {
    pub any: Arc<ServerConfig>,
    /// TLS for who is to be named when it is refused.
    pub of: Option<Arc<ServerFor>>,
    pub refusals: Arc<Refusals>,
}

/// Clients whose keys were refused, by their addresses, until their handshakes have ended.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<SocketAddr, (Fingerprint, String)>>);

/// Refusals that are remembered. Each ends its handshake at once.
const REFUSALS_MAX: usize = 256;

impl Refusals {
    fn note(&self, address: SocketAddr, key: Fingerprint, why: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REFUSALS_MAX {
            all.pop_first();
        }
        all.insert(address, (key, why.to_owned()));
    }

    /// The key of the client there that was refused, and why; nothing is kept of it.
    pub fn take(&self, address: &SocketAddr) -> Option<(Fingerprint, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(address)
    }
}

/// TLS of a server that lets in those with these keys; `None` = all, who are not asked for keys.
/// `is_told`: somebody wants to know who is refused.
pub(crate) fn server(
    options: &ServerOptions,
    authorized: Option<Arc<Admitted>>,
    is_told: bool,
) -> Result<ServerTls, TlsError> {
    let provider = provider(options.key_exchange);
    let identity = &options.identity;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = match &authorized {
        None => builder.with_no_client_auth(),
        Some(keys) => {
            let (keys, provider) = (keys.clone(), provider.clone());
            builder.with_client_cert_verifier(Arc::new(ClientKey { keys, told: None, provider }))
        }
    };
    let any = Arc::new(settled(builder.with_single_cert(identity.certificates(), identity.key())?, options));
    let refusals = Arc::new(Refusals::default());
    let Some(keys) = authorized.filter(|_| is_told) else {
        return Ok(ServerTls { any, of: None, refusals });
    };
    // All of it but the judge of keys, who knows where the client is.
    let (common, options, noted) = (any.clone(), options.clone(), refusals.clone());
    let of = move |address| {
        let told = Some((address, noted.clone()));
        let judge = Arc::new(ClientKey { keys: keys.clone(), told, provider: provider.clone() });
        let builder = ServerConfig::builder_with_provider(provider.clone());
        // The version was good for the others.
        let Ok(builder) = builder.with_protocol_versions(&[&rustls::version::TLS13]) else {
            return common.clone();
        };
        let config =
            builder.with_client_cert_verifier(judge).with_cert_resolver(common.cert_resolver.clone());
        Arc::new(settled(config, &options))
    };
    Ok(ServerTls { any, of: Some(Arc::new(of)), refusals })
}

/// Settings that all clients share. (K-2, K-3)
fn settled(mut config: ServerConfig, options: &ServerOptions) -> ServerConfig {
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    if options.key_log {
        config.key_log = key_log();
    }
    config
}

/// The ciphers that TLS may use. Its own default puts SHA-384 first. Processors do that in
/// software, and it takes a tenth of a handshake. The ciphers of data are not negotiated here.
/// Curve25519 takes aws-lc half the time that it takes ring. (K-5, K-6, K-7)
fn provider(key_exchange: KeyExchange) -> Arc<CryptoProvider> {
    use ring::kx_group::{SECP256R1, SECP384R1};
    fn with(groups: &[&'static dyn SupportedKxGroup]) -> Arc<CryptoProvider> {
        let mut provider = ring::default_provider();
        provider.cipher_suites.sort_by_key(|suite| *suite != ring::cipher_suite::TLS13_AES_128_GCM_SHA256);
        Arc::new(CryptoProvider {
            kx_groups: groups.to_vec(),
            signature_verification_algorithms: aws_lc_rs::default_provider()
                .signature_verification_algorithms,
            key_provider: &Keys,
            ..provider
        })
    }
    static CLASSICAL: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| with(&[&X25519, SECP256R1, SECP384R1]));
    static HYBRID: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| with(&[X25519MLKEM768, &X25519, SECP256R1, SECP384R1]));
    match key_exchange {
        KeyExchange::Classical => CLASSICAL.clone(),
        KeyExchange::Hybrid => HYBRID.clone(),
    }
}

/// The file that `SSLKEYLOGFILE` names, for this user alone if it is new.
fn key_log() -> Arc<KeyLogFile> {
    if let Some(file) = std::env::var_os("SSLKEYLOGFILE").filter(|file| !file.is_empty()) {
        // What cannot be written is left out.
        let _ = make_key_log(Path::new(&file));
    }
    Arc::new(KeyLogFile::new())
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] Error),
}

fn certificate_verifier(
    file: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let corrupt = |why: String| TrustError::Roots(IdentityError::Corrupt { path: file.to_owned(), why });
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(file).map_err(TrustError::Roots)? {
        roots.add(certificate).map_err(|e| corrupt(format!("a root cannot be used: {e}")))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|e| corrupt(e.to_string()))?;
    Ok(verifier)
}

/// The key is not one that is accepted.
#[derive(Debug, thiserror::Error)]
#[error("it is not one of the keys that are let in")]
struct KeyRefused;

/// The key is refused; the peer gets the alert `certificate_unknown` (RFC 8446 section 6.2).
fn denied() -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(KeyRefused))))
}

/// Signatures over the handshake, and what is decided of their maker once one is found to be right.
macro_rules! verify_signatures {
    ($decide:expr) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            let valid = verify_tls12_signature(message, certificate, signature, algorithms)?;
            $decide(self, certificate)?;
            Ok(valid)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            let valid = verify_tls13_signature(message, certificate, signature, algorithms)?;
            $decide(self, certificate)?;
            Ok(valid)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

/// A server is known by its key; that it has it, the signature over the handshake shows.
struct ServerKey {
    /// `None` = any.
    accepted: Option<Vec<Fingerprint>>,
    refused: Arc<OnceLock<Fingerprint>>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerKey").field("accepted", &self.accepted).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for ServerKey {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = Fingerprint::of_certificate(certificate)?;
        if self.accepted.as_ref().is_none_or(|accepted| accepted.contains(&found)) {
            return Ok(ServerCertVerified::assertion());
        }
        self.refused.get_or_init(|| found);
        Err(denied())
    }

    // What its key must be was looked at with the certificate.
    verify_signatures!(|_: &Self, _: &CertificateDer<'_>| Ok::<(), Error>(()));
}

/// A client is let in if its key is in a file. The key is looked up only once the client has shown
/// that it has it. A client without the key makes this end neither read files nor reveal which keys
/// others have. (K-11)
struct ClientKey {
    keys: Arc<Admitted>,
    /// The place of the client, and where it is noted if it is refused.
    told: Option<(SocketAddr, Arc<Refusals>)>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKey").field("in", &self.keys.place()).finish_non_exhaustive()
    }
}

impl ClientKey {
    fn check(&self, fingerprint: Fingerprint) -> Result<(), String> {
        // If the file is damaged nobody is let in: an entry that was taken out must not come back.
        if self.keys.keys()?.contains(&fingerprint) {
            return Ok(());
        }
        Err(format!("the key {fingerprint} is not in {}", self.keys.place()))
    }

    /// Lets the owner of a key in, or not.
    fn decide(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let fingerprint = Fingerprint::of_certificate(certificate)?;
        self.check(fingerprint).map_err(|why| {
            tracing::debug!(%fingerprint, why, "client refused");
            if let Some((address, refusals)) = &self.told {
                refusals.note(*address, fingerprint, &why);
            }
            denied()
        })
    }
}

impl ClientCertVerifier for ClientKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // Decided when the signature has shown whose it is.
        Fingerprint::of_certificate(certificate)?;
        Ok(ClientCertVerified::assertion())
    }

    verify_signatures!(Self::decide);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::internal::msgs::codec::Codec;

    /// A client that shows a certificate without having its key is refused for that. The file of
    /// keys is not asked.
    #[test]
    fn a_key_is_looked_up_once_its_owner_has_signed() {
        let (refused, address) = (Arc::new(Refusals::default()), SocketAddr::from(([192, 0, 2, 1], 9)));
        let stranger = crate::Identity::generate().expect("a key");
        let verifier = ClientKey {
            keys: Arc::new(Admitted::File(crate::authorized_keys::Watched::new(
                "/nowhere/authorized_keys".into(),
            ))),
            told: Some((address, refused.clone())),
            provider: provider(KeyExchange::Hybrid),
        };
        let certificate = &stranger.certificates()[0];
        verifier.verify_client_cert(certificate, &[], UnixTime::now()).expect("not decided yet");
        let message = b"the handshake";
        let signer = crate::x25519_by_aws_lc::load_private_key(&stranger.key()).expect("a key");
        let scheme = SignatureScheme::ED25519;
        let signature = signer.choose_scheme(&[scheme]).expect("Ed25519").sign(message).expect("signed");
        let mut forged = signature.clone();
        forged[0] ^= 1;
        let verify = |signature: &[u8]| {
            let mut bytes = u16::from(scheme).to_be_bytes().to_vec();
            bytes.extend((signature.len() as u16).to_be_bytes());
            bytes.extend(signature);
            let signed = DigitallySignedStruct::read_bytes(&bytes).expect("well formed");
            verifier.verify_tls13_signature(message, certificate, &signed).expect_err("refused")
        };
        assert_eq!(verify(&forged), Error::InvalidCertificate(CertificateError::BadSignature));
        assert!(refused.take(&address).is_none(), "it is told of nobody who has not signed");
        assert!(matches!(verify(&signature), Error::InvalidCertificate(CertificateError::Other(_))));
        let (key, why) = refused.take(&address).expect("noted");
        assert!(key == stranger.fingerprint() && why.contains("cannot read"), "{why}");
        for port in 0..2 * REFUSALS_MAX as u16 {
            refused.note(SocketAddr::new(address.ip(), port), key, "why");
        }
        assert_eq!(refused.0.lock().expect("no panic").len(), REFUSALS_MAX);
    }
}
