//! Calls that wait, or do not: what wakes them, and what becomes of what there is no room for.

use crate::ends::{Ends, PATIENCE, given, turn};
use core::ffi::c_int;
use core::ptr::{null, null_mut, without_provenance_mut};
use uts_c::*;

/// Waits for good with a handle.
type Waits = fn(usize) -> c_int;

#[test]
fn a_message_for_which_there_is_no_room_is_kept() {
    let _turn = turn();
    let ends = Ends::new(&[("preserveMsgBoundaries", "require")]);
    let (mut room, mut got) = ([0u8; 8], 0);
    let mut recv = |size: usize| {
        let code = unsafe { uts_recv(ends.back, room.as_mut_ptr().cast(), size, &raw mut got, PATIENCE) };
        (code, got, room)
    };
    assert_eq!(recv(8), (0, 1, [7, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(unsafe { uts_send(ends.out, b"message".as_ptr().cast(), 7, null(), PATIENCE) }, 0);
    assert_eq!(recv(6), (uts_code::UTS_ETOOSMALL as c_int, 7, [7, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(recv(8), (0, 7, *b"message\0"));
    assert_eq!(uts_finish(ends.out), 0);
    assert_eq!(recv(8).0, uts_code::UTS_END as c_int);
    ends.close();
}

/// A call that is not to wait leaves one entry, and that comes when it is worth calling again.
#[test]
fn what_could_not_be_done_at_once_is_told_by_the_queue() {
    let _turn = turn();
    let ends = Ends::new(&[("preserveMsgBoundaries", "require")]);
    uts_set_user(ends.back.cast(), without_provenance_mut(77));
    let (mut room, mut got) = ([0u8; 8], 0);
    let mut recv = || unsafe { uts_recv(ends.back, room.as_mut_ptr().cast(), 8, &raw mut got, 0) };
    let poll = |timeout| {
        let mut entries = [const { core::mem::MaybeUninit::<uts_entry>::uninit() }; 4];
        let mut count = 0;
        let at = entries.as_mut_ptr().cast();
        let code = unsafe { uts_poll(ends.context, at, 4, &raw mut count, timeout) };
        let taken = entries.iter().take(count).map(|entry| unsafe { entry.assume_init() });
        (
            code,
            taken.map(|entry| (entry.operation, entry.handle.addr(), entry.user.addr())).collect::<Vec<_>>(),
        )
    };
    let again = uts_code::UTS_AGAIN as c_int;
    while recv() == 0 {}
    assert_eq!((recv(), recv()), (again, again), "only asking twice puts one entry");
    assert_eq!(poll(0), (again, vec![]));
    for n in 0..3u8 {
        assert_eq!(unsafe { uts_send(ends.out, (&raw const n).cast(), 1, null(), PATIENCE) }, 0);
        let entry = (uts_operation::UTS_ON_RECV as c_int, ends.back.addr(), 77);
        assert_eq!(poll(PATIENCE), (0, vec![entry]));
        while recv() == 0 {}
    }
    assert_eq!(uts_close(ends.back.cast()), 0);
    assert_eq!(poll(0).0, again, "a closed handle's entries are gone");
    ends.close();
}

#[test]
fn closing_wakes_who_waits() {
    let _turn = turn();
    let ends = Ends::new(&[]);
    let waits: [(&str, usize, Waits); 3] = [
        ("flow", ends.out.addr(), |handle| {
            let mut got = 0;
            let mut room = [0u8; 8];
            unsafe { uts_read(without_provenance_mut(handle), room.as_mut_ptr().cast(), 8, &raw mut got, -1) }
        }),
        ("listener", ends.listener.addr(), |handle| {
            let mut out = null_mut();
            unsafe { uts_accept(without_provenance_mut(handle), &raw mut out, -1) }
        }),
        ("context", ends.context.addr(), |handle| {
            let mut entry = core::mem::MaybeUninit::uninit();
            let mut count = 0;
            unsafe { uts_poll(without_provenance_mut(handle), entry.as_mut_ptr(), 1, &raw mut count, -1) }
        }),
    ];
    for (what, handle, wait) in waits {
        let (tell, told) = std::sync::mpsc::channel();
        let waits = std::thread::spawn(move || {
            tell.send(()).expect("somebody listens");
            wait(handle)
        });
        told.recv().expect("it begins");
        assert_eq!(uts_close(without_provenance_mut(handle)), 0, "{what}");
        let code = waits.join().expect("it returns");
        // Who was not waiting yet, or was told of the listener's end, is told so.
        assert!(
            [uts_code::UTS_EHANDLE, uts_code::UTS_END].map(|code| code as c_int).contains(&code),
            "{what}: {code}"
        );
    }
    ends.close();
    assert_eq!(open_handles(), 0);
}

/// A signal of the process finds a thread of the program.
#[cfg(target_os = "linux")]
#[test]
fn the_thread_of_a_context_takes_no_signals() {
    let _turn = turn();
    let context = given(|out| unsafe { uts_context_new(out) });
    let blocked = || {
        let threads = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
        let statuses =
            threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
        let of_context = statuses.filter(|status| status.starts_with("Name:\tuts\n"));
        let blocked = of_context.filter_map(|status| {
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?.trim().to_owned();
            u64::from_str_radix(&mask, 16).ok()
        });
        blocked.collect::<Vec<_>>()
    };
    // SIGINT, SIGALRM and SIGTERM; the thread may be about to begin.
    let all = (1 << 1) | (1 << 13) | (1 << 14);
    while !blocked().iter().any(|mask| mask & all == all) {
        std::thread::yield_now();
    }
    uts_close(context.cast());
}
