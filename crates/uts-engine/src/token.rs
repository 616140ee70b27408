//! Tokens: what proves that a client is at its address.

use core::time::Duration;
use ring::{aead, hmac};
use std::net::{IpAddr, SocketAddr};
use uts_functions::Time;
use uts_wire::ConnectionId;

/// Lifetime of a retry token: the time for which a client repeats its first flight, which on a slow
/// line is tens of seconds after the retry was made.
const RETRY_LIFETIME: Duration = Duration::from_secs(60);

/// Content of a valid token: the client answered a retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// The id to which its first packet went.
    pub original_dcid: ConnectionId,
    /// The id that the retry gave.
    pub retry_scid: ConnectionId,
    /// The packet comes from the port to which the retry went. A translator may have given the
    /// client another one since: then its host is proved, but not that it can be reached there.
    pub is_same_port: bool,
}

/// The key of an endpoint's tokens. It belongs to this start of the endpoint, as does the clock by
/// which tokens grow old. After a restart no older token is valid.
pub(crate) struct TokenKeys {
    seal: aead::LessSafeKey,
    counter: u64,
}

impl TokenKeys {
    /// A key that nobody else has, and that no other start of the endpoint had.
    pub fn new(random: &[u8; 32]) -> Option<Self> {
        let key = aead::UnboundKey::new(&aead::CHACHA20_POLY1305, random).ok()?;
        Some(TokenKeys { seal: aead::LessSafeKey::new(key), counter: 0 })
    }

    fn seal(&mut self, remote: SocketAddr, plain: &[u8]) -> Vec<u8> {
        self.counter = self.counter.wrapping_add(1);
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.counter.to_be_bytes());
        let mut out = nonce.to_vec();
        let mut body = plain.to_vec();
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        if self.seal.seal_in_place_append_tag(nonce, aead::Aad::from(host(remote)), &mut body).is_ok() {
            out.extend_from_slice(&body);
        }
        out
    }

    /// A token for a client that is to come back at once.
    pub fn retry(
        &mut self,
        now: Time,
        remote: SocketAddr,
        dcid: &ConnectionId,
        scid: &ConnectionId,
    ) -> Vec<u8> {
        let mut plain = now.as_nanos().to_be_bytes().to_vec();
        plain.extend_from_slice(&remote.port().to_be_bytes());
        for id in [dcid, scid] {
            plain.push(id.len() as u8);
            plain.extend_from_slice(id.as_slice());
        }
        self.seal(remote, &plain)
    }

    /// The proof in a token, if it is ours, fresh, and of this host.
    pub fn check(&self, now: Time, remote: SocketAddr, token: &[u8]) -> Option<Proof> {
        let (nonce, body) = token.split_first_chunk::<12>()?;
        let mut body = body.to_vec();
        let nonce = aead::Nonce::assume_unique_for_key(*nonce);
        let plain = self.seal.open_in_place(nonce, aead::Aad::from(host(remote)), &mut body).ok()?;
        let (at, rest) = plain.split_first_chunk::<8>()?;
        let (port, mut rest) = rest.split_first_chunk::<2>()?;
        if now.since(Time::from_nanos(u64::from_be_bytes(*at))) > RETRY_LIFETIME {
            return None;
        }
        let mut id = || {
            let (len, tail) = rest.split_first()?;
            let (id, tail) = tail.split_at_checked(usize::from(*len))?;
            rest = tail;
            ConnectionId::new(id)
        };
        let is_same_port = u16::from_be_bytes(*port) == remote.port();
        Some(Proof { original_dcid: id()?, retry_scid: id()?, is_same_port })
    }
}

/// The host that a token is bound to (RFC 9000 section 8.1.4).
fn host(remote: SocketAddr) -> Vec<u8> {
    match remote.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The integrity field of a retry: a keyed sum over the client's first id and the packet. Only
/// someone who saw the client's first packet can make it. As in RFC 9001 section 5.8, the key is
/// public. (K-22)
pub(crate) fn retry_integrity(original_dcid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"uts retry integrity 1");
    let mut context = hmac::Context::with_key(&key);
    context.update(&[original_dcid.len() as u8]);
    context.update(original_dcid.as_slice());
    context.update(packet);
    let mut field = [0; 16];
    field.copy_from_slice(&context.sign().as_ref()[..16]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_host_and_its_time() {
        let mut keys = TokenKeys::new(&[7; 32]).expect("valid key");
        let here: SocketAddr = "192.0.2.1:1000".parse().expect("an address");
        let there: SocketAddr = "192.0.2.2:1000".parse().expect("an address");
        let beside: SocketAddr = "192.0.2.1:1001".parse().expect("an address");
        let (dcid, scid) =
            (ConnectionId::new(&[1; 8]).expect("short"), ConnectionId::new(&[2; 5]).expect("short"));
        let now = Time::from_millis(1000);
        let token = keys.retry(now, here, &dcid, &scid);
        let proof = |is_same_port| Some(Proof { original_dcid: dcid, retry_scid: scid, is_same_port });
        assert_eq!(keys.check(now, here, &token), proof(true));
        assert_eq!(keys.check(now, there, &token), None);
        assert_eq!(keys.check(now, beside, &token), proof(false));
        let restarted = TokenKeys::new(&[8; 32]).expect("valid key");
        assert_eq!(restarted.check(now, here, &token), None, "of another start");
        assert_eq!(keys.check(now + RETRY_LIFETIME * 2, here, &token), None);
        for index in 0..token.len() {
            let mut forged = token.clone();
            forged[index] ^= 1;
            assert_eq!(keys.check(now, here, &forged), None, "byte {index}");
        }
    }
}
