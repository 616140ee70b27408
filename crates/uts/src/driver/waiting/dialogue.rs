//! State of the applications of an endpoint: in the middle of requests and responses, or not.

/// Record of what applications were told and have written.
#[derive(Debug, Default)]
pub(crate) struct Dialogue {
    /// Somebody was told of data since the last exchange.
    has_heard: bool,
    /// Somebody has written since the last exchange.
    has_said: bool,
    /// Somebody has written who was told of data, and it has not been sent yet.
    has_response: bool,
}

impl Dialogue {
    /// An application is told that there is data.
    pub fn on_told(&mut self) {
        self.has_heard = true;
    }

    /// An application writes.
    pub fn on_written(&mut self) {
        self.has_said = true;
        self.has_response |= self.has_heard;
    }

    /// True if applications have heard something and said something since this was last so: the
    /// peer's response is to come.
    pub fn take_exchange(&mut self) -> bool {
        let is_exchange = self.has_heard && self.has_said;
        if is_exchange {
            (self.has_heard, self.has_said) = (false, false);
        }
        is_exchange
    }

    /// True if an application has written and heard nothing since.
    pub fn awaits_response(&self) -> bool {
        self.has_said
    }

    /// True if a response of this end is to leave, or has left, since this was last asked.
    pub fn take_response(&mut self) -> bool {
        core::mem::take(&mut self.has_response)
    }
}
