//! Curve25519 for TLS by aws-lc, which takes half of ring's time for it.
//!
//! Only for operations that need no random numbers of aws-lc's own. Before the first of them,
//! aws-lc measures jitter of the processor, which delays the first connection of a process by 20
//! ms, unless it was built not to (`.cargo/config.toml`). Secrets come from the system, as ring's
//! do.

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::crypto::{
    ActiveKeyExchange, GetRandomFailed, KeyProvider, SharedSecret, SupportedKxGroup, aws_lc_rs as by_aws_lc,
    ring as by_ring,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use rustls::{Error, NamedGroup, PeerMisbehaved};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Bytes of a secret, and of what is made public of it (RFC 7748, section 5).
const KEY_BYTES: usize = 32;

/// The key exchange of RFC 7748, section 6.1, and RFC 8446, section 7.4.2.
#[derive(Debug)]
pub(crate) struct X25519;

impl SupportedKxGroup for X25519 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut secret = Zeroizing::new([0; KEY_BYTES]);
        SystemRandom::new().fill(secret.as_mut()).map_err(|_| GetRandomFailed)?;
        Ok(Box::new(Exchange::new(&secret)?))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// One exchange, begun.
struct Exchange {
    secret: PrivateKey,
    public: agreement::PublicKey,
}

impl Exchange {
    fn new(secret: &[u8; KEY_BYTES]) -> Result<Self, Error> {
        let unusable = |what| Error::General(format!("X25519: {what}"));
        let secret = PrivateKey::from_private_key(&agreement::X25519, secret)
            .map_err(|e| unusable(format!("a secret cannot be used: {e}")))?;
        let public =
            secret.compute_public_key().map_err(|_| unusable("a secret has no public key".into()))?;
        Ok(Exchange { secret, public })
    }
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        // aws-lc refuses a result of all zeros, which a point of small order gives (RFC 7748,
        // section 6.1).
        let peer = UnparsedPublicKey::new(&agreement::X25519, peer);
        let refused = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);
        agreement::agree(&self.secret, peer, refused, |shared| Ok(SharedSecret::from(shared)))
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_ref()
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// Loads keys to sign with.
#[derive(Debug)]
pub(crate) struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        load_private_key(&key)
    }
}

/// A key to sign with. Ed25519 is signed by aws-lc, because this takes no random numbers. Other
/// keys are signed by ring, and by aws-lc if ring does not know them.
pub(crate) fn load_private_key(key: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, Error> {
    if let PrivateKeyDer::Pkcs8(key) = key
        && let Ok(key) = by_aws_lc::sign::any_eddsa_type(key)
    {
        return Ok(key);
    }
    by_ring::sign::any_supported_type(key).or_else(|_| by_aws_lc::sign::any_supported_type(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> [u8; KEY_BYTES] {
        core::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal"))
    }

    /// RFC 7748, section 6.1.
    #[test]
    fn secrets_agree_as_the_standard_says() {
        let begin = |hex| Box::new(Exchange::new(&bytes(hex)).expect("a secret"));
        let alice = begin("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
        let bob = begin("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let to_bob = alice.pub_key().to_vec();
        assert_eq!(to_bob, bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"));
        assert_eq!(bob.pub_key(), bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));
        let shared = alice.complete(bob.pub_key()).expect("agreed");
        assert_eq!(
            shared.secret_bytes(),
            bytes("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
        );
        assert_eq!(shared.secret_bytes(), bob.complete(&to_bob).expect("agreed").secret_bytes());
    }

    #[test]
    fn each_exchange_has_a_secret_of_its_own() {
        let begin = || X25519.start().expect("begun");
        let (one, other) = (begin(), begin());
        assert_ne!(one.pub_key(), other.pub_key());
        let (to_other, to_one) = (one.pub_key().to_vec(), other.pub_key().to_vec());
        let (one, other) = (one.complete(&to_one), other.complete(&to_other));
        assert_eq!(one.expect("agreed").secret_bytes(), other.expect("agreed").secret_bytes());
    }

    /// Points of small order, and what is no point at all.
    #[test]
    fn bad_shares_are_refused() {
        let mut one = [0; KEY_BYTES];
        one[0] = 1;
        for share in [&[0; KEY_BYTES][..], &one, &[9; 31], &[9; 33], &[]] {
            let refused = X25519.start().expect("begun").complete(share).map(|_| ());
            assert_eq!(refused, Err(PeerMisbehaved::InvalidKeyShare.into()), "{share:?}");
        }
    }
}
