//! TLS 1.3 as QUIC and TLS over TCP have it here: by rustls, with the cipher that UTS takes and a
//! certificate of the server's own.

use super::{SERVER_NAME, from_hex};
use anyhow::Result;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::sync::Arc;

/// AES-128-GCM first, as UTS has it.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    use rustls::crypto::ring::{cipher_suite::TLS13_AES_128_GCM_SHA256, default_provider};
    Arc::new(rustls::crypto::CryptoProvider {
        cipher_suites: vec![TLS13_AES_128_GCM_SHA256],
        ..default_provider()
    })
}

/// Settings of a server, and its certificate.
pub fn server() -> Result<(rustls::ServerConfig, CertificateDer<'static>)> {
    let identity = rcgen::generate_simple_self_signed(vec![SERVER_NAME.to_owned()])?;
    let certificate = identity.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())?;
    // UTS resumes no sessions; every handshake is a whole one.
    tls.send_tls13_tickets = 0;
    Ok((tls, certificate))
}

/// Settings of a client that trusts this certificate, in hexadecimal digits.
pub fn client(certificate: &str) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(from_hex(certificate)?))?;
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.resumption = rustls::client::Resumption::disabled();
    Ok(tls)
}
