//! A clock that both ends of a connection share, as well as a round trip lets them.

use crate::control::{Control, ToClient, ToServer};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use uts_traffic::clock::Clock;
use uts_traffic::transport::Local;

/// Number of times that a client asks for the server's time. The quickest answer counts.
const ASKED: usize = 16;

/// Time after which it does not ask again, in nanoseconds: over a long path little varies.
const ASKS_NS: u64 = 2_000_000_000;

/// The server's clock, as a client knows it.
pub(crate) struct SharedClock {
    own: Rc<dyn Clock>,
    /// So far the shared clock is ahead of the client's, in nanoseconds.
    ahead_ns: i64,
}

impl Clock for SharedClock {
    fn now_ns(&self) -> u64 {
        self.own.now_ns().saturating_add_signed(self.ahead_ns)
    }

    fn sleep_until(&self, at_ns: u64) -> Local<'static, ()> {
        // An instant before the client's clock began has passed.
        let own_ns = i128::from(at_ns) - i128::from(self.ahead_ns);
        self.own.sleep_until(u64::try_from(own_ns.max(0)).unwrap_or(u64::MAX))
    }
}

/// At a client: the server's clock, and by how much it may be wrong: by half the round trip, if the
/// ways there and back differ in delay. Cristian's algorithm, 1989.
///
/// # Errors
/// Those of the flow, or an answer that is none.
pub(crate) async fn agree(control: &mut Control, own: Rc<dyn Clock>) -> io::Result<(SharedClock, Duration)> {
    let mut clock = SharedClock { own, ahead_ns: 0 };
    let (mut quickest_ns, began_ns) = (u64::MAX, clock.own.now_ns());
    for _ in 0..ASKED {
        let asked_ns = clock.own.now_ns();
        if quickest_ns < u64::MAX && asked_ns - began_ns > ASKS_NS {
            break;
        }
        control.say(&ToServer::Time).await?;
        let ToClient::Time(server_ns) = control.hear().await? else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the server does not say its time"));
        };
        let took_ns = clock.own.now_ns() - asked_ns;
        if took_ns < quickest_ns {
            quickest_ns = took_ns;
            clock.ahead_ns = ahead(server_ns, asked_ns, took_ns);
        }
    }
    Ok((clock, Duration::from_nanos(quickest_ns / 2)))
}

/// Time by which the server's clock is ahead, in nanoseconds, if it was read half way between
/// question and answer.
fn ahead(server_ns: u64, asked_ns: u64, took_ns: u64) -> i64 {
    let ahead_ns = i128::from(server_ns) - i128::from(asked_ns) - i128::from(took_ns / 2);
    i64::try_from(ahead_ns).unwrap_or(if ahead_ns < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_end::clock::MonotonicClock;

    #[test]
    fn a_clock_is_read_half_way_through_the_round_trip() {
        assert_eq!(ahead(1_000_000, 400, 200), 999_500);
        assert_eq!(ahead(400, 1_000_000, 200), -999_700);
        assert_eq!(ahead(u64::MAX, 0, 0), i64::MAX);
    }

    #[tokio::test]
    async fn a_shared_clock_waits_for_its_own_instants() {
        tokio::task::LocalSet::new()
            .run_until(async {
                for ahead_ns in [3_600_000_000_000, -20_000_000] {
                    let clock = SharedClock { own: Rc::new(MonotonicClock::new().unwrap()), ahead_ns };
                    let at_ns = clock.now_ns() + 1_000_000;
                    clock.sleep_until(at_ns).await;
                    assert!(clock.now_ns() >= at_ns, "{ahead_ns}");
                }
            })
            .await;
    }
}
