//! The kernel's own account of its TCP (the tracepoint tcp:tcp_probe): the state of a connection at
//! each segment that it receives, of all network namespaces. It needs root, and tracefs to be
//! mounted.
//!
//! A recording has a buffer of its own in tracefs, an instance. A shell holds it, and removes it
//! when this process has ended, however it ends.

use super::check::Check;
use rustix::fs::{Access, OFlags, access};
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Kernel memory for what was not read yet, on each processor.
const BUFFER_KIB: u32 = 4096;
/// Interval at which it is read.
const EVERY: Duration = Duration::from_millis(10);
/// Time that the kernel may take to make an instance or remove it.
const PATIENCE: Duration = Duration::from_secs(5);
const EVENT: &str = "events/tcp/tcp_probe/enable";

/// Removes the instance once nobody holds the other end of its input.
const HOLDER: &str = "cat >/dev/null; echo 0 >\"$0/events/tcp/tcp_probe/enable\"; n=0; \
                      until rmdir \"$0\" 2>/dev/null || [ $n -ge 100 ]; do n=$((n+1)); sleep 0.05; done";

/// A segment came to a socket.
#[derive(Debug, Clone, PartialEq)]
pub struct TcpState {
    /// When, in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// The socket's address.
    pub local: SocketAddr,
    /// Its peer's.
    pub remote: SocketAddr,
    /// Bytes of the segment that came.
    pub data_bytes: u64,
    /// The next number to send, and the oldest that is not acknowledged; they wrap.
    pub next: u32,
    /// See `next`.
    pub unacknowledged: u32,
    /// Congestion window in segments.
    pub window: u32,
    /// Slow-start threshold in segments; `None` is none yet.
    pub threshold: Option<u32>,
    /// Bytes that the peer's window allows.
    pub send_window_bytes: u64,
    /// Bytes that its own window allows the peer.
    pub receive_window_bytes: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
}

/// A recording, that goes on until it is finished.
#[derive(Debug)]
pub struct TcpProbe {
    holder: Child,
    is_over: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
    reader: Option<JoinHandle<io::Result<Vec<TcpState>>>>,
}

impl TcpProbe {
    /// Begins.
    ///
    /// # Errors
    /// Why it cannot be, and what would permit it.
    pub fn start() -> Result<Self, String> {
        let tracefs = tracefs()?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let instance = tracefs.join(format!("instances/uts-lab-{}-{number}", std::process::id()));
        let failed = |what: &str| {
            let doing = format!("cannot {what} {}", instance.display());
            move |e: io::Error| format!("{doing}: {e}")
        };
        fs::create_dir(&instance).map_err(failed("make the trace instance"))?;
        let holder = Command::new("sh")
            .args(["-c", HOLDER])
            .arg(&instance)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let holder = holder.inspect_err(|_| drop(fs::remove_dir(&instance)));
        let holder = holder.map_err(|e| format!("cannot start a shell: {e}"))?;
        // From here on the shell removes the instance.
        let mut probe = TcpProbe { holder, is_over: Arc::default(), lost: Arc::default(), reader: None };
        for (file, text) in
            [("trace_clock", "mono"), ("buffer_size_kb", &BUFFER_KIB.to_string()), (EVENT, "1")]
        {
            fs::write(instance.join(file), text).map_err(failed(&format!("set {file} of")))?;
        }
        let pipe = File::options()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(instance.join("trace_pipe"))
            .map_err(failed("read"))?;
        let (is_over, lost) = (probe.is_over.clone(), probe.lost.clone());
        let read = move || read(pipe, &instance.join(EVENT), &is_over, &lost);
        let reader = std::thread::Builder::new().name("tcp probe".into()).spawn(read);
        probe.reader = Some(reader.map_err(|e| format!("cannot start a thread: {e}"))?);
        Ok(probe)
    }

    /// Ends; gives what was seen, in order of time, and how many events the kernel had no room for.
    ///
    /// # Errors
    /// The recording could not be read.
    pub fn finish(mut self) -> Result<(Vec<TcpState>, u64), String> {
        self.is_over.store(true, Ordering::Relaxed);
        let rows = self.reader.take().map(JoinHandle::join);
        let rows = rows.and_then(Result::ok).unwrap_or_else(|| Ok(Vec::new()));
        let mut rows = rows.map_err(|e| format!("cannot read tcp_probe: {e}"))?;
        rows.sort_by_key(|row| row.at_ns);
        Ok((rows, self.lost.load(Ordering::Relaxed)))
    }
}

impl Drop for TcpProbe {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Checks if it can be recorded here.
pub(super) fn check() -> Check {
    let permitted = tracefs().and_then(|place| {
        let instances = place.join("instances");
        let shown = instances.display().to_string();
        access(&instances, Access::WRITE_OK).map_err(|e| format!("cannot write to {shown}: {e}"))
    });
    let (ok, why, remedy) = match permitted {
        Ok(()) => (true, "the kernel tells of each segment (record.tcp_probe)".to_owned(), String::new()),
        Err(why) => {
            let is_root = rustix::process::geteuid().is_root();
            let mount = "mount -t tracefs tracefs /sys/kernel/tracing";
            (false, why, if is_root { mount.into() } else { format!("run as root, after sudo {mount}") })
        }
    };
    Check { name: "tcp_probe".into(), required: false, ok, why, remedy }
}

/// Where tracefs is mounted.
fn tracefs() -> Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/mounts").map_err(|e| format!("cannot read /proc/mounts: {e}"))?;
    let mut all = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (_, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "tracefs").then(|| PathBuf::from(place))
    });
    let place = all.find(|place| place.join("instances").is_dir());
    let place = place.ok_or("tracefs is not mounted, or this user may not see it")?;
    if !place.join(EVENT).exists() {
        return Err(format!(
            "{} has no {EVENT}: the kernel was built without it, or it is hidden",
            place.display()
        ));
    }
    Ok(place)
}

