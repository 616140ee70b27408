//! Random linear codes over a window that slides (RFC 8681 over GF(256)): after every few packets
//! one repair of the last ones. What is lost is recovered as soon as there are as many repairs as
//! losses, not at the end of a block.

use super::window::{Decoder, Encoder, Shape as WindowShape};
use super::{Decoder as DecoderOf, Encoder as EncoderOf, Fec, SYMBOL_PREFIX_BYTES, Shape, predict};
use crate::facts::PathFacts;
use crate::function::Function;
use crate::mechanism::{
    Bold, Consent, Facts, Later, Mechanism, Param, Params, Prediction, Unasked, Unit, millis,
};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct SlidingWindow {
    shape: WindowShape,
}

impl SlidingWindow {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Fec,
        number: 3,
        name: "sliding-window",
        what: "after every few packets a random sum of the last ones",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "window",
                unit: Unit::Packets,
                default: 32,
                min: 2,
                max: super::DATA_MAX as u32,
                bold: Bold::Neither,
                what: "packets that a repair covers",
            },
            Param {
                name: "every",
                unit: Unit::Packets,
                default: 5,
                min: 1,
                max: 64,
                bold: Bold::Neither,
                what: "packets from one repair to the next",
            },
            Param {
                name: "flush",
                unit: Unit::Millis,
                default: 10,
                min: 0,
                max: 1000,
                bold: Bold::Neither,
                what: "how long a packet may wait for a repair that covers it",
            },
        ],
        needs: &[],
        facts: Facts { unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |params, facts, prediction| predict_window(&shape(params), facts, prediction),
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        SlidingWindow { shape: shape(params) }
    }
}

fn shape(params: &Params) -> WindowShape {
    WindowShape {
        sources: params.get(0) as usize,
        every: (params.get(1) as usize).max(1),
        flush: millis(params.get(2)),
    }
}

/// Predicts as much loss for good as a block of the window's length with as many repairs has.
/// Recovered packets wait for the next repairs only.
fn predict_window(shape: &WindowShape, facts: &PathFacts, prediction: &mut Prediction) {
    let repairs = shape.sources.div_ceil(shape.every).min(super::PARITIES_MAX);
    let block = Shape { data: shape.sources, parities: repairs, slack: 0, interleave: 1, flush: shape.flush };
    let residual = predict::residual_loss(facts.loss, facts.loss_burst, block.data, block.parities, 1);
    let repaired = if facts.loss > 0.0 { 1.0 - residual / facts.loss } else { 0.0 };
    // Where the sender makes few packets, one repair comes for those of each wait.
    let every = facts.packets_within(shape.flush).min(shape.every as f64);
    prediction.expansion *= 1.0 + 1.0 / every;
    prediction.header_bytes += (SYMBOL_PREFIX_BYTES + block.mask_bytes_max()) as f64;
    // As many repairs as were lost in a row, of which the first comes after half their distance.
    let packets = shape.every as f64 * (facts.loss_burst.max(1.0) - 0.5);
    let wait = facts.packet_time().mul_f64(packets.min(1e6)).min(shape.flush).as_secs_f64();
    prediction.repaired = Later { share: prediction.loss * repaired, by_s: wait, by_mean_s: wait };
    prediction.delay(prediction.repaired);
    prediction.loss *= 1.0 - repaired;
    let packet_bytes = facts.mtu_bytes as f64;
    prediction.cpu_ns += CODE_NS_PER_BYTE * packet_bytes * shape.sources as f64 / shape.every as f64;
}

impl Fec for SlidingWindow {
    fn encoder(&self) -> Box<EncoderOf> {
        Box::new(Encoder::new(self.shape))
    }

    fn decoder(&self) -> Box<DecoderOf> {
        Box::new(Decoder::new(self.shape))
    }

    fn shape(&self) -> Option<Shape> {
        None
    }
}

/// Processing per byte of each source of a repair: a row of its own each time, so more than of a
/// block's parities.
const CODE_NS_PER_BYTE: f64 = 0.3;
