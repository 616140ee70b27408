//! Which permission bits a copy gets. The source's are the peer's word; what the receiver's user
//! wants is in the umask.

use std::sync::OnceLock;

/// Permission bits that a receiver ever sets: never set-user-id and the like on the word of a peer.
const MODE_MASK: u32 = 0o777;

/// Rule by which the mode of a copy follows from that of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Modes {
    /// The source's.
    Preserve,
    /// The source's, without the bits of this umask.
    Umask(u32),
}

impl Modes {
    /// As the receiver was asked.
    pub(super) fn new(preserve: bool) -> Modes {
        if preserve { Modes::Preserve } else { Modes::Umask(umask()) }
    }

    /// Of a file.
    pub(super) fn file(self, source: u32) -> u32 {
        match self {
            Modes::Preserve => source & MODE_MASK,
            Modes::Umask(umask) => source & MODE_MASK & !umask,
        }
    }

    /// Of a directory that has the mode `now`: a new one has what the umask left it. One that was
    /// there before is never opened to more users than it was, and the root of a tree, which
    /// somebody named, stays as it is.
    pub(super) fn directory(self, source: u32, now: u32, is_root: bool) -> u32 {
        let special = now & 0o7000;
        match self {
            Modes::Preserve => special | (source & MODE_MASK),
            Modes::Umask(_) if is_root => now & 0o7777,
            Modes::Umask(_) => special | (source & now & MODE_MASK),
        }
    }
}

/// The umask of this process, as it was when first asked for.
fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| told().unwrap_or_else(probed))
}

/// As Linux tells it.
fn told() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// As it is where nobody tells it: it can only be set. What another thread makes in between is for
/// its owner alone.
fn probed() -> u32 {
    use rustix::fs::Mode;
    use rustix::process::umask;
    let found = umask(Mode::RWXG | Mode::RWXO);
    umask(found);
    found.as_raw_mode() & MODE_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_umask_beats_the_peer() {
        let modes = Modes::Umask(0o077);
        assert_eq!((modes.file(0o777), modes.file(0o4755), modes.file(0o400)), (0o700, 0o700, 0o400));
        assert_eq!(Modes::Preserve.file(0o6777), 0o777);
        // New, open, closed, shared by its group, the root.
        for (source, now, is_root, mode) in [
            (0o777, 0o700, false, 0o700),
            (0o750, 0o755, false, 0o750),
            (0o4777, 0o700, false, 0o700),
            (0o777, 0o2750, false, 0o2750),
            (0o000, 0o755, true, 0o755),
        ] {
            assert_eq!(modes.directory(source, now, is_root), mode, "{source:o} {now:o}");
        }
        assert_eq!(Modes::Preserve.directory(0o755, 0o700, true), 0o755);
    }

    #[test]
    fn the_umask_is_found() {
        let found = probed();
        assert!(told().is_none_or(|told| told == found));
    }
}
