//! TLS settings for two ends that trust each other, out of a key made for the occasion.

use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use std::net::SocketAddr;
use std::sync::Arc;
use uts_engine::{ALPN, ConnectError, ConnectionConfig, ConnectionHandle, Endpoint};
use uts_functions::Time;

/// The name that the server's certificate is made out to.
pub const SERVER_NAME: &str = "server.uts.test";

/// Settings of a server and of clients that know its certificate. Keys are Ed25519, whose
/// signatures have one length. Packets have the same length in every run.
#[derive(Clone)]
pub struct Identities {
    /// For [`uts_engine::EndpointConfig::server`].
    pub server: Arc<rustls::ServerConfig>,
    /// For [`uts_engine::Endpoint::connect`].
    pub client: Arc<rustls::ClientConfig>,
}

/// Why identities could not be made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The certificate.
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The TLS settings.
    #[error("TLS settings: {0}")]
    Tls(#[from] rustls::Error),
}

impl Identities {
    /// Makes a new server key, and settings that trust it.
    ///
    /// # Errors
    /// [`IdentityError`] if the libraries refuse.
    pub fn new() -> Result<Self, IdentityError> {
        Self::with_names(1)
    }

    /// The same, and the certificate is made out to this many names of about 30 bytes each: as
    /// large as a chain of several.
    ///
    /// # Errors
    /// [`IdentityError`] if the libraries refuse.
    pub fn with_names(count: usize) -> Result<Self, IdentityError> {
        let groups = rustls::crypto::ring::default_provider().kx_groups;
        Self::with_groups(count, [&groups, &groups])
    }

    /// The same, for key exchange in these groups of the client and of the server (RFC 8446 section
    /// 4.2.7), the best first.
    ///
    /// # Errors
    /// [`IdentityError`] if the libraries refuse.
    pub fn with_groups(
        count: usize,
        groups: [&[&'static dyn SupportedKxGroup]; 2],
    ) -> Result<Self, IdentityError> {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let others = (1..count).map(|number| format!("another-name-{number:05}.uts.test"));
        let names: Vec<String> = core::iter::once(SERVER_NAME.to_owned()).chain(others).collect();
        let mut params = rcgen::CertificateParams::new(names)?;
        // One drawn from the key is now and then a byte shorter than others.
        params.serial_number = Some(rcgen::SerialNumber::from(1));
        let certificate = params.self_signed(&key)?;
        let der: CertificateDer<'static> = certificate.der().clone();
        let [of_client, of_server] = groups.map(|groups| {
            let provider = rustls::crypto::ring::default_provider();
            Arc::new(CryptoProvider { kx_groups: groups.to_vec(), ..provider })
        });
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut server = rustls::ServerConfig::builder_with_provider(of_server)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![der.clone()], private)?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.send_tls13_tickets = 0;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(der)?;
        let mut client = rustls::ClientConfig::builder_with_provider(of_client)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Identities { server: Arc::new(server), client: Arc::new(client) })
    }

    /// The same, where clients may show a key. Gives the settings of a client that does; those
    /// beside are of one that does not.
    ///
    /// # Errors
    /// [`IdentityError`] if the libraries refuse.
    pub fn with_client_key() -> Result<(Self, Arc<rustls::ClientConfig>), IdentityError> {
        let make = |name: &str| -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), IdentityError> {
            let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
            let certificate = rcgen::CertificateParams::new(vec![name.to_owned()])?.self_signed(&key)?;
            let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
            Ok((certificate.der().clone(), private))
        };
        let (server, server_key) = make(SERVER_NAME)?;
        let (known, known_key) = make("client.uts.test")?;
        let [mut servers, mut clients] = [rustls::RootCertStore::empty(), rustls::RootCertStore::empty()];
        servers.add(server.clone())?;
        clients.add(known.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut server = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![server], server_key)?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.send_tls13_tickets = 0;
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(servers);
        let mut without = client.clone().with_no_client_auth();
        let mut with = client.with_client_auth_cert(vec![known], known_key)?;
        (without.alpn_protocols, with.alpn_protocols) = (vec![ALPN.to_vec()], vec![ALPN.to_vec()]);
        Ok((Identities { server: Arc::new(server), client: Arc::new(without) }, Arc::new(with)))
    }

    /// Begins a connection to a host that has the server's key.
    ///
    /// # Errors
    /// [`ConnectError`] as the engine says.
    pub fn connect(
        &self,
        endpoint: &mut Endpoint,
        now: Time,
        server: SocketAddr,
        config: impl Into<Arc<ConnectionConfig>>,
    ) -> Result<ConnectionHandle, ConnectError> {
        let name = ServerName::try_from(SERVER_NAME)
            .map_err(|error| ConnectError::Tls(rustls::Error::General(error.to_string())))?;
        endpoint.connect(now, server, name.to_owned(), self.client.clone(), config, None)
    }
}
