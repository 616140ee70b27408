//! SOCKS5 (RFC 1928) for programs of this host: CONNECT and UDP ASSOCIATE without authentication.

use crate::forward::Place;
use crate::stream::{Kind, REQUEST_MAX, Refused};
use fast_socks5::server::{Socks5ServerProtocol, SocksServerError, states};
use fast_socks5::util::target_addr::TargetAddr;
use fast_socks5::{ReplyError, Socks5Command};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// Request of a program.
pub enum Request {
    /// To be connected to a place.
    Connect(Place),
    /// To send datagrams, from a port of its own that it may have named, or from any (0). Many
    /// programs name the place that they will send to instead.
    Associate(u16),
}

/// A program that has said what it wants, and waits for the answer.
pub struct Waiting<S>(Socks5ServerProtocol<S, states::CommandRead>);

/// Hears what a program wants. What is no SOCKS5 is closed.
///
/// # Errors
/// What it has said instead, in one line.
pub async fn hear<S: AsyncRead + AsyncWrite + Unpin>(socket: S) -> Result<(Request, Waiting<S>), String> {
    let heard = timeout(REQUEST_MAX, async {
        let greeted = Socks5ServerProtocol::accept_no_auth(socket).await?;
        greeted.read_command().await
    });
    let (protocol, command, target) = match heard.await {
        Ok(Ok(heard)) => heard,
        Ok(Err(error)) => return Err(words(&error)),
        Err(_) => return Err("a program has connected and said nothing of SOCKS5".to_owned()),
    };
    match command {
        Socks5Command::TCPConnect => {}
        Socks5Command::UDPAssociate => {
            // The address is mostly none: the program does not know by which one it will send.
            let port = match target {
                TargetAddr::Ip(address) => address.port(),
                TargetAddr::Domain(_, port) => port,
            };
            return Ok((Request::Associate(port), Waiting(protocol)));
        }
        Socks5Command::TCPBind => {
            let _ = protocol.reply_error(&ReplyError::CommandNotSupported).await;
            return Err("a program asks for BIND; there are CONNECT and UDP ASSOCIATE".to_owned());
        }
    }
    match place(target) {
        Ok(place) => Ok((Request::Connect(place), Waiting(protocol))),
        Err(place) => {
            let _ = protocol.reply_error(&ReplyError::AddressTypeNotSupported).await;
            Err(format!("a program asks for `{place}`, which is no place"))
        }
    }
}

/// The place that a program names.
///
/// # Errors
/// What it names instead.
pub fn place(target: TargetAddr) -> Result<Place, Place> {
    let place = match target {
        TargetAddr::Ip(address) => Place { host: address.ip().to_string(), port: address.port() },
        TargetAddr::Domain(host, port) => Place { host, port },
    };
    let is_odd = |c: char| c.is_whitespace() || c.is_control();
    let is_sound = !(place.host.is_empty() || place.port == 0 || place.host.contains(is_odd));
    if is_sound { Ok(place) } else { Err(place) }
}

fn words(error: &SocksServerError) -> String {
    match error {
        SocksServerError::UnsupportedSocksVersion(version) => {
            format!("a program speaks no SOCKS5: its first byte is {version}, not 5")
        }
        SocksServerError::AuthMethodUnacceptable(_) => {
            "a program insists on authentication; SOCKS5 is without any here".to_owned()
        }
        error => format!("a program speaks no SOCKS5: {error}"),
    }
}

/// The reply to a program (RFC 1928 section 6). Silence is TTL expired, the nearest that there is.
fn reply(kind: Kind) -> ReplyError {
    match kind {
        Kind::Other | Kind::NoRoom | Kind::NotKept => ReplyError::GeneralFailure,
        Kind::Forbidden => ReplyError::ConnectionNotAllowed,
        Kind::NetworkUnreachable => ReplyError::NetworkUnreachable,
        Kind::HostUnreachable => ReplyError::HostUnreachable,
        Kind::ConnectionRefused => ReplyError::ConnectionRefused,
        Kind::TimedOut => ReplyError::TtlExpired,
        Kind::AddressFamily => ReplyError::AddressTypeNotSupported,
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Waiting<S> {
    /// It is connected.
    ///
    /// # Errors
    /// The program is gone.
    pub async fn connected(self) -> Result<S, String> {
        // The address by which the other end has connected is not told, as RFC 1928 would have it.
        self.granted(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).await
    }

    /// It has what it wants, at an address.
    ///
    /// # Errors
    /// The program is gone.
    pub async fn granted(self, at: SocketAddr) -> Result<S, String> {
        // Who has come by IPv4 is answered so, whatever the socket is.
        let at = SocketAddr::new(at.ip().to_canonical(), at.port());
        self.0.reply_success(at).await.map_err(|error| error.to_string())
    }

    /// It cannot be connected.
    pub async fn refused(self, refused: &Refused) {
        let code = reply(refused.kind);
        // A program that is gone needs no answer.
        let _ = self.0.reply_error(&code).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_code() {
        for (kind, code) in [
            (Kind::Other, 1),
            (Kind::NoRoom, 1),
            (Kind::Forbidden, 2),
            (Kind::NetworkUnreachable, 3),
            (Kind::HostUnreachable, 4),
            (Kind::ConnectionRefused, 5),
            (Kind::TimedOut, 6),
            (Kind::AddressFamily, 8),
        ] {
            assert_eq!(reply(kind).as_u8(), code, "{kind:?}");
        }
    }
}
