//! The program that gives ssh its connection (ProxyCommand with ProxyUseFdpass): it connects to the
//! session's socket, and passes that to ssh.

use crate::cmd::Failure;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use uts_end::output::words;

/// Passes a connection to the socket to ssh, whose own socket standard output is.
///
/// # Errors
/// See [`Failure`].
pub fn run(socket: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("{}: {}", socket.display(), words(&error)));
    let connection = UnixStream::connect(socket).map_err(failed)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let passed = [connection.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&passed)) {
        return Err(failed(io::ErrorKind::OutOfMemory.into()));
    }
    // It is a socket of ssh, and no output for people. A byte has to go along (cmsg(3)).
    let sent = sendmsg(io::stdout(), &[IoSlice::new(&[0])], &mut control, SendFlags::empty());
    sent.map(drop).map_err(|error| failed(error.into()))
}
