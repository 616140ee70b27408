//! Requirements by values of their types, one call for each: what [`Requirements::set`] does by
//! text.

use super::{
    CapacityProfile, ExchangeMode, Pin, Preference, Quality, RequirementError, Requirements, Scheduler,
    Security,
};
use core::time::Duration;
use uts_functions::{Function, Rate};

/// Each returns the requirements with one property changed.
impl Requirements {
    /// `reliability`: all data arrives.
    #[must_use]
    pub fn reliability(mut self, preference: Preference) -> Self {
        self.reliability = preference;
        self
    }

    /// `preserveOrder`: data is handed over in the order of sending.
    #[must_use]
    pub fn order(mut self, preference: Preference) -> Self {
        self.preserve_order = preference;
        self
    }

    /// `preserveMsgBoundaries`: the receiver gets the messages that were sent.
    #[must_use]
    pub fn boundaries(mut self, preference: Preference) -> Self {
        self.preserve_msg_boundaries = preference;
        self
    }

    /// `msgLifetime`: after it, an undelivered message is worthless.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.msg_lifetime = Some(lifetime);
        self
    }

    /// `uts.maxDelay`: the most from `send` to `receive`, one way.
    #[must_use]
    pub fn delay_max(mut self, delay: Duration) -> Self {
        self.max_delay = Some(delay);
        self
    }

    /// `uts.maxJitter`: by how much the slowest percent may be later than the mean.
    #[must_use]
    pub fn jitter_max(mut self, jitter: Duration) -> Self {
        self.max_jitter = Some(jitter);
        self
    }

    /// `uts.degradation`: what may be given up, in this order, if the path cannot give all.
    #[must_use]
    pub fn giving_up(mut self, qualities: impl IntoIterator<Item = Quality>) -> Self {
        self.degradation = qualities.into_iter().collect();
        self
    }

    /// `minSendRate`: rate that the application needs.
    #[must_use]
    pub fn send_rate_min(mut self, rate: Rate) -> Self {
        self.min_send_rate = Some(rate);
        self
    }

    /// `maxSendRate`: rate that it never exceeds.
    #[must_use]
    pub fn send_rate_max(mut self, rate: Rate) -> Self {
        self.max_send_rate = Some(rate);
        self
    }

    /// `maxRecvRate`: rate that the peer is to keep to.
    #[must_use]
    pub fn recv_rate_max(mut self, rate: Rate) -> Self {
        self.max_recv_rate = Some(rate);
        self
    }

    /// `connCapacityProfile`: kind of use that the path is put to.
    #[must_use]
    pub fn capacity_profile(mut self, profile: CapacityProfile) -> Self {
        self.conn_capacity_profile = profile;
        self
    }

    /// `connPriority`: smaller is more important; 100 by default.
    #[must_use]
    pub fn priority(mut self, priority: u32) -> Self {
        self.conn_priority = priority;
        self
    }

    /// `connScheduler`: meaning of priorities among flows.
    #[must_use]
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.conn_scheduler = scheduler;
        self
    }

    /// `connTimeout`: without an acknowledgement for this long, the connection has failed.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.conn_timeout = Some(timeout);
        self
    }

    /// `keepAlive`, with `keepAliveTimeout`: after this idle time, something is sent.
    #[must_use]
    pub fn keep_alive_after(mut self, idle: Duration) -> Self {
        (self.keep_alive, self.keep_alive_timeout) = (Preference::Require, Some(idle));
        self
    }

    /// `uts.security`.
    #[must_use]
    pub fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// `uts.adapt`: mechanisms may be exchanged when the path changes.
    #[must_use]
    pub fn adapt(mut self, adapts: bool) -> Self {
        self.adapt = adapts;
        self
    }

    /// `uts.exchange`: way in which mechanisms are exchanged.
    #[must_use]
    pub fn exchange(mut self, mode: ExchangeMode) -> Self {
        self.exchange = mode;
        self
    }

    /// `uts.expedited`: expedited messages are taken, and may be sent.
    #[must_use]
    pub fn expedited(mut self, expedited: bool) -> Self {
        self.expedited = expedited;
        self
    }

    /// `uts.profile.FUNCTION`: the mechanism of a function, as `cubic` or `bbr(gain=2)`.
    ///
    /// # Errors
    /// [`RequirementError::Pin`], if the library has no such mechanism or parameter.
    pub fn mechanism(mut self, function: Function, mechanism: &str) -> Result<Self, RequirementError> {
        self.pin(Pin::parse(function.name(), mechanism)?);
        Ok(self)
    }
}
