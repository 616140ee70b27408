//! Time to put a mechanism to use, beside what the thesis's linker took for a protocol function
//! (table 4.3): an instance of each mechanism of the library is made and dropped, and a connection
//! takes up another profile.
//!
//! A mechanism of a program's own is registered once, for the whole process and for good. The
//! example `counted` times that, in a process of its own: here it would be offered to the peers of
//! all other units.

use super::calls;
use super::stopwatch::{Spread, overhead_ns, time};
use crate::engine::{ask, carried};
use crate::paper::{Series, push};
use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use core::hint::black_box;
use core::time::Duration;
use uts_engine::{ConnectionConfig, Direction};
use uts_functions::protection::Secret;
use uts_functions::{
    Choice, Function, acknowledgement, congestion, detection, establishment, fec, finding, flow, library,
    playout, presentation, protection, rate, retransmission, segmentation, sequencing, timing,
};

/// Microseconds of table 4.3 to link and to unlink: from disk, and from memory. Error control is
/// switched on and off, then flow control at the sender, then at the receiver.
pub const PUBLISHED_US: [[f64; 4]; 6] = [
    [28_570.0, 3205.0, 57.0, 49.0],
    [28_749.0, 3149.0, 62.0, 70.0],
    [31_698.0, 3335.0, 23.0, 17.0],
    [31_694.0, 3400.0, 30.0, 27.0],
    [32_201.0, 3327.0, 30.0, 34.0],
    [32_118.0, 3361.0, 57.0, 43.0],
];

/// Instances that are made between two readings of the clock, and readings.
const INSTANCES: usize = 16;
const TURNS: usize = 31;
/// Switches of each kind. The thesis has 400.
const SWITCHES: usize = 100;
/// An epoch is closed after this long.
const CLOSED: Duration = Duration::from_secs(2);

/// Columns of [`PUBLISHED_US`].
///
/// # Errors
/// None.
pub fn published() -> Result<Series> {
    let mut series = Series::new();
    for row in PUBLISHED_US {
        push(&mut series, ["disk-link", "disk-unlink", "link", "unlink"].into_iter().zip(row));
    }
    Ok(series)
}

/// Nanoseconds to make and to drop an instance.
fn timed<T>(clock_ns: f64, build: impl Fn() -> Option<T>) -> Result<[Spread; 2]> {
    let mut times: [Vec<f64>; 2] = Default::default();
    let mut instances = Vec::with_capacity(INSTANCES);
    for _ in 0..TURNS {
        let ((), made) = time(|| instances.extend((0..INSTANCES).map_while(|_| black_box(build()))));
        ensure!(instances.len() == INSTANCES, "it cannot be built");
        let ((), dropped) = time(|| instances.clear());
        for (times, took) in times.iter_mut().zip([made, dropped]) {
            times.push((took - clock_ns).max(0.0) / INSTANCES as f64);
        }
    }
    Ok(times.map(Spread::of))
}

/// Nanoseconds to make and to drop an instance of a function's mechanism.
fn made(function: Function, choice: &Choice, clock_ns: f64) -> Result<[Spread; 2]> {
    macro_rules! of {
        ($module:ident, $context:expr) => {
            timed(clock_ns, || $module::Slot::build(black_box(choice), $context))
        };
    }
    let secret = Secret::from_exporter(&[7; 32], protection::Direction::ClientToServer);
    let context = calls::context();
    match function {
        Function::Establishment => of!(establishment, ()),
        Function::Presentation => of!(presentation, ()),
        Function::Segmentation => of!(segmentation, ()),
        Function::Sequencing => of!(sequencing, ()),
        Function::Fec => of!(fec, ()),
        Function::Retransmission => of!(retransmission, ()),
        Function::Acknowledgement => of!(acknowledgement, ()),
        Function::Timing => of!(timing, ()),
        Function::Flow => of!(flow, ()),
        Function::Rate => of!(rate, ()),
        Function::Congestion => of!(congestion, &context),
        Function::Detection => of!(detection, ()),
        Function::Protection => of!(protection, &secret),
        Function::Finding => of!(finding, ()),
        Function::Playout => of!(playout, ()),
    }
}

/// Nanoseconds to make and to drop an instance of each mechanism that this library has, with its
/// default parameters.
///
/// # Errors
/// A mechanism cannot be built.
pub fn instances() -> Result<Series> {
    let (mut series, clock_ns) = (Series::new(), overhead_ns());
    for &function in Function::ALL {
        for entry in library::built_in(function) {
            let [make, discard] =
                made(function, &entry.choice(), clock_ns).with_context(|| entry.name.to_owned())?;
            make.push(&mut series, "make");
            discard.push(&mut series, "drop");
            let row = [("function", f64::from(function.number())), ("number", f64::from(entry.number))];
            push(&mut series, row);
        }
    }
    Ok(series)
}

/// Switches of table 4.3, by mechanisms of today: error control at the sender, then flow control.
const PAIRS: [(Function, [&str; 2]); 3] = [
    (Function::Detection, ["crc-32c", "crc-32"]),
    (Function::Congestion, ["new-reno", "cubic"]),
    (Function::Flow, ["credit", "sliding-window"]),
];

/// Nanoseconds in which a connection whose packets have a checksum takes up another profile at once
/// (it is checked, its mechanisms are made, and the next packet is of it).
///
/// # Errors
/// The connection refuses a profile, or ends.
pub fn switches() -> Result<Series> {
    let mut config = ConnectionConfig { idle_timeout: Duration::ZERO, ..ConnectionConfig::default() };
    ask(&mut config.requirements, ["uts.security=unprotected", "uts.adapt=off", "uts.consent=all"])?;
    let (mut pair, handle, flow) = carried(config, Duration::from_micros(100), 1 << 20)?;
    pair.pass(pair.now + CLOSED)?;
    let (mut series, clock_ns) = (Series::new(), overhead_ns());
    for (row, (function, names)) in PAIRS.into_iter().enumerate() {
        let mut took = Vec::new();
        for _ in 0..SWITCHES {
            let now = pair.now;
            let connection = pair.client.connection(handle).context("the connection is gone")?;
            let profile = connection.profile(Direction::Out).context("no profile is in use")?;
            let next = if profile.name(function) == names[0] { names[1] } else { names[0] };
            let wanted = profile.with_named(function, next).map_err(|error| anyhow!("{error}"))?;
            let (outcome, ns) = time(|| connection.use_profile(now, black_box(wanted)));
            outcome.map_err(|error| anyhow!("{next}: {error}"))?;
            took.push(ns - clock_ns);
            connection.write(now, flow, Bytes::from_static(&[7])).map_err(|error| anyhow!("{error}"))?;
            pair.pass(pair.now + CLOSED)?;
            let connection = pair.client.connection(handle).context("the connection is gone")?;
            let is_used = connection.profile(Direction::Out).is_some_and(|p| p.name(function) == next);
            ensure!(is_used, "{next} was not taken up");
        }
        Spread::of(took).push(&mut series, "took");
        push(&mut series, [("switch", row as f64)]);
    }
    Ok(series)
}
