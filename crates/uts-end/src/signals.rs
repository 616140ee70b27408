//! Signals that end a program in order: SIGINT, SIGTERM and SIGHUP, all alike. A second one ends it
//! at once. SIGHUP has a program read its settings again that has a file of such.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The exit status of a program that a signal has ended before its work was done.
pub const INTERRUPTED: u8 = 130;

const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// A signal within this time of the first means the same request: timeout(1), and shells whose
/// terminal goes away, signal both a process and its group.
const SAME_WISH: Duration = Duration::from_millis(300);

/// Has a limit of the size of files (`ulimit -f`) met as an error of the write, and not by a signal
/// that ends the process (SIGXFSZ): what somebody sends is not to end a server for all others.
pub fn meet_file_limits_as_errors() {
    // Where it cannot be caught the system does what it does by itself.
    let _ = flag::register(rustix::process::Signal::XFSZ.as_raw(), Arc::default());
}

/// Calls `end` at the first signal. A later one ends the process at once, with [`INTERRUPTED`],
/// whatever it is doing. A signal that was ignored when the process began stays ignored (nohup(1)).
///
/// # Errors
/// Signals cannot be caught: they end the process, as they do by themselves.
pub fn on_end(end: impl FnOnce() + Send + 'static) -> io::Result<()> {
    catch(end, None)
}

/// The same, but for SIGHUP, each of which calls `reload`: the program reads its settings again.
///
/// # Errors
/// As [`on_end`].
pub fn on_end_or_reload(
    end: impl FnOnce() + Send + 'static,
    reload: impl FnMut() + Send + 'static,
) -> io::Result<()> {
    catch(end, Some(Box::new(reload)))
}

/// Called at each SIGHUP.
type Reload = Box<dyn FnMut() + Send>;

fn catch(end: impl FnOnce() + Send + 'static, mut reload: Option<Reload>) -> io::Result<()> {
    let ignored = fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status));
    let mut signals = Signals::new(ENDING.iter().filter(|signal| ignored >> (*signal - 1) & 1 == 0))?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut caught = signals.forever().filter(|signal| match &mut reload {
            Some(reload) if *signal == SIGHUP => {
                reload();
                false
            }
            _ => true,
        });
        if caught.next().is_none() {
            return;
        }
        let first = Instant::now();
        end();
        if caught.any(|_| first.elapsed() > SAME_WISH) {
            signal_hook::low_level::exit(INTERRUPTED.into());
        }
    })?;
    Ok(())
}

/// A flag that the first signal sets; see [`on_end`].
///
/// # Errors
/// As [`on_end`].
pub fn end_flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    on_end(move || set.store(true, Ordering::Relaxed))?;
    Ok(flag)
}

/// The signals that a process ignores, a bit each, as its status in proc(5) says.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read() {
        let mask = ignored("Name:\tuts\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n");
        assert_eq!(mask, 1 << (SIGHUP - 1) | 1 << (signal_hook::consts::SIGPIPE - 1));
        assert_eq!(ignored("Name:\tuts\n"), 0);
    }
}