/// Reads until it is over and nothing is left.
fn read(mut pipe: File, event: &Path, is_over: &AtomicBool, lost: &AtomicU64) -> io::Result<Vec<TcpState>> {
    let (mut rows, mut text, mut buffer) = (Vec::new(), Vec::new(), vec![0; 1 << 16]);
    let mut ends: Option<Instant> = None;
    loop {
        if ends.is_none() && is_over.load(Ordering::Relaxed) {
            fs::write(event, "0")?;
            ends = Some(Instant::now());
        }
        match pipe.read(&mut buffer) {
            Ok(0) => {}
            Ok(length) => {
                text.extend_from_slice(buffer.get(..length).unwrap_or_default());
                take_lines(&mut text, &mut rows, lost);
                if ends.is_none_or(|since| since.elapsed() < PATIENCE) {
                    continue;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if ends.is_some() {
            return Ok(rows);
        }
        std::thread::sleep(EVERY);
    }
}

/// Takes the whole lines.
fn take_lines(text: &mut Vec<u8>, rows: &mut Vec<TcpState>, lost: &AtomicU64) {
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let rest = text.split_off(whole);
    for line in String::from_utf8_lossy(text).lines() {
        match (row(line), lost_events(line)) {
            (Some(row), _) => rows.push(row),
            (None, Some(count)) => {
                lost.fetch_add(count, Ordering::Relaxed);
            }
            (None, None) => {}
        }
    }
    *text = rest;
}

/// `CPU:1 [LOST 123 EVENTS]`
fn lost_events(line: &str) -> Option<u64> {
    line.split_once("[LOST ")?.1.split_once(" EVENTS]")?.0.parse().ok()
}

/// `PROGRAM-ID [CPU] FLAGS SECONDS.MICROS: tcp_probe: family=… src=… dest=… …`
fn row(line: &str) -> Option<TcpState> {
    let (head, fields) = line.split_once(": tcp_probe: ")?;
    let (seconds, micros) = head.rsplit(' ').next()?.split_once('.')?;
    let at_us = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros.parse().ok()?)?;
    let field = |name: &str| {
        let mut all = fields.split(' ').filter_map(|field| field.split_once('='));
        all.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let sequence = |name: &str| u32::from_str_radix(field(name)?.trim_start_matches("0x"), 16).ok();
    Some(TcpState {
        at_ns: at_us.checked_mul(1000)?,
        local: field("src")?.parse().ok()?,
        remote: field("dest")?.parse().ok()?,
        data_bytes: number("data_len")?,
        next: sequence("snd_nxt")?,
        unacknowledged: sequence("snd_una")?,
        window: field("snd_cwnd")?.parse().ok()?,
        threshold: field("ssthresh")?.parse().ok().filter(|segments| *segments < i32::MAX as u32),
        send_window_bytes: number("snd_wnd")?,
        receive_window_bytes: number("rcv_wnd")?,
        rtt: Duration::from_micros(number("srtt")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "          <idle>-0       [001] ..s3.   812.345678: tcp_probe: family=AF_INET src=10.77.0.1:40112 \
                    dest=10.77.0.2:7777 mark=0x0 data_len=0 snd_nxt=0xd4a50b4f snd_una=0xd4a4f000 snd_cwnd=10 \
                    ssthresh=2147483647 snd_wnd=65160 srtt=20311 rcv_wnd=64256 sock_cookie=3 skbaddr=00000000 skaddr=0";
        let row = row(line).unwrap();
        assert_eq!((row.at_ns, row.local.port(), row.remote.port()), (812_345_678_000, 40112, 7777));
        assert_eq!((row.next, row.unacknowledged), (0xd4a5_0b4f, 0xd4a4_f000));
        assert_eq!((row.window, row.threshold, row.rtt), (10, None, Duration::from_micros(20_311)));
        assert_eq!((row.send_window_bytes, row.receive_window_bytes), (65_160, 64_256));
        let later = line.replace("src=10.77.0.1:40112", "src=[fd77::1]:40112").replace("2147483647", "7");
        let later = super::row(&later).unwrap();
        assert!(later.local.is_ipv6() && later.threshold == Some(7));
        assert_eq!(super::row("CPU:1 [LOST 123 EVENTS]"), None);
        assert_eq!(lost_events("CPU:1 [LOST 123 EVENTS]"), Some(123));
    }

    #[test]
    fn a_line_that_came_in_parts_is_whole() {
        let (mut rows, lost) = (Vec::new(), AtomicU64::new(0));
        let line = b"x-1 [000] ..... 1.000002: tcp_probe: family=AF_INET src=10.0.0.1:1 dest=10.0.0.2:2 mark=0x0 \
                     data_len=5 snd_nxt=0x1 snd_una=0x0 snd_cwnd=3 ssthresh=4 snd_wnd=5 srtt=6 rcv_wnd=7 sock_cookie=8\n";
        let mut text = Vec::new();
        for part in [&line[..40], &line[40..]] {
            text.extend_from_slice(part);
            take_lines(&mut text, &mut rows, &lost);
        }
        assert!(rows.len() == 1 && text.is_empty(), "{rows:?}");
        assert_eq!(rows[0].at_ns, 1_000_002_000);
    }
}
