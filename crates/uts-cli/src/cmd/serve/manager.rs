//! The service manager, if it wants to know how a server is (systemd's `Type=notify-reload`,
//! `WatchdogSec=`; sd_notify(3)).

use sd_notify::NotifyState;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use uts::Pulse;

/// Signs of life in a time of the watchdog. sd_watchdog_enabled(3) wants two; one more, so that one
/// may be late.
const BEATS_PER_PERIOD: u32 = 3;

/// Way to the service manager.
pub struct Manager {
    /// Another process speaks to it.
    is_silent: bool,
    /// Time within which it wants to hear that the server lives.
    period: Option<Duration>,
    pulse: Pulse,
    beat: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Manager {
    /// Of a server with this pulse. `inherited` = the watchdog's time, of a server whose port was
    /// taken over.
    pub fn new(pulse: Pulse, inherited: Option<Duration>) -> Self {
        let period = sd_notify::watchdog_enabled().or(inherited).filter(|period| !period.is_zero());
        let beat = Box::pin(beat(period, pulse.clone()));
        Manager { is_silent: false, period, pulse, beat }
    }

    /// Time within which it wants to hear that the server lives.
    pub fn period(&self) -> Option<Duration> {
        self.period
    }

    /// The server serves.
    pub fn ready(&self) {
        self.tell(&[NotifyState::Ready]);
    }

    /// The server serves in the place of another process, which speaks no more.
    pub fn ready_instead(&mut self) {
        self.is_silent = false;
        self.tell(&[NotifyState::MainPid(std::process::id()), NotifyState::Ready]);
    }

    /// The server reads its settings again; then it is ready.
    pub fn reloading(&self) {
        // The time tells the request that is answered (`Type=notify-reload`).
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }

    /// The server ends.
    pub fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// Another process serves, and speaks for the service.
    pub fn be_silent(&mut self) {
        self.is_silent = true;
    }

    /// Gives the next sign of life. To be called by the loop that serves, so that it lives, and
    /// given once each worker has taken a turn: a thread of its own would prove nothing. Never ends
    /// where no sign is wanted.
    pub async fn live(&mut self) {
        (&mut self.beat).await;
        self.tell(&[NotifyState::Watchdog]);
        self.beat = Box::pin(beat(self.period, self.pulse.clone()));
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if !self.is_silent {
            // Without it, the server serves all the same.
            let _ = sd_notify::notify(states);
        }
    }
}

/// Waits for a part of the watchdog's time, and then for the workers.
async fn beat(period: Option<Duration>, pulse: Pulse) {
    let Some(period) = period else { return std::future::pending().await };
    tokio::time::sleep(period / BEATS_PER_PERIOD).await;
    pulse.beat().await;
}
