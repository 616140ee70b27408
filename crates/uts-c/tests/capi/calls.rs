//! Functions in any order, with handles and arguments that make sense and that make none.

use crate::ends::{Ends, get, text_at, turn};
use crate::header;
use core::any::type_name;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{null, null_mut, without_provenance_mut};
use proptest::prelude::*;
use std::ffi::CString;
use uts_c::*;

/// Bytes that calls read and fill.
const ROOM: usize = 4096;

/// Where nothing can be made.
const NOWHERE: &str = "/dev/null/nowhere";

/// Numbers from a seed, one after the other.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len())]
    }
}

/// Handles that were ever given, and what calls are made with.
struct World {
    handles: Vec<(usize, &'static str)>,
    target: String,
    fingerprint: String,
    room: Vec<u8>,
    dice: Dice,
}

impl World {
    /// Mostly a handle that some call gave, of this kind or of any, and open or not.
    fn handle<T>(&mut self) -> *mut T {
        let at = match self.dice.roll(12) {
            0 => 0,
            1 => self.dice.one_of(&[1, 7, usize::MAX, usize::MAX / 2, 1 << 32]),
            // Of any kind, or of the one that the function takes.
            any => {
                let kind = type_name::<T>();
                let fits = |held: &&(usize, &str)| any < 4 || held.1 == kind || kind == type_name::<c_void>();
                let fitting: Vec<usize> = self.handles.iter().filter(fits).map(|held| held.0).collect();
                if fitting.is_empty() { 0 } else { self.dice.one_of(&fitting) }
            }
        };
        without_provenance_mut(at)
    }

    /// Makes the call with a place for a handle, and keeps what it gives.
    fn giving<T>(&mut self, call: impl FnOnce(&mut Self, *mut *mut T) -> c_int) -> Option<c_int> {
        if self.dice.roll(20) == 0 {
            return Some(call(self, null_mut()));
        }
        let mut handle: *mut T = null_mut();
        let code = call(self, &raw mut handle);
        if !handle.is_null() {
            self.handles.push((handle.addr(), type_name::<T>()));
        }
        assert!(code != 0 || !handle.is_null());
        assert!(code >= 0 || handle.is_null());
        Some(code)
    }

    fn timeout(&mut self) -> c_int {
        self.dice.one_of(&[0, 0, 0, 1, 3])
    }

    fn data(&mut self) -> (*const u8, usize) {
        let size = self.dice.one_of(&[0, 1, 16, 900, ROOM]);
        (if self.dice.roll(16) == 0 { null() } else { self.room.as_ptr() }, size)
    }

    fn room(&mut self) -> (*mut u8, usize) {
        let size = self.dice.one_of(&[0, 1, 15, 16, ROOM]);
        (if self.dice.roll(16) == 0 { null_mut() } else { self.room.as_mut_ptr() }, size)
    }

    fn text(&mut self, known: &[&str]) -> Text {
        match self.dice.roll(24) {
            0 => Text(None),
            1 => Text(CString::new(b"\xff\xfe".to_vec()).ok()),
            2 => Text(CString::new("").ok()),
            _ => Text(CString::new(self.dice.one_of(known)).ok()),
        }
    }

