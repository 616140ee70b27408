//! The words of members and the sender on the flow by which a member joins.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncRead, AsyncReadExt};
use uts_group::Answers;
use uts_group::seal::Key;
use zeroize::Zeroizing;

/// First byte that a member says: the version. (G-21)
pub(super) const VERSION: u8 = 1;

const WELCOME: u8 = 1;
const KEY: u8 = 2;

/// Byte before the generation of a key that a member has got. (G-24)
pub(super) const HAS: u8 = 2;

/// Bytes of a welcome behind its kind.
const WELCOME_BYTES: usize = 4 + 4 + 32 + 32 + KEY_BYTES + 4 + 1 + 1 + 16 + 2 + 2;

/// Bytes of a key: generation, step, secret.
const KEY_BYTES: usize = 2 + 2 + 32;

/// All that a member has to know of a group. (G-22)
pub(super) struct Welcome {
    pub group: u32,
    pub member: u32,
    /// Secret that the member shares with the sender.
    pub secret: Zeroizing<[u8; 32]>,
    /// Key of the sender's signatures.
    pub public: [u8; 32],
    pub key: Key,
    /// First block of which the member gets all.
    pub first: u32,
    pub sources: u8,
    pub answers: Answers,
    pub address: SocketAddr,
    /// Port that takes requests, at the address of the connection.
    pub requests: u16,
}

/// Words of the sender.
pub(super) enum Told {
    Welcome(Box<Welcome>),
    Key(Key),
}

impl Welcome {
    pub(super) fn emit(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(1 + WELCOME_BYTES));
        out.push(WELCOME);
        out.extend(self.group.to_be_bytes());
        out.extend(self.member.to_be_bytes());
        out.extend(*self.secret);
        out.extend(self.public);
        put_key(&self.key, &mut out);
        out.extend(self.first.to_be_bytes());
        out.push(self.sources);
        out.push(u8::from(self.answers == Answers::Gathered));
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        out.extend(ip.octets());
        out.extend(self.address.port().to_be_bytes());
        out.extend(self.requests.to_be_bytes());
        out
    }
}

/// A key as the sender tells it. (G-24)
pub(super) fn emit_key(key: &Key) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(1 + KEY_BYTES));
    out.push(KEY);
    put_key(key, &mut out);
    out
}

fn put_key(key: &Key, out: &mut Vec<u8>) {
    out.extend(key.generation.to_be_bytes());
    out.extend(key.step.to_be_bytes());
    out.extend(key.secret);
}

impl Told {
    /// Reads what the sender says next. `None` once it says nothing more.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Told>> {
        let kind = match from.read_u8().await {
            Ok(kind) => kind,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        match kind {
            WELCOME => {
                let mut bytes = Zeroizing::new([0; WELCOME_BYTES]);
                from.read_exact(&mut bytes[..]).await?;
                welcome(&bytes).map(|welcome| Some(Told::Welcome(Box::new(welcome))))
            }
            KEY => {
                let mut bytes = Zeroizing::new([0; KEY_BYTES]);
                from.read_exact(&mut bytes[..]).await?;
                Ok(Some(Told::Key(key(&mut &bytes[..]))))
            }
            other => Err(wrong(format!("kind {other} at the begin, expected 1 (welcome) or 2 (key)"))),
        }
    }
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("what the sender of the group says: {why}"))
}

/// The next bytes, of which there are as many: the caller has read them.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk().unwrap_or((&[0; N], &[]));
    *bytes = rest;
    *first
}

fn key(bytes: &mut &[u8]) -> Key {
    let generation = u16::from_be_bytes(take(bytes));
    Key { generation, step: u16::from_be_bytes(take(bytes)), secret: take(bytes) }
}

fn welcome(bytes: &[u8; WELCOME_BYTES]) -> io::Result<Welcome> {
    let mut rest = &bytes[..];
    let (group, member) = (u32::from_be_bytes(take(&mut rest)), u32::from_be_bytes(take(&mut rest)));
    let (secret, public) = (Zeroizing::new(take(&mut rest)), take(&mut rest));
    let key = key(&mut rest);
    let first = u32::from_be_bytes(take(&mut rest));
    let [sources, answers] = take(&mut rest);
    let ip = Ipv6Addr::from(take::<16>(&mut rest));
    let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
    let (port, requests) = (u16::from_be_bytes(take(&mut rest)), u16::from_be_bytes(take(&mut rest)));
    if !(1..=uts_group::SOURCES_MAX).contains(&usize::from(sources)) {
        return Err(wrong(format!("blocks of {sources} sources, expected 1 to 64")));
    }
    let answers = match answers {
        0 => Answers::Prompt,
        1 => Answers::Gathered,
        other => return Err(wrong(format!("answers of kind {other}, expected 0 or 1"))),
    };
    let is_reachable = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::LOCALHOST);
    if !is_reachable || port == 0 || requests == 0 {
        let found = SocketAddr::new(ip, port);
        return Err(wrong(format!("the group is at {found}, expected an address of multicast and ports")));
    }
    let address = SocketAddr::new(ip, port);
    Ok(Welcome { group, member, secret, public, key, first, sources, answers, address, requests })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Welcome {
        Welcome {
            group: 1,
            member: 2,
            secret: Zeroizing::new([3; 32]),
            public: [4; 32],
            key: Key { generation: 5, step: 6, secret: [7; 32] },
            first: 8,
            sources: 16,
            answers: Answers::Prompt,
            address: "239.1.2.3:5004".parse().expect("an address"),
            requests: 6000,
        }
    }

    #[tokio::test]
    async fn a_welcome_is_read_as_it_was_written() {
        for address in ["239.1.2.3:5004", "[ff15::7]:5004"] {
            let mut said = Welcome { address: address.parse().expect("an address"), ..example() };
            said.answers = Answers::Gathered;
            let bytes = said.emit();
            let read = Told::read(&mut &bytes[..]).await.expect("read");
            let Some(Told::Welcome(read)) = read else { panic!("no welcome") };
            assert_eq!(read.emit(), bytes);
            assert_eq!(read.address, said.address);
            for end in 1..bytes.len() {
                assert!(Told::read(&mut &bytes[..end]).await.is_err(), "{end}");
            }
        }
        assert!(Told::read(&mut &[][..]).await.expect("the end").is_none());
    }

    #[tokio::test]
    async fn what_cannot_be_is_refused() {
        let address = |text: &str| text.parse().expect("an address");
        for (said, says) in [
            (Welcome { sources: 0, ..example() }, "blocks of 0 sources"),
            (Welcome { sources: 65, ..example() }, "blocks of 65 sources"),
            (Welcome { address: address("10.0.0.1:5004"), ..example() }, "10.0.0.1:5004"),
            (Welcome { requests: 0, ..example() }, "expected an address"),
        ] {
            let read = Told::read(&mut &said.emit()[..]).await;
            let why = read.err().expect("refused").to_string();
            assert!(why.contains(says), "{why}");
        }
        let why = Told::read(&mut &[9][..]).await.err().expect("refused").to_string();
        assert!(why.contains("kind 9"), "{why}");
    }
}
