//! The state of this host as facts: how much of the processor is left, memory, battery, and
//! whether bytes are paid for. All endpoints of the process reckon with them: where the processor
//! is the limit, mechanisms that cost the most leave.
//!
//! Nothing is known until somebody tells it. [`Reader`] looks at the system (Linux), [`tell`] hands
//! on what it finds. [`advise`] is for a manager who knows more, or better: its advice counts more.
//! In simulated networks only the engine's own calls tell.

use crate::machine::bytes_of;
use core::time::Duration;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use uts_engine::Endpoint;
use uts_functions::Time;

pub use uts_engine::{BadHostFact, HOST_NAMES, HostFacts, UNKNOWN};

#[derive(Clone, Copy)]
struct Told {
    measured: HostFacts,
    advice: HostFacts,
}

const NOTHING: HostFacts =
    HostFacts { processor: None, memory_bytes: None, on_battery: None, is_metered: None };

static TOLD: Mutex<Told> = Mutex::new(Told { measured: NOTHING, advice: NOTHING });

/// Times that something was told. Endpoints look at it in each turn, and at the rest only if it has
/// changed.
static CHANGES: AtomicU64 = AtomicU64::new(0);

fn change<R>(change: impl FnOnce(&mut Told) -> R) -> R {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let result = change(&mut told);
    CHANGES.fetch_add(1, Ordering::Release);
    result
}

fn told() -> Told {
    *TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the endpoints of this process what was measured.
pub fn tell(measured: HostFacts) {
    change(|told| told.measured = measured);
}

/// Tells the endpoints of this process what a manager knows. It counts more than what was measured,
/// until other advice comes.
pub fn advise(advice: HostFacts) {
    change(|told| told.advice = advice);
}

/// Gives advice on one fact, by its name; the value `unknown` takes it back.
///
/// # Errors
/// [`BadHostFact`] for a name that does not exist, and for a value that the fact cannot have.
pub fn set(name: &str, value: &str) -> Result<(), BadHostFact> {
    change(|told| told.advice.set(name, value))
}

/// The facts that endpoints reckon with: advice, and what was measured where there is none.
pub fn facts() -> HostFacts {
    let told = told();
    told.advice.or(told.measured)
}

/// Advice that was given.
pub fn advice() -> HostFacts {
    told().advice
}

/// Hands an endpoint what was told since it was `seen`.
pub(crate) fn hand_over(now: Time, seen: &mut u64, engine: &mut Endpoint) {
    let changes = CHANGES.load(Ordering::Acquire);
    if changes == *seen {
        return;
    }
    *seen = changes;
    let told = told();
    engine.on_host(now, told.measured);
    engine.advise(now, told.advice);
}

/// A second passes between two looks: a share over less says little.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Each look weighs so much against those before.
const WEIGHT: f64 = 0.3;

/// Jiffies of all processors since the system started, and of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Jiffies {
    processors: u64,
    all: u64,
    busy: u64,
    own: u64,
}

/// Reader of the host's state from the files of Linux. On other systems it finds nothing.
#[derive(Debug)]
pub struct Reader {
    /// They stay open: a process may confine itself later.
    stat: Option<File>,
    own: Option<File>,
    memory: Option<File>,
    /// Type, and the file that says whether it gives or is given.
    supplies: Vec<(Supply, File)>,
    before: Option<Jiffies>,
    share: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    Mains,
    Battery,
}

impl Reader {
    /// Opens the files.
    pub fn open() -> Self {
        Self::of(Path::new("/"))
    }

    /// Opens the files of a system that are below `root`.
    fn of(root: &Path) -> Self {
        let open = |path: &str| File::open(root.join(path)).ok();
        Reader {
            stat: open("proc/stat"),
            own: open("proc/self/stat"),
            memory: open("proc/meminfo"),
            supplies: supplies(&root.join("sys/class/power_supply")),
            before: None,
            share: None,
        }
    }