    fn options(&mut self) -> *mut uts_options {
        if self.dice.roll(4) == 0 { null_mut() } else { self.handle() }
    }
}

struct Text(Option<CString>);

impl Text {
    fn at(&self) -> *const c_char {
        self.0.as_ref().map_or(null(), |text| text.as_ptr())
    }
}

/// Properties and settings, each with values that touch no file of anybody's.
const SETTINGS: [(&str, &[&str]); 14] = [
    ("msgLifetime", &["100ms", "never", "soon", "-1"]),
    ("preserveMsgBoundaries", &["require", "prohibit", "perhaps"]),
    ("uts.profile", &["media", "messages", "bulk", "none", "nonsense"]),
    ("uts.profile.congestion", &["bbr", "cubic", "magic", "cubic("]),
    ("uts.security", &["required", "unprotected"]),
    ("uts.expedited", &["on", "off"]),
    ("connPriority", &["10", "1000000000000"]),
    ("maxSendRate", &["5Mbit/s", "0", "five"]),
    ("identity", &["ephemeral", NOWHERE]),
    ("pin", &["SHA256:short", "nothing"]),
    ("knownHosts", &[NOWHERE]),
    ("flowPriority", &["0", "255", "256"]),
    (
        "service",
        &["echo", "a service with a name that is far longer than the sixty-four bytes that there may be"],
    ),
    ("no such name", &["value"]),
];

type Call = fn(&mut World) -> Option<c_int>;

/// Every function, with arguments from the dice. `None` = it returns no code.
const CALLS: &[(&str, Call)] = &[
    ("uts_accept", |w| w.giving(|w, out| unsafe { uts_accept(w.handle(), out, w.timeout()) })),
    ("uts_accept_flow", |w| w.giving(|w, out| unsafe { uts_accept_flow(w.handle(), out, w.timeout()) })),
    ("uts_buffer_timing", |w| {
        let buffer = uts_buffer {
            data: null(),
            size: 0,
            right_bytes: 0,
            position: 0,
            is_message: 0,
            reserved: 0,
            owner: w.handle::<uts_buffer>().cast(),
        };
        let mut timing = core::mem::MaybeUninit::<uts_timing>::uninit();
        let code = unsafe { uts_buffer_timing(&raw const buffer, timing.as_mut_ptr()) };
        if code == 0 {
            let timing = unsafe { timing.assume_init() };
            assert_eq!((timing.is_timed, timing.missing), (0, 0), "nobody asks for it here");
        }
        Some(code)
    }),
    ("uts_close", |w| {
        // Seldom, or little would be left to call.
        (w.dice.roll(3) == 0).then(|| uts_close(w.handle()))
    }),
    ("uts_code_name", |w| {
        let code = w.dice.roll(60) as c_int - 30;
        assert!(!text_at(uts_code_name(code)).is_empty());
        None
    }),
    ("uts_connect", |w| {
        let target = w.target.clone();
        let text = w.text(&[&target, "127.0.0.1:1", "[::1", "nowhere", ":"]);
        w.giving(|w, out| unsafe { uts_connect(w.handle(), text.at(), w.options(), out, w.timeout()) })
    }),
    ("uts_connected", |w| Some(uts_connected(w.handle(), w.timeout()))),
    ("uts_context_fd", |w| {
        uts_context_fd(w.handle::<uts_context>());
        None
    }),
    ("uts_context_new", |w| {
        // A few are enough: each has a thread.
        if w.dice.roll(6) > 0 { None } else { w.giving(|_, out| unsafe { uts_context_new(out) }) }
    }),
    ("uts_ended", |w| {
        let (mut code, mut is_peer, mut needed) = (0, 0, 0);
        let (room, size) = w.room();
        let (handle, timeout) = (w.handle(), w.timeout());
        Some(unsafe {
            uts_ended(handle, &raw mut code, &raw mut is_peer, room.cast(), size, &raw mut needed, timeout)
        })
    }),
    ("uts_error", |_| {
        text_at(uts_error());
        None
    }),
    ("uts_explain", |w| {
        let losses = [0.0, 0.02, 1.0, -1.0, f64::NAN, f64::INFINITY];
        let path = uts_path { rtt_us: 50_000, rate_bps: 1_000_000, loss: w.dice.one_of(&losses) };
        let (room, size) = w.room();
        let at = if w.dice.roll(3) == 0 { null() } else { &raw const path };
        Some(unsafe { uts_explain(w.handle::<c_void>(), at, room.cast(), size, null_mut()) })
    }),
    ("uts_finish", |w| if w.dice.roll(3) == 0 { Some(uts_finish(w.handle())) } else { None }),
    (
        "uts_finished",
        |w| if w.dice.roll(3) == 0 { Some(uts_finished(w.handle(), w.timeout())) } else { None },
    ),
    ("uts_follow_network", |w| if w.dice.roll(4) == 0 { Some(uts_follow_network(w.handle())) } else { None }),
    ("uts_get", |w| {
        let names =
            ["localAddress", "fingerprint", "profile", "state", "flow", "msgLifetime", "uts.profile.rate"];
        let name = w.text(&names);
        let (room, size) = w.room();
        let mut needed = 0;
        Some(unsafe { uts_get(w.handle::<c_void>(), name.at(), room.cast(), size, &raw mut needed) })
    }),
    ("uts_get_stats", |w| {
        let mut stats = uts_stats::default();
        let size = w.dice.one_of(&[0, 1, 8, size_of::<uts_stats>()]);
        Some(unsafe { uts_get_stats(w.handle(), &raw mut stats, size) })
    }),
    ("uts_known_hosts_add", |w| {
        let fingerprint = w.fingerprint.clone();
        let (file, host) = (CString::new(NOWHERE).expect("no zero"), w.text(&["a:1", ""]));
        let fingerprint = w.text(&[&fingerprint, "SHA256:"]);
        Some(unsafe { uts_known_hosts_add(file.as_ptr(), host.at(), fingerprint.at()) })
    }),
    ("uts_listen", |w| {
        let at = w.text(&["127.0.0.1:0", "nowhere", "256.0.0.1:1", "127.0.0.1"]);
        w.giving(|w, out| unsafe { uts_listen(w.handle(), at.at(), w.options(), out) })
    }),
    ("uts_migrate", |w| {
        let at = w.text(&["127.0.0.1:0", "[::1]:0", "x"]);
        Some(unsafe { uts_migrate(w.handle(), at.at()) })
    }),
    ("uts_next_event", |w| {
        let mut event = Box::new(core::mem::MaybeUninit::<uts_event>::uninit());
        let at = if w.dice.roll(16) == 0 { null_mut() } else { event.as_mut_ptr() };
        Some(unsafe { uts_next_event(w.handle(), at, w.timeout()) })
    }),
    ("uts_open_flow", |w| {
        w.giving(|w, out| unsafe { uts_open_flow(w.handle(), w.options(), out, w.timeout()) })
    }),
    ("uts_options_new", |w| w.giving(|_, out| unsafe { uts_options_new(out) })),
    ("uts_poll", |w| {
        let mut entries = [const { core::mem::MaybeUninit::<uts_entry>::uninit() }; 4];
        let mut count = 9;
        let (most, handle, timeout) = (w.dice.roll(5), w.handle(), w.timeout());
        let code = unsafe { uts_poll(handle, entries.as_mut_ptr().cast(), most, &raw mut count, timeout) };
        assert!(count <= most && (code != 0 || count > 0), "{code}: {count} of {most}");
        Some(code)
    }),
    ("uts_read", |w| {
        let (room, size) = w.room();
        let mut got = 0;
        let code = unsafe { uts_read(w.handle(), room.cast(), size, &raw mut got, w.timeout()) };
        assert!(got <= size);
        Some(code)
    }),
    ("uts_recv", |w| {
        let (room, size) = w.room();
        let mut got = 0;
        Some(unsafe { uts_recv(w.handle(), room.cast(), size, &raw mut got, w.timeout()) })
    }),
    ("uts_recv_buffer", |w| {
        let mut buffer = core::mem::MaybeUninit::<uts_buffer>::uninit();
        let most = w.dice.one_of(&[0, 1, usize::MAX]);
        let code = unsafe { uts_recv_buffer(w.handle(), buffer.as_mut_ptr(), most, w.timeout()) };
        if code == 0 {
            let buffer = unsafe { buffer.assume_init() };
            w.handles.push((buffer.owner.addr(), type_name::<uts_buffer>()));
            if buffer.size > 0 {
                let bytes = unsafe { core::slice::from_raw_parts(buffer.data, buffer.size) };
                assert!(bytes.iter().all(|byte| *byte == 7) && buffer.right_bytes == buffer.size);
            }
        }
        Some(code)
    }),
    ("uts_recv_expedited", |w| {
        let (room, size) = w.room();
        let mut got = 0;
        Some(unsafe { uts_recv_expedited(w.handle(), room.cast(), size, &raw mut got, w.timeout()) })
    }),
    ("uts_release", |w| {
        let mut buffer = uts_buffer {
            data: null(),
            size: 0,
            right_bytes: 0,
            position: 0,
            is_message: 0,
            reserved: 0,
            owner: w.handle::<uts_buffer>().cast(),
        };
        Some(unsafe { uts_release(&raw mut buffer) })
    }),
    ("uts_reset", |w| if w.dice.roll(4) == 0 { Some(uts_reset(w.handle(), 3)) } else { None }),
    ("uts_send", |w| {
        let (data, size) = w.data();
        let flags = w.dice.one_of(&[0, 0, UTS_HAS_LIFETIME, UTS_HAS_KEY, UTS_EXPEDITED, 1 << 20]);
        let options = uts_message_options { flags, lifetime_us: 100_000, ..Default::default() };
        let at = if w.dice.roll(2) == 0 { null() } else { &raw const options };
        Some(unsafe { uts_send(w.handle(), data.cast(), size, at, w.timeout()) })
    }),
    ("uts_set", |w| {
        let (name, values) = w.dice.one_of(&SETTINGS);
        let (name, value) = (w.text(&[name]), w.text(values));
        // An empty value may be a file's name.
        Some(unsafe { uts_set(w.handle(), name.at(), value.at()) })
    }),
    ("uts_set_user", |w| Some(uts_set_user(w.handle(), without_provenance_mut(77)))),
    ("uts_shutdown", |w| {
        let why = w.text(&["done", "a reason"]);
        if w.dice.roll(8) == 0 { Some(unsafe { uts_shutdown(w.handle(), 5, why.at()) }) } else { None }
    }),
    ("uts_stop", |w| if w.dice.roll(4) == 0 { Some(uts_stop(w.handle(), 4)) } else { None }),
    ("uts_user", |w| {
        let user = uts_user(w.handle::<c_void>());
        assert!(user.is_null() || user.addr() == 77);
        None
    }),
    ("uts_version", |_| {
        assert_eq!(text_at(uts_version()), env!("CARGO_PKG_VERSION"));
        None
    }),
    ("uts_write", |w| {
        let (data, size) = w.data();
        let mut written = 0;
        let code = unsafe { uts_write(w.handle(), data.cast(), size, &raw mut written, w.timeout()) };
        assert!(written <= size && (code != 0 || written == size));
        Some(code)
    }),
];

impl Ends {
    fn world(&self, seed: u64) -> World {
        World {
            handles: vec![
                (self.context.addr(), type_name::<uts_context>()),
                (self.listener.addr(), type_name::<uts_listener>()),
                (self.client.addr(), type_name::<uts_connection>()),
                (self.server.addr(), type_name::<uts_connection>()),
                (self.out.addr(), type_name::<uts_flow>()),
                (self.back.addr(), type_name::<uts_flow>()),
                (self.options.addr(), type_name::<uts_options>()),
            ],
            target: get(self.listener, "localAddress"),
            fingerprint: get(self.listener, "fingerprint"),
            room: vec![7; ROOM],
            dice: Dice(seed),
        }
    }
}

/// Makes a call, and holds it to what is promised of all.
fn call(world: &mut World, at: usize) {
    let (name, call) = CALLS[at % CALLS.len()];
    world.room.fill(7);
    let Some(code) = call(world) else { return };
    let known = text_at(uts_code_name(code));
    assert!(
        known.starts_with("UTS_") && code != uts_code::UTS_EPANIC as c_int,
        "{name}: {code} {}",
        text_at(uts_error())
    );
    assert!(code >= 0 || !text_at(uts_error()).is_empty(), "{name}: {known} without words");
}

fn close_all(handles: Vec<(usize, &str)>) {
    for (handle, _) in handles {
        uts_close(without_provenance_mut(handle));
    }
}

#[test]
fn every_function_is_called_here() {
    let names: Vec<&str> = CALLS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, header::functions());
}

