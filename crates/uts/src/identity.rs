//! Identity of this end: a key and the certificate that carries it.

use crate::fingerprint::Fingerprint;
use crate::ssh_keys;
use crate::x25519_by_aws_lc;
use core::fmt;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use zeroize::{Zeroize, Zeroizing};

/// The name in the certificate of a key that nobody certified; peers look at the key alone.
const SELF_SIGNED_NAME: &str = "uts";

/// A key, and the certificate that carries it: self-signed (peers know the key by its
/// [`Fingerprint`]) or X.509 (peers know who certified it).
///
/// ```
/// use uts::{Fingerprint, Identity};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("id_ed25519.pem");
/// let (identity, was_made) = Identity::load_or_create(&path)?;
/// assert!(was_made);
/// let again: Fingerprint = identity.fingerprint().to_string().parse()?;
/// assert_eq!(Identity::load(&path)?.fingerprint(), again);
/// # Ok(())
/// # }
/// ```
pub struct Identity {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    fingerprint: Fingerprint,
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// There is no place for a key file.
    #[error("no place for the key file: neither XDG_CONFIG_HOME nor HOME is set, and the user has no home")]
    NoHome,
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The key file cannot be made.
    #[error("cannot make the key file {path}: {source}")]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read the key.
    #[error("the key in {path} can be read by others (mode {mode:04o}): run `chmod 600 {path}`")]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file holds no usable key or certificate.
    #[error("{path}: {why}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Fault of the file.
        why: String,
    },
    /// The key and the certificate do not belong together, or cannot be used.
    #[error("the key and the certificate cannot be used: {0}")]
    Unusable(String),
}

impl From<IdentityError> for io::Error {
    fn from(error: IdentityError) -> Self {
        let kind = match &error {
            IdentityError::NoHome => io::ErrorKind::NotFound,
            IdentityError::Read { source, .. } | IdentityError::Create { source, .. } => source.kind(),
            IdentityError::Permissions { .. } => io::ErrorKind::PermissionDenied,
            IdentityError::Corrupt { .. } | IdentityError::Unusable(_) => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}

impl Identity {
    /// The secret from which the ids and resets of this server's endpoints follow, together with
    /// where they are. It is the same after a restart. A restarted server can then end the
    /// connections that it has forgotten.
    pub(crate) fn endpoint_secret(&self) -> [u8; 32] {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, self.key.secret_der());
        let mut secret = [0; 32];
        secret.copy_from_slice(ring::hmac::sign(&key, b"uts endpoint secret").as_ref());
        secret
    }

    /// A new Ed25519 key that lives as long as this value.
    ///
    /// # Errors
    /// [`IdentityError::Unusable`] if the system gives no random numbers.
    pub fn generate() -> Result<Self, IdentityError> {
        let pair =
            KeyPair::generate_for(&PKCS_ED25519).map_err(|e| IdentityError::Unusable(e.to_string()))?;
        Self::self_signed(&pair)
    }

    /// Where a user's key is kept: `$XDG_CONFIG_HOME/uts/id_ed25519.pem`, or otherwise
    /// `~/.config/uts/id_ed25519.pem`.
    ///
    /// # Errors
    /// [`IdentityError::NoHome`].
    pub fn default_path() -> Result<PathBuf, IdentityError> {
        Ok(config_dir().ok_or(IdentityError::NoHome)?.join("id_ed25519.pem"))
    }

    /// The key in a PEM file that only its owner may read, or in one of OpenSSH (Ed25519, not
    /// encrypted).
    ///
    /// # Errors
    /// If the file cannot be read, is open to others, or holds no usable key.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        check_permissions(path)?;
        let key = read_key(path)?;
        let pair = KeyPair::try_from(&key).map_err(|e| IdentityError::Corrupt {
            path: path.to_owned(),
            why: format!("no usable key: {e}"),
        })?;
        Self::self_signed(&pair)
    }

    /// The key in a file. If the file does not exist, it is made (with mode 0600, and the folders
    /// above it). Returns whether it was made now.
    ///
    /// # Errors
    /// As [`Identity::load`], and [`IdentityError::Create`].
    pub fn load_or_create(path: &Path) -> Result<(Self, bool), IdentityError> {
        match path.try_exists() {
            Ok(true) => return Ok((Self::load(path)?, false)),
            Ok(false) => {}
            Err(source) => return Err(IdentityError::Read { path: path.to_owned(), source }),
        }
        let pair =
            KeyPair::generate_for(&PKCS_ED25519).map_err(|e| IdentityError::Unusable(e.to_string()))?;
        let was_made = write_key(&pair, path)?;
        // If somebody else was faster, theirs counts.
        Ok((Self::load(path)?, was_made))
    }

    /// Writes the key to a new file of mode 0600, as [`Identity::load`] reads it.
    ///
    /// # Errors
    /// [`IdentityError::Create`], also if there is a file already; [`IdentityError::Unusable`] if
    /// the key cannot be written as PEM.
    pub fn save(&self, path: &Path) -> Result<(), IdentityError> {
        let pair = KeyPair::try_from(&self.key).map_err(|e| IdentityError::Unusable(e.to_string()))?;
        if write_key(&pair, path)? {
            return Ok(());
        }
        Err(IdentityError::Create { path: path.to_owned(), source: io::ErrorKind::AlreadyExists.into() })
    }

