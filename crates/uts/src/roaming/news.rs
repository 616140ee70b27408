//! News of the host's networks: a link, an address or a route has changed. Linux tells whoever
//! listens (rtnetlink(7)); an idle connection then costs no wakes at all. Where nobody tells, it is
//! time to look twice a second.

use core::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

/// Pause between two looks where nobody tells.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Changes come together: an address, then its routes. They are looked at together.
const SETTLE: Duration = Duration::from_millis(50);

/// Source of the news.
pub(super) struct News {
    told: Option<imp::Told>,
    ticks: Interval,
}

impl News {
    /// Listens from now on. To be called in a runtime.
    pub fn new() -> News {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        News { told: imp::Told::new().ok(), ticks }
    }

    /// Waits until it is worth looking.
    pub async fn next(&mut self) {
        if let Some(told) = &mut self.told {
            if told.next().await.is_ok() {
                return sleep(SETTLE).await;
            }
            // It tells nothing more.
            self.told = None;
        }
        self.ticks.tick().await;
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use nix::errno::Errno;
    use nix::sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
    };
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// Groups that are listened to (linux/rtnetlink.h): links, addresses and routes of both
    /// families, and rules of IPv4 (VPNs).
    const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400;

    pub struct Told(AsyncFd<OwnedFd>);

    impl Told {
        pub fn new() -> io::Result<Told> {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkRoute);
            let fd = socket(family, SockType::Raw, flags, protocol)?;
            bind(fd.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
            Ok(Told(crate::driver::watch(fd, Interest::READABLE)?))
        }

        /// Waits for news. What they are does not matter: the kernel is asked.
        pub async fn next(&mut self) -> io::Result<()> {
            loop {
                let mut ready = self.0.readable_mut().await?;
                let mut has_news = false;
                let mut message = [0; 4096];
                loop {
                    match recv(ready.get_inner().as_raw_fd(), &mut message, MsgFlags::MSG_TRUNC) {
                        Err(Errno::EAGAIN) => break,
                        Err(Errno::EINTR) => {}
                        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                        // More than it keeps for us: news all the same.
                        Ok(_) | Err(Errno::ENOBUFS) => has_news = true,
                        Err(error) => return Err(error.into()),
                    }
                }
                ready.clear_ready();
                if has_news {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;

    pub struct Told;

    impl Told {
        pub fn new() -> io::Result<Told> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub async fn next(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[tokio::test]
    async fn without_anybody_who_tells_it_is_time_again_and_again() {
        let mut news = News { told: None, ..News::new() };
        for _ in 0..3 {
            timeout(Duration::from_secs(60), news.next()).await.expect("it is time");
        }
    }

    /// Another address of the loopback, where this is permitted.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_tells_of_a_new_address() {
        let run = |verb: &str| {
            let ip =
                std::process::Command::new("ip").args(["addr", verb, "127.77.0.1/32", "dev", "lo"]).output();
            ip.is_ok_and(|ended| ended.status.success())
        };
        let Ok(told) = imp::Told::new() else {
            println!("skipped: no rtnetlink here");
            return;
        };
        let mut news = News { told: Some(told), ..News::new() };
        if !run("add") {
            println!("skipped: addresses cannot be changed here (root, and Debian: apt install iproute2)");
            return;
        }
        let is_told = timeout(Duration::from_secs(60), news.next()).await.is_ok() && news.told.is_some();
        assert!(run("del") && is_told);
    }
}
