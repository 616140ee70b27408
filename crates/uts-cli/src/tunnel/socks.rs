//! SOCKS5 (RFC 1928) for programs of this host: CONNECT without authentication.

use super::forward::Place;
use crate::stream::{REQUEST_MAX, Refused};
use fast_socks5::server::{Socks5ServerProtocol, SocksServerError, states};
use fast_socks5::util::target_addr::TargetAddr;
use fast_socks5::{ReplyError, Socks5Command};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A program that has said where it wants to connect, and waits for the answer.
pub struct Waiting(Socks5ServerProtocol<TcpStream, states::CommandRead>);

/// Hears where a program wants to connect. What is no SOCKS5 is closed.
///
/// # Errors
/// What it has said instead, in one line.
pub async fn hear(socket: TcpStream) -> Result<(Place, Waiting), String> {
    let heard = timeout(REQUEST_MAX, async {
        let greeted = Socks5ServerProtocol::accept_no_auth(socket).await?;
        greeted.read_command().await
    });
    let (protocol, command, target) = match heard.await {
        Ok(Ok(heard)) => heard,
        Ok(Err(error)) => return Err(words(&error)),
        Err(_) => return Err("a program has connected and said nothing of SOCKS5".to_owned()),
    };
    if command != Socks5Command::TCPConnect {
        let _ = protocol.reply_error(&ReplyError::CommandNotSupported).await;
        return Err("a program asks for another command than CONNECT, which is all there is".to_owned());
    }
    let place = match target {
        TargetAddr::Ip(address) => Place { host: address.ip().to_string(), port: address.port() },
        TargetAddr::Domain(host, port) => Place { host, port },
    };
    let is_odd = |c: char| c.is_whitespace() || c.is_control();
    if place.host.is_empty() || place.port == 0 || place.host.contains(is_odd) {
        let _ = protocol.reply_error(&ReplyError::AddressTypeNotSupported).await;
        return Err(format!("a program asks for `{place}`, which is no place"));
    }
    Ok((place, Waiting(protocol)))
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

impl Waiting {
    /// It is connected.
    ///
    /// # Errors
    /// The program is gone.
    pub async fn connected(self) -> Result<TcpStream, String> {
        // The address by which the other end has connected is not told, as RFC 1928 would have it.
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        self.0.reply_success(unknown).await.map_err(|error| error.to_string())
    }

    /// It cannot be connected.
    pub async fn refused(self, refused: &Refused) {
        let code = match refused {
            Refused::Absent(_) => ReplyError::HostUnreachable,
            Refused::Forbidden(_) => ReplyError::ConnectionNotAllowed,
        };
        // A program that is gone needs no answer.
        let _ = self.0.reply_error(&code).await;
    }
}
