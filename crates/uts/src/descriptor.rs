//! Descriptors that block, or seem to: another program that shares one may have made it
//! non-blocking (`O_NONBLOCK`), and signals interrupt calls.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{self as system, Errno};
use std::io;
use std::os::fd::AsFd;

/// Waits until a descriptor is ready.
fn wait(descriptor: impl AsFd, flags: PollFlags) -> Result<(), Errno> {
    match poll(&mut [PollFd::new(&descriptor, flags)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads, once there is something; 0 is the end.
///
/// # Errors
/// Those of the operating system; neither [`io::ErrorKind::WouldBlock`] nor
/// [`io::ErrorKind::Interrupted`].
pub fn read(from: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match system::read(&from, &mut *buffer) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(&from, PollFlags::IN)?,
            read => return Ok(read?),
        }
    }
}

/// Writes until all is written or nothing more can be. Returns how many bytes, and why no more: an
/// error of the operating system, as with [`read`].
pub fn write_all(to: impl AsFd, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        let failed = match system::write(&to, rest) {
            Ok(0) => Err(Errno::IO),
            Ok(n) => {
                written += n;
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) => wait(&to, PollFlags::OUT),
            Err(error) => Err(error),
        };
        if let Err(error) = failed {
            return (written, Err(error.into()));
        }
    }
    (written, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use std::time::Duration;

    fn non_blocking(end: impl AsFd) {
        let flags = fcntl_getfl(&end).expect("flags");
        fcntl_setfl(&end, flags | OFlags::NONBLOCK).expect("set");
    }

    #[test]
    fn ends_that_do_not_block_are_waited_for() {
        let (reader, writer) = io::pipe().expect("a pipe");
        non_blocking(&reader);
        non_blocking(&writer);
        let sent: Vec<u8> = (0..1 << 20).map(|n: u32| (n / 7 % 251) as u8).collect();
        let content = sent.clone();
        let writing = std::thread::spawn(move || {
            #[expect(clippy::disallowed_methods, reason = "the reader is to find nothing at first")]
            std::thread::sleep(Duration::from_millis(50));
            write_all(&writer, &content)
        });
        let (mut got, mut piece) = (Vec::new(), [0; 5000]);
        while let bytes @ 1.. = read(&reader, &mut piece).expect("read") {
            got.extend_from_slice(&piece[..bytes]);
        }
        assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
        let (written, ended) = writing.join().expect("written");
        assert!(ended.is_ok() && written == sent.len());
    }

    #[test]
    fn what_was_written_before_an_error_is_said() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let (written, ended) = write_all(&writer, b"x");
        assert_eq!((written, ended.expect_err("nobody reads").kind()), (0, io::ErrorKind::BrokenPipe));
    }
}