    /// An X.509 certificate with the chain that leads to a root, and its key, from PEM files.
    ///
    /// # Errors
    /// If a file cannot be read, the key's is open to others, or they do not belong together.
    pub fn from_pem_files(chain: &Path, key: &Path) -> Result<Self, IdentityError> {
        check_permissions(key)?;
        let certificates = read_certificates(chain)?;
        let key = read_key(key)?;
        Self::from_der(certificates, key)
    }

    /// A certificate, the chain that leads to a root, and its key.
    ///
    /// # Errors
    /// [`IdentityError::Unusable`].
    pub fn from_der(
        certificates: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, IdentityError> {
        let unusable = |e: rustls::Error| IdentityError::Unusable(e.to_string());
        let first = certificates.first().ok_or_else(|| IdentityError::Unusable("no certificate".into()))?;
        let fingerprint = Fingerprint::of_certificate(first).map_err(unusable)?;
        let signer = x25519_by_aws_lc::load_private_key(&key).map_err(unusable)?;
        rustls::sign::CertifiedKey::new(certificates.clone(), signer).keys_match().map_err(unusable)?;
        Ok(Identity { certificates, key, fingerprint })
    }

    /// Fingerprint by which peers know the key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The fingerprint that ssh shows of the same key (`ssh-keygen -l`); `None` if it is of another
    /// kind than Ed25519. It is another than [`Identity::fingerprint`], and only for comparison.
    pub fn ssh_fingerprint(&self) -> Option<Fingerprint> {
        let certificate = rustls::server::ParsedCertificate::try_from(self.certificates.first()?).ok()?;
        crate::ssh_keys::fingerprint(certificate.subject_public_key_info().as_ref())
    }

    pub(crate) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.certificates.clone()
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    // K-9
    fn self_signed(pair: &KeyPair) -> Result<Self, IdentityError> {
        let unusable = |e: rcgen::Error| IdentityError::Unusable(e.to_string());
        let params = CertificateParams::new(vec![SELF_SIGNED_NAME.to_owned()]).map_err(unusable)?;
        let certificate = params.self_signed(pair).map_err(unusable)?;
        let key = PrivateKeyDer::try_from(pair.serialize_der())
            .map_err(|why| IdentityError::Unusable(why.to_owned()))?;
        Self::from_der(vec![certificate.der().clone()], key)
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Identity {
            certificates: self.certificates.clone(),
            key: self.key.clone_key(),
            fingerprint: self.fingerprint,
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

/// The user's home: that of the environment, or else of the system's list of users, as where cron
/// or a service manager has begun the program.
fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

/// The user's folder for keys and known hosts.
pub(crate) fn config_dir() -> Option<PathBuf> {
    let from = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base =
        from("XDG_CONFIG_HOME").filter(|p| p.is_absolute()).or_else(|| Some(home()?.join(".config")))?;
    Some(base.join("uts"))
}

/// All certificates of a PEM file.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let pem = std::fs::read(path).map_err(|source| IdentityError::Read { path: path.to_owned(), source })?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(IdentityError::Corrupt { path: path.to_owned(), why: "it holds no certificate".into() }),
        Err(e) => Err(IdentityError::Corrupt { path: path.to_owned(), why: format!("not PEM: {e}") }),
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, IdentityError> {
    let pem = std::fs::read(path).map_err(|source| IdentityError::Read { path: path.to_owned(), source })?;
    let pem = Zeroizing::new(pem);
    if let Some(key) = std::str::from_utf8(&pem).ok().and_then(ssh_keys::private) {
        return key.map_err(|why| IdentityError::Corrupt { path: path.to_owned(), why });
    }
    PrivateKeyDer::from_pem_slice(&pem).map_err(|e| IdentityError::Corrupt {
        path: path.to_owned(),
        why: format!("it holds no private key: {e}"),
    })
}

#[cfg(unix)]
fn check_permissions(path: &Path) -> Result<(), IdentityError> {
    use std::os::unix::fs::MetadataExt;
    let metadata =
        std::fs::metadata(path).map_err(|source| IdentityError::Read { path: path.to_owned(), source })?;
    let mode = metadata.mode() & 0o7777;
    if metadata.is_file() && mode & 0o077 != 0 {
        return Err(IdentityError::Permissions { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_permissions(_: &Path) -> Result<(), IdentityError> {
    Ok(())
}

/// The error of a temporary file without its name, which nobody has asked for.
pub(crate) fn without_path(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.split_once(" at path ") {
        Some((words, _)) => io::Error::new(error.kind(), words.to_owned()),
        None => error,
    }
}

/// Writes a key to a new file. Returns whether it is this call's.
fn write_key(pair: &KeyPair, path: &Path) -> Result<bool, IdentityError> {
    let pem = Zeroizing::new(pair.serialize_pem());
    create_private(path, pem.as_bytes())
        .map_err(|source| IdentityError::Create { path: path.to_owned(), source })
}

/// Makes a file of mode 0600 that is complete as soon as it has its name. Returns whether it is
/// this call's.
fn create_private(path: &Path, contents: &[u8]) -> io::Result<bool> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(dir)?;
    let mut file = tempfile::Builder::new().prefix(".id-").tempfile_in(dir).map_err(without_path)?;
    file.write_all(contents)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e.error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_saved_is_the_same_and_replaces_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("id.pem");
        let key = Identity::generate().expect("made");
        key.save(&path).expect("saved");
        assert_eq!(Identity::load(&path).expect("private").fingerprint(), key.fingerprint());
        let error = Identity::generate().and_then(|other| other.save(&path)).expect_err("it is there");
        assert!(error.to_string().contains("id.pem"), "{error}");
    }

    #[test]
    fn a_key_is_made_once_and_found_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("deep/er/id.pem");
        let (first, made) = Identity::load_or_create(&path).expect("made");
        assert!(made);
        let (again, made) = Identity::load_or_create(&path).expect("read");
        assert!(!made);
        assert_eq!(first.fingerprint(), again.fingerprint());
        assert_ne!(first.fingerprint(), Identity::generate().expect("generated").fingerprint());
        let left = std::fs::read_dir(dir.path().join("deep/er")).expect("listed").count();
        assert_eq!(left, 1, "no temporary file is left behind");
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("id.pem");
        Identity::load_or_create(&path).expect("made");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("changed");
        let error = Identity::load(&path).expect_err("refused").to_string();
        assert!(error.contains("mode 0644") && error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_corrupt_key_file_is_named_and_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("id.pem");
        create_private(&path, b"-----BEGIN PRIVATE KEY-----\nMC4=\n-----END PRIVATE KEY-----\n")
            .expect("made");
        let error = Identity::load_or_create(&path).expect_err("refused").to_string();
        assert!(error.contains("id.pem") && error.contains("no usable key"), "{error}");
        assert!(!create_private(&path, b"other").expect("not clobbered"));
        let error = Identity::load(&dir.path().join("absent.pem")).expect_err("refused").to_string();
        assert!(error.contains("absent.pem"), "{error}");
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let (a, b) = (Identity::generate().expect("a key"), Identity::generate().expect("a key"));
        let error = Identity::from_der(a.certificates(), b.key()).expect_err("refused");
        assert!(matches!(error, IdentityError::Unusable(_)), "{error}");
    }

    /// Of several that make it at once all have the same.
    #[test]
    fn a_key_that_several_make_at_once_is_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("id.pem");
        let found: Vec<_> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| Identity::load_or_create(&path).expect("made or read")))
                .collect();
            makers.into_iter().map(|maker| maker.join().expect("no panic")).collect()
        });
        assert_eq!(found.iter().filter(|(_, made)| *made).count(), 1);
        assert!(found.iter().all(|(key, _)| key.fingerprint() == found[0].0.fingerprint()));
    }

    #[test]
    fn a_key_file_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("written");
        let error = Identity::load_or_create(&file.join("id.pem")).expect_err("beneath a file");
        assert!(matches!(error, IdentityError::Create { .. } | IdentityError::Read { .. }), "{error}");
        assert!(error.to_string().contains("id.pem"), "{error}");
    }