    /// Looks; a share of the processor is known from the second look on. What cannot be read is
    /// not known, and whether bytes are paid for no file says.
    pub fn read(&mut self) -> HostFacts {
        let processor = self.processor();
        let memory = self.memory.as_ref().and_then(text_of).and_then(|text| bytes_of(&text, "MemAvailable"));
        HostFacts { processor, memory_bytes: memory, on_battery: self.on_battery(), is_metered: None }
    }

    fn processor(&mut self) -> Option<f64> {
        let (all, own) = (text_of(self.stat.as_ref()?)?, text_of(self.own.as_ref()?)?);
        let now = jiffies(&all, &own)?;
        let share = self.before.replace(now).and_then(|before| left(&before, &now));
        if let Some(share) = share {
            self.share = Some(self.share.map_or(share, |mean| mean + WEIGHT * (share - mean)));
        }
        self.share
    }

    fn on_battery(&self) -> Option<bool> {
        let states: Vec<(Supply, String)> =
            self.supplies.iter().filter_map(|(kind, file)| Some((*kind, text_of(file)?))).collect();
        let is = |kind, state: &str| states.iter().any(|(k, said)| *k == kind && said.trim() == state);
        (!states.is_empty()).then(|| is(Supply::Battery, "Discharging") && !is(Supply::Mains, "1"))
    }
}

/// The longest text of the system that is read, in bytes: /proc/stat of some thousand processors.
const TEXT_BYTES_MAX: usize = 256 * 1024;

/// The text of a file that is open, from its begin.
#[cfg(unix)]
fn text_of(file: &File) -> Option<String> {
    use std::os::unix::fs::FileExt;
    let mut bytes = Vec::new();
    loop {
        let at = bytes.len();
        bytes.resize(at + 4096, 0);
        let read = file.read_at(&mut bytes[at..], at as u64).ok()?;
        bytes.truncate(at + read);
        if read == 0 || bytes.len() > TEXT_BYTES_MAX {
            return String::from_utf8(bytes).ok();
        }
    }
}

#[cfg(not(unix))]
fn text_of(_: &File) -> Option<String> {
    None
}

/// Power supplies of the host (sysfs-class-power).
fn supplies(dir: &Path) -> Vec<(Supply, File)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let of = |path: PathBuf| -> io::Result<Option<(Supply, File)>> {
        let (kind, file) = match fs::read_to_string(path.join("type"))?.trim() {
            "Mains" | "USB" => (Supply::Mains, "online"),
            "Battery" if fs::read_to_string(path.join("scope")).is_ok_and(|s| s.trim() == "Device") => {
                // That of a mouse or a headset.
                return Ok(None);
            }
            "Battery" => (Supply::Battery, "status"),
            _ => return Ok(None),
        };
        Ok(Some((kind, File::open(path.join(file))?)))
    };
    entries.flatten().filter_map(|entry| of(entry.path()).ok().flatten()).collect()
}

/// Jiffies in `/proc/stat` and in `/proc/self/stat` (proc(5)).
fn jiffies(stat: &str, own: &str) -> Option<Jiffies> {
    let mut lines = stat.lines();
    let fields: Vec<u64> =
        lines.next()?.strip_prefix("cpu ")?.split_whitespace().map_while(|n| n.parse().ok()).collect();
    let processors = lines.take_while(|line| line.starts_with("cpu")).count() as u64;
    // Time of guests is in that of users already.
    let all: u64 = fields.iter().take(8).sum();
    let idle = fields.get(3)? + fields.get(4)?;
    // The name of a program may have spaces and brackets.
    let own = &own[own.rfind(')')? + 1..];
    let mut times = own.split_whitespace().skip(11).map_while(|n| n.parse::<u64>().ok());
    let own = times.next()? + times.next()?;
    Some(Jiffies { processors, all, busy: all.saturating_sub(idle), own })
}

