//! Cost of a call that leads to whichever mechanism was chosen, beside one of a mechanism that the
//! compiler knows (figure 4.4, table 4.2).
//!
//! The thesis counts instructions of a call by a pointer. Here mechanisms are in a slot, an enum
//! that is matched, and those that a program registers behind two pointers. Each way does the same
//! work on the same input, in turns.

use super::stopwatch::{Spread, overhead_ns, time};
use crate::paper::{Series, push};
use anyhow::{Context, Result};
use core::hint::black_box;
use core::time::Duration;
use uts_functions::acknowledgement::{self, Acknowledgement, Arrival, Arrivals};
use uts_functions::congestion::{self, Congestion, Delivery, Summary};
use uts_functions::detection::{self, Detection};
use uts_functions::flow::{self, FlowControl};
use uts_functions::rate::{self, Bucket, Pace, RateControl};
use uts_functions::sequencing::reassembly::Reassembly;
use uts_functions::sequencing::{self, Sequencing};
use uts_functions::timing::{self, RoundTrip, Timing};
use uts_functions::{Params, Rate, Time};

/// Calls between two readings of the clock, and readings.
const CALLS: u32 = 500;
const TURNS: usize = 101;
/// Bytes of data in a full packet.
const DATA_BYTES: usize = 1440;

/// So many calls of a mechanism with its state.
pub type Form = Box<dyn FnMut(u32)>;

/// Ways to a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The compiler knows it.
    Named,
    /// By the slot that a profile is synthesised into.
    Slot,
    /// By the pointers that lead to a mechanism from outside the library.
    Registered,
}

impl Way {
    /// All.
    pub const ALL: [Way; 3] = [Way::Named, Way::Slot, Way::Registered];
}

/// Builds a way to a mechanism, with the work that it is asked for.
macro_rules! form {
    ($way:expr, $work:ident, $function:ident :: $module:ident :: $mechanism:ident, $context:expr) => {{
        let entry = &$function::$module::$mechanism::INFO;
        let built = || $function::$module::$mechanism::build(&Params::default(), $context);
        match $way {
            Way::Named => $work(black_box(built())),
            Way::Slot => $work(black_box(
                $function::Slot::build(&black_box(entry.choice()), $context)
                    .context("it is in the library")?,
            )),
            Way::Registered => $work(black_box($function::Slot::External(Box::new(Box::new(built()))))),
        }
    }};
}

/// A kind of mechanism whose calls are timed.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// The way to it.
    pub form: fn(Way) -> Result<Form>,
}

/// All kinds.
pub const KINDS: [Kind; 8] = [
    Kind {
        name: "crc-32c of 1440 bytes",
        form: |way| Ok(form!(way, checks, detection::crc_32c::Crc32c, ())),
    },
    Kind {
        name: "checksum of the Internet, 1440 bytes",
        form: |way| Ok(form!(way, checks, detection::internet_16::Internet16, ())),
    },
    Kind { name: "window", form: |way| Ok(form!(way, limits, flow::credit::Credit, ())) },
    Kind {
        name: "sequencing of 1440 bytes",
        form: |way| Ok(form!(way, orders, sequencing::ordered::Ordered, ())),
    },
    Kind {
        name: "acknowledgement",
        form: |way| Ok(form!(way, notes, acknowledgement::delayed::Delayed, ())),
    },
    Kind { name: "round trip", form: |way| Ok(form!(way, samples, timing::jacobson::Jacobson, ())) },
    Kind { name: "pacing", form: |way| Ok(form!(way, paces, rate::pacing_bucket::PacingBucket, ())) },
    Kind {
        name: "congestion window",
        form: |way| Ok(form!(way, sends, congestion::cubic::Cubic, &context())),
    },
];

/// Context of a congestion control before anything was sent.
pub(super) fn context() -> congestion::Context {
    let summary = Summary::initial(1472);
    congestion::Context { now: Time::ZERO, packet_bytes: 1472, summary, past: None, seed: 1 }
}

/// A checksum is made, and checked, as at both ends.
fn checks<D: Detection + 'static>(mechanism: D) -> Form {
    let mut packet = vec![0x5a; DATA_BYTES];
    let mut trailer = vec![0; mechanism.trailer_bytes()];
    Box::new(move |calls| {
        for _ in 0..calls {
            mechanism.append(black_box(&packet), &mut trailer);
            let _ = black_box(mechanism.check(&mut packet, black_box(&trailer)));
        }
    })
}

/// A sender asks how far it may send.
fn limits<F: FlowControl + 'static>(mechanism: F) -> Form {
    let mut limit = 0;
    Box::new(move |calls| {
        for _ in 0..calls {
            limit += DATA_BYTES as u64;
            black_box(mechanism.send_limit(black_box(limit)));
        }
    })
}

/// A packet's data is put in its place and handed over.
fn orders<S: Sequencing + 'static>(mut mechanism: S) -> Form {
    let (mut state, data, mut at) = (Reassembly::default(), vec![0x5a; DATA_BYTES], 0);
    Box::new(move |calls| {
        for _ in 0..calls {
            state.append(at, black_box(&data), u64::MAX);
            at += DATA_BYTES as u64;
            black_box(mechanism.next(&mut state, DATA_BYTES));
        }
    })
}

/// A packet is noted; every tenth report is sent.
fn notes<A: Acknowledgement + 'static>(mut mechanism: A) -> Form {
    let (mut state, mut number, mut now) = (Arrivals::default(), 0, Time::ZERO);
    Box::new(move |calls| {
        for _ in 0..calls {
            let arrival = Arrival { number, now, eliciting: true, polled: false, marked: false };
            mechanism.on_arrival(&mut state, &arrival);
            state.insert(&arrival);
            if number % 10 == 0 {
                state.on_reported(now);
            }
            number += 1;
            now += Duration::from_micros(10);
        }
    })
}

