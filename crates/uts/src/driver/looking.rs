//! Whether to look for more before sleeping.
//!
//! Who sleeps has to be woken, which costs the sender of what arrives as much as the receiver: some microseconds each, more than
//! taking in a packet. Where data streams in, the next batch is there sooner than that. So the task looks for it for about as
//! long as being woken would cost, and, where that was in vain, more rarely: a stream that is slower, and requests now and then,
//! cost a look for each 64 sleeps.

/// Sleeps without a look, at most, after one that was in vain.
const UNLOOKED_MAX: u32 = 63;

/// What became of the last looks.
#[derive(Debug, Default)]
pub(super) struct Looking {
    /// Something has arrived since the last look.
    has_heard: bool,
    /// Sleeps without a look after the next that is in vain: half of what they will be then.
    unlooked: u32,
    /// Those that are left.
    left: u32,
}

impl Looking {
    /// Something has arrived, by sleeping or otherwise.
    pub fn on_arrival(&mut self) {
        self.has_heard = true;
    }

    /// Whether to look once more, now that there is nothing else to do but to sleep.
    pub fn is_worth_it(&mut self) -> bool {
        // Whoever was woken by a timer, or to send, expects nothing.
        let is_due = core::mem::take(&mut self.has_heard);
        if is_due && self.left > 0 {
            self.left -= 1;
            return false;
        }
        is_due
    }

    /// Looking has found something.
    pub fn on_found(&mut self) {
        self.has_heard = true;
        self.unlooked /= 2;
    }

    /// There was nothing.
    pub fn on_missed(&mut self) {
        self.unlooked = (2 * self.unlooked + 1).min(UNLOOKED_MAX);
        self.left = self.unlooked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Shared;
    use crate::driver::socket::{Batch, Socket};
    use core::future::Future;
    use core::pin::Pin;
    use core::task::Poll;
    use core::time::Duration;
    use std::future::poll_fn;
    use std::net::SocketAddr;

    /// Looks for so many arrivals, each of which the look before it finds or does not.
    fn looks(looking: &mut Looking, arrivals: u32, mut finds: impl FnMut(u32) -> bool) -> u32 {
        let mut looks = 0;
        for n in 0..arrivals {
            looking.on_arrival();
            while looking.is_worth_it() {
                looks += 1;
                if finds(n) {
                    looking.on_found();
                    break;
                }
                looking.on_missed();
            }
        }
        looks
    }

    #[test]
    fn a_stream_is_looked_for_and_what_comes_now_and_then_hardly_ever() {
        let mut looking = Looking::default();
        assert!(!looking.is_worth_it(), "nothing has arrived");
        assert_eq!(looks(&mut looking, 1000, |_| true), 1000);
        let in_vain = looks(&mut looking, 6400, |_| false);
        assert!((100..=110).contains(&in_vain), "{in_vain} looks for 6400 arrivals");
        // When it streams again, that is found out by the next few looks.
        let again = looks(&mut looking, 1000, |_| true);
        assert!(again > 850, "{again} looks for 1000 arrivals");
    }

    /// The task asks before it sleeps, looks if that is worth it, and says what came of it. Every datagram is sent while it sleeps,
    /// so that each look is in vain.
    #[tokio::test]
    async fn the_task_looks_before_it_sleeps() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let (shared, mut task) =
            Shared::bind(any, None, uts_engine::EndpointConfig::default(), Duration::ZERO).expect("bound");
        let mut peer = Socket::bind(any, None).expect("bound");
        let contents = b"of no connection";
        let segment_bytes = contents.len();
        let stray = Batch { remote: shared.local_addr, local: None, ecn: None, segment_bytes, contents };
        let (mut sent, mut arrived, mut looked) = (0, 0, Vec::new());
        let sequence = poll_fn(|cx| {
            // Who goes to sleep leaves a waker; who has looked comes again first, behind other tasks.
            shared.lock().parked = None;
            assert!(Pin::new(&mut task).poll(cx).is_pending());
            let inner = shared.lock();
            let sleeps = inner.parked.is_some();
            if core::mem::replace(&mut arrived, inner.engine.strangers) < inner.engine.strangers {
                looked.push(!sleeps);
            }
            if sleeps && arrived == sent {
                if sent == 7 {
                    return Poll::Ready(());
                }
                sent += 1;
                assert!(matches!(peer.poll_send(cx, &stray), Poll::Ready(Ok(_))));
            }
            Poll::Pending
        });
        tokio::time::timeout(Duration::from_secs(60), sequence).await.expect("it is woken by what arrives");
        assert_eq!(looked, [true, false, true, false, false, false, true]);
    }

    #[test]
    fn a_look_in_vain_now_and_then_ends_nothing() {
        let mut looking = Looking::default();
        let looks = looks(&mut looking, 1000, |n| n % 4 != 0);
        assert!(looks > 600, "{looks} looks for 1000 arrivals");
    }
}
