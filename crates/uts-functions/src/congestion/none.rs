//! No congestion control: the window never closes. For links that belong to one sender, beside flow or rate control.

use super::{Ack, Congestion, Context, Delivery, Loss, Summary};
use crate::mechanism::{Mechanism, Params};
use crate::profile::Function;
use crate::time::{Rate, Time};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct None {
    summary: Summary,
}

impl None {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 0,
        name: "none",
        what: "no congestion control; only for links that belong to one sender",
        mandatory: true,
        params: &[],
        needs: &[],
        predict: |_, _, _| {},
    };

    /// Builds it; the predecessor's knowledge is kept for a successor.
    pub fn build(_: &Params, context: &Context) -> Self {
        None { summary: context.summary }
    }
}

impl Congestion for None {
    fn on_sent(&mut self, _: Time, _: u64, _: &Delivery) {}

    fn on_ack(&mut self, ack: &Ack, _: &Delivery) {
        self.summary.rtt_min = Some(ack.rtt_min);
        if ack.sample.rate > Rate::default() {
            self.summary.bandwidth = Some(ack.sample.rate);
        }
    }

    fn on_loss(&mut self, _: &Loss, _: &Delivery) {}

    fn on_spurious_loss(&mut self, _: u64) {}

    fn set_packet_bytes(&mut self, _: u64) {}

    fn window_bytes(&self) -> u64 {
        u64::MAX
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Option::None
    }

    fn burst_bytes(&self) -> Option<u64> {
        Option::None
    }

    fn summary(&self) -> Summary {
        self.summary
    }

    fn phase(&self) -> &'static str {
        "open"
    }
}