/// A round trip is measured, and the time-out asked for.
fn samples<T: Timing + 'static>(mut mechanism: T) -> Form {
    let (mut state, mut now) = (RoundTrip::default(), Time::ZERO);
    Box::new(move |calls| {
        for _ in 0..calls {
            now += Duration::from_micros(10);
            let sample = state.on_sample(now, black_box(Duration::from_millis(20)), Duration::ZERO);
            mechanism.on_sample(&mut state, sample);
            black_box(mechanism.timeout(&state));
        }
    })
}

/// A packet's turn is asked for, and taken.
fn paces<R: RateControl + 'static>(mut mechanism: R) -> Form {
    let (mut state, mut now) = (Bucket::default(), Time::ZERO);
    let pace = Pace {
        rate: Some(Rate::from_bytes_per_sec(1_000_000_000)),
        packet_bytes: 1472,
        burst_bytes: None,
        rtt_min: Duration::from_millis(20),
    };
    Box::new(move |calls| {
        for _ in 0..calls {
            now += Duration::from_micros(2);
            black_box(mechanism.wait_until(&mut state, now, &pace));
            mechanism.on_sent(&mut state, now, 1472, &pace);
        }
    })
}

/// A packet leaves, if the window is open.
fn sends<C: Congestion + 'static>(mut mechanism: C) -> Form {
    let (delivery, mut now) = (Delivery::new(Time::ZERO), Time::ZERO);
    Box::new(move |calls| {
        for _ in 0..calls {
            now += Duration::from_micros(2);
            if black_box(mechanism.window_bytes()) > 1472 {
                mechanism.on_sent(now, 1472, &delivery);
            }
        }
    })
}

/// Nanoseconds of a call of each kind by each way, and what slot and pointers add to the named
/// mechanism.
///
/// # Errors
/// The library lacks a mechanism.
pub fn kinds() -> Result<Series> {
    let (mut series, clock_ns) = (Series::new(), overhead_ns());
    for (n, kind) in KINDS.iter().enumerate() {
        let [mut named, mut slot, mut registered] = {
            let [named, slot, registered] = Way::ALL.map(kind.form);
            [named?, slot?, registered?]
        };
        let each = |form: &mut Form| (time(|| form(CALLS)).1 - clock_ns) / f64::from(CALLS);
        let mut times: [Vec<f64>; 5] = Default::default();
        for _ in 0..TURNS {
            let [before, by_slot, by_pointer] = [each(&mut named), each(&mut slot), each(&mut registered)];
            // What becomes slower or faster meanwhile meets all alike.
            let known = f64::midpoint(before, each(&mut named));
            let values = [known, by_slot, by_pointer, by_slot - known, by_pointer - known];
            times.iter_mut().zip(values).for_each(|(times, value)| times.push(value));
        }
        let spreads = times.map(Spread::of);
        let names = ["named", "slot", "registered", "slot-more", "registered-more"];
        names.iter().zip(spreads).for_each(|(name, spread)| spread.push(&mut series, name));
        push(&mut series, [("kind", n as f64)]);
    }
    Ok(series)
}

#[inline(never)]
fn function1() -> i32 {
    black_box(7)
}

#[inline(never)]
fn function2(a: i32) -> i32 {
    a ^ 1
}

/// Both functions of figure 4.4 with what chooses between them inside, by a number that is passed.
#[inline(never)]
fn either(which: i32, a: i32) -> i32 {
    if which == 1 { black_box(7) } else { a ^ 1 }
}

/// The calls of figure 4.4, so many times: named in the source, by pointers, or by one function
/// that is told which to be.
pub const CALLERS: [fn(u32) -> i32; 3] = [by_name, by_pointer, by_number];

#[inline(never)]
fn by_name(times: u32) -> i32 {
    (0..times).fold(0, |sum, _| {
        let a = function1();
        sum ^ function2(a)
    })
}

#[inline(never)]
fn by_pointer(times: u32) -> i32 {
    let mut first: fn() -> i32 = function1;
    let mut second: fn(i32) -> i32 = function2;
    (0..times).fold(0, |sum, _| {
        let (first, second) = (black_box(&mut first), black_box(&mut second));
        let a = first();
        sum ^ second(a)
    })
}

#[inline(never)]
fn by_number(times: u32) -> i32 {
    let (mut first, mut second) = (1, 2);
    (0..times).fold(0, |sum, _| {
        let (first, second) = (*black_box(&mut first), *black_box(&mut second));
        let a = either(first, 0);
        sum ^ either(second, a)
    })
}

/// Nanoseconds of the two calls of figure 4.4 by each of [`CALLERS`].
///
/// # Errors
/// None.
pub fn figure() -> Result<Series> {
    const PAIRS: u32 = 20_000;
    let (mut series, clock_ns) = (Series::new(), overhead_ns());
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..TURNS {
        for (times, calls) in times.iter_mut().zip(CALLERS) {
            let (_, took) = time(|| black_box(calls(black_box(PAIRS))));
            times.push((took - clock_ns) / f64::from(PAIRS));
        }
    }
    for (name, times) in ["named", "pointer", "number"].iter().zip(times) {
        Spread::of(times).push(&mut series, name);
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_call_do_the_same() {
        for times in [0, 1, 7, 100] {
            let [named, pointer, number] = CALLERS.map(|calls| calls(times));
            assert_eq!((named, named), (pointer, number), "{times}");
        }
    }

    #[test]
    fn each_kind_of_mechanism_is_led_to_by_each_way() {
        for kind in &KINDS {
            for way in Way::ALL {
                let mut form = (kind.form)(way).expect(kind.name);
                form(20);
            }
        }
    }
}
