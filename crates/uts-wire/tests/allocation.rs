//! Reading the frames of a bulk transfer allocates nothing.
#![allow(unsafe_code, reason = "a counting allocator cannot be had without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use uts_wire::frame::*;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as required of our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as required of our caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn reading_allocates_nothing() {
    let mut payload = Vec::new();
    emit_ack(&mut payload, (0..60).rev().map(|i| i * 10..i * 10 + 4), 250, Some(EcnCounts::default()), 400);
    Frame::Credit(Credit { flow: 1, limit: 1 << 30 }).emit(&mut payload);
    Frame::Ping.emit(&mut payload);
    Frame::Padding { len: 10 }.emit(&mut payload);
    Frame::Skip(Skip { flow: 2, start: 5, len: 6 }).emit(&mut payload);
    emit_data_header(&mut payload, 3, Some(1 << 20), None, DataFlags::default());
    payload.resize(payload.len() + 700, 7);

    let before = ALLOCATIONS.with(Cell::get);
    let mut packets = 0;
    let mut frames = 0;
    for frame in FrameIter::new(&payload) {
        if let Ok(Frame::Ack(ack)) = frame {
            packets += ack.ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        }
        frames += 1;
    }
    let after = ALLOCATIONS.with(Cell::get);
    assert_eq!((frames, packets), (6, 240));
    assert_eq!(after - before, 0);
    drop(vec![0u8; 9]);
    assert_eq!(ALLOCATIONS.with(Cell::get) - after, 1, "the allocator counts");
}