/// A panic is planted in each function: none lets it out.
#[test]
fn no_function_lets_a_panic_out() {
    let _turn = turn();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut world = World {
        handles: Vec::new(),
        target: "127.0.0.1:1".into(),
        fingerprint: "SHA256:".into(),
        room: vec![7; ROOM],
        dice: Dice(1),
    };
    for (name, call) in CALLS {
        let said = (0..200).find_map(|_| {
            plant_panic();
            // Some check what they are told, which is nothing now.
            let code = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| call(&mut world)));
            let said = text_at(uts_error());
            said.contains("a panic was planted").then_some((code.ok().flatten(), said))
        });
        let (code, _) = said.unwrap_or_else(|| panic!("{name} lets it out, or never met it"));
        assert!(code.is_none_or(|code| code == uts_code::UTS_EPANIC as c_int), "{name}: {code:?}");
        // So that the next one's words are its own.
        assert!(uts_close(null_mut()) < 0);
    }
    std::panic::set_hook(hook);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn functions_take_any_order(seed: u64, calls in prop::collection::vec(0..1000usize, 1..120)) {
        let _turn = turn();
        let ends = Ends::new(&[("preserveMsgBoundaries", "require"), ("idleTimeout", "5s")]);
        let mut world = ends.world(seed);
        for at in calls {
            call(&mut world, at);
        }
        close_all(world.handles);
        prop_assert_eq!(open_handles(), 0);
    }

    #[test]
    fn threads_share_handles(seed: u64, calls in prop::collection::vec(0..1000usize, 1..120)) {
        let _turn = turn();
        let ends = Ends::new(&[("idleTimeout", "5s")]);
        let worlds: Vec<World> = (0..3).map(|n| ends.world(seed.wrapping_add(n))).collect();
        let calls = &calls;
        let worlds = std::thread::scope(|scope| {
            let threads: Vec<_> = worlds.into_iter().map(|mut world| scope.spawn(move || {
                let shift = world.dice.roll(1000);
                calls.iter().for_each(|at| call(&mut world, at + shift));
                world.handles
            })).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        worlds.into_iter().for_each(close_all);
        prop_assert_eq!(open_handles(), 0);
    }
}
