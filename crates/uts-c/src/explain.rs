//! Explanation of what the selector would choose.

use crate::border::border;
use crate::code::{Failure, Result, uts_code};
use crate::connection::Connection;
use crate::handles::{find_if, kind};
use crate::memory::{put_text, value};
use crate::options::Options;
use core::ffi::{c_char, c_int, c_void};
use core::time::Duration;
use uts::{Library, PathFacts, Rate, explain};

/// Packets on which figures rest that a program gives: they are taken at their word.
const SAMPLES: u64 = 1000;

/// A path, for uts_explain.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct uts_path {
    /// Microseconds there and back.
    pub rtt_us: u64,
    /// Bits per second; 0 = not known.
    pub rate_bps: u64,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
}

/// Says in a table what the selector would choose for what is asked, and why. Nothing is sent.
///
/// handle: of options, or of a connection. path: the path; NULL = that of the connection as it was
/// measured, or, for options, one of which nothing is known.
/// text, size, needed: as of uts_get.
/// Returns UTS_OK; UTS_EPROPERTY if properties contradict each other; UTS_ETOOSMALL, UTS_ENOTCONN,
/// UTS_EHANDLE or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_explain(
    handle: *const c_void,
    path: *const uts_path,
    text: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let given = unsafe { value(path, "path") }?.map(facts).transpose()?;
        let (requirements, measured) = if let Some((_, options)) = find_if::<Options>(handle)? {
            (options.kept().requirements().clone(), PathFacts::default())
        } else if let Some((_, connection)) = find_if::<Connection>(handle)? {
            let connection = connection.get()?;
            (connection.requirements(), connection.facts())
        } else {
            let kind = kind(handle)?;
            let why = format_args!("a {kind} has nothing to explain: give options or a connection");
            return Err(Failure::new(uts_code::UTS_EHANDLE, why));
        };
        let explained = explain(&requirements, &given.unwrap_or(measured), &Library::local(), None);
        let explained = explained.map_err(|error| Failure::new(uts_code::UTS_EPROPERTY, error))?;
        // SAFETY: as promised.
        unsafe { put_text(&explained.to_string(), text, size, needed) }
    })
}

fn facts(path: uts_path) -> Result<PathFacts> {
    if !(0.0..=1.0).contains(&path.loss) {
        return Err(Failure::argument(format_args!("`path`: a loss of {} is not from 0 to 1", path.loss)));
    }
    let rtt = Duration::from_micros(path.rtt_us);
    Ok(PathFacts {
        rtt_min: rtt,
        rtt_smoothed: rtt,
        capacity: Rate::from_bits_per_sec(path.rate_bps),
        loss: path.loss,
        losses: if path.loss > 0.0 { SAMPLES } else { 0 },
        samples: SAMPLES,
        ..PathFacts::default()
    })
}