/// Share of a core that is left for this process: what others do not use, of one core at most.
fn left(before: &Jiffies, now: &Jiffies) -> Option<f64> {
    let passed = now.all.checked_sub(before.all).filter(|passed| *passed > 0)?;
    let busy = now.busy.saturating_sub(before.busy);
    let others = busy.saturating_sub(now.own.saturating_sub(before.own));
    let cores = now.processors as f64 * (1.0 - others as f64 / passed as f64);
    Some(cores.clamp(0.0, 1.0))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, contents: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, contents).expect("written");
    }

    /// Files of a host of two processors, with so many jiffies busy and idle, and of this process.
    fn stat(root: &Path, busy: u64, idle: u64, own: u64) {
        let text = format!("cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2\ncpu1 1 2\nintr 5\n");
        put(root, "proc/stat", &text);
        put(root, "proc/self/stat", &format!("7 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 {own} 0 0 0 20"));
    }

    #[test]
    fn what_others_leave_of_a_core_is_read() {
        let root = tempfile::tempdir().expect("a directory");
        stat(root.path(), 100, 100, 10);
        put(root.path(), "proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    2048 kB\n");
        let mut reader = Reader::of(root.path());
        let first = reader.read();
        assert_eq!((first.processor, first.memory_bytes, first.on_battery), (None, Some(2 << 20), None));
        // Of 100 jiffies on two processors 90 are busy, 20 of them this process's: others leave
        // 0.6 of a core.
        stat(root.path(), 190, 110, 30);
        let second = reader.read().processor.expect("known by now");
        assert!((second - 0.6).abs() < 1e-9, "{second}");
        // Nobody is there: a look weighs as much as it does.
        stat(root.path(), 190, 210, 30);
        let third = reader.read().processor.expect("known");
        assert!((third - (0.6 + 0.3 * 0.4)).abs() < 1e-9, "{third}");
    }

    #[test]
    fn a_battery_counts_while_nothing_feeds_it() {
        let root = tempfile::tempdir().expect("a directory");
        let supply = |name: &str, file: &str, text: &str| {
            put(root.path(), &format!("sys/class/power_supply/{name}/{file}"), text);
        };
        supply("AC", "type", "Mains\n");
        supply("AC", "online", "0\n");
        supply("BAT0", "type", "Battery\n");
        supply("BAT0", "status", "Discharging\n");
        supply("mouse", "type", "Battery\n");
        supply("mouse", "scope", "Device\n");
        supply("mouse", "status", "Discharging\n");
        assert_eq!(Reader::of(root.path()).read().on_battery, Some(true));
        supply("AC", "online", "1\n");
        assert_eq!(Reader::of(root.path()).read().on_battery, Some(false));
        fs::remove_dir_all(root.path().join("sys/class/power_supply/BAT0")).expect("taken out");
        assert_eq!(Reader::of(root.path()).read().on_battery, Some(false), "a mouse is no host");
    }

    #[test]
    fn nonsense_is_not_known() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(Reader::of(root.path()).read(), HostFacts::default());
        put(root.path(), "proc/stat", "cpu x\n");
        put(root.path(), "proc/self/stat", "7 no bracket");
        put(root.path(), "proc/meminfo", "MemAvailable: much\n");
        let mut reader = Reader::of(root.path());
        assert_eq!((reader.read(), reader.read()), (HostFacts::default(), HostFacts::default()));
        let same = Jiffies { processors: 2, all: 5, busy: 5, own: 5 };
        assert_eq!(left(&same, &same), None, "no time has passed");
        assert_eq!(left(&Jiffies { all: 9, ..same }, &same), None, "time has gone back");
    }

    /// An endpoint hears of what is told, once.
    #[test]
    fn an_endpoint_hears_of_advice() {
        let mut engine = Endpoint::new(uts_engine::EndpointConfig::default(), [1; 32]);
        let mut seen = CHANGES.load(Ordering::Acquire);
        let now = Time::ZERO;
        set("host.metered", "yes").expect("right");
        hand_over(now, &mut seen, &mut engine);
        assert_eq!((engine.host().is_metered, facts().is_metered), (Some(true), Some(true)));
        set("host.fan", "1").expect_err("there is none");
        set("host.metered", "unknown").expect("right");
        hand_over(now, &mut seen, &mut engine);
        assert_eq!(engine.host().is_metered, None);
    }
}