    /// Printed text may go to a log.
    #[test]
    fn a_key_is_not_printed() {
        let identity = Identity::generate().expect("a key");
        assert_eq!(format!("{identity:?}"), format!("Identity({})", identity.fingerprint()));
        assert_eq!(identity.clone().fingerprint(), identity.fingerprint());
    }

    #[test]
    fn a_chain_and_its_key_are_read_and_what_is_wrong_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
        let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let certificate = CertificateParams::new(vec!["host".to_owned()]).expect("a name").self_signed(&pair);
        std::fs::write(&chain, certificate.expect("a certificate").pem()).expect("written");
        create_private(&key, pair.serialize_pem().as_bytes()).expect("made");
        let identity = Identity::from_pem_files(&chain, &key).expect("they belong together");
        assert_eq!(identity.fingerprint(), Identity::load(&key).expect("read").fingerprint());

        let named = |chain: &Path, key: &Path, what: &str| {
            let error = Identity::from_pem_files(chain, key).expect_err("refused").to_string();
            assert!(error.contains(what), "{error}");
        };
        named(&dir.path().join("absent"), &key, "absent");
        named(&chain, &dir.path().join("absent"), "absent");
        named(&key, &key, "holds no certificate");
        named(&chain, &chain, "chain.pem");
        let other = dir.path().join("other.pem");
        Identity::load_or_create(&other).expect("made");
        named(&chain, &other, "cannot be used");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).expect("changed");
            named(&chain, &key, "mode 0640");
        }
        assert!(matches!(Identity::from_der(Vec::new(), identity.key()), Err(IdentityError::Unusable(_))));
    }
}
