//! The bytes of calls, as either end reads them.

use bytes::Bytes;
use uts::call::wire::{
    Breach, Frames, HELD_BYTES_MAX, Half, Item, put_failed, put_message_head, put_refused,
};

/// Items of a half that comes in such pieces, the parts of each message joined; and whether it may
/// end there.
fn items<'a>(half: Half, pieces: impl Iterator<Item = &'a [u8]>) -> Result<(Vec<Item>, bool), Breach> {
    let (mut frames, mut items) = (Frames::new(half), Vec::new());
    for piece in pieces {
        let mut piece = Bytes::copy_from_slice(piece);
        while let Some(item) = frames.next(&mut piece)? {
            match (items.last_mut(), item) {
                (Some(Item::Part(before, last @ false)), Item::Part(more, is_last)) => {
                    *before = [&before[..], &more[..]].concat().into();
                    *last = is_last;
                }
                (_, item) => items.push(item),
            }
        }
        assert!(piece.is_empty(), "{} bytes are left", piece.len());
        assert!(frames.held_bytes() <= HELD_BYTES_MAX, "{} bytes are held", frames.held_bytes());
    }
    Ok((items, frames.may_end()))
}

/// Bytes that say these items.
fn emit(items: &[Item]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        match item {
            Item::Header(header) => header.emit(&mut out),
            Item::Part(bytes, _) => {
                put_message_head(&mut out, bytes.len());
                out.extend_from_slice(bytes);
            }
            Item::Refused(why, text) => put_refused(&mut out, *why, text),
            Item::Failed(code, text) => put_failed(&mut out, *code, text),
        }
    }
    out
}

/// Target: a half of a call, behind two bytes that say which, and in what pieces it comes. Where it
/// is cut changes nothing. What was read whole is said again as the same.
pub fn run(data: &[u8]) {
    let Some((&[half, piece_bytes], bytes)) = data.split_first_chunk::<2>() else { return };
    let half = if half % 2 == 0 { Half::Request } else { Half::Answer };
    let piece_bytes = usize::from(piece_bytes).max(1);
    let whole = items(half, core::iter::once(bytes));
    assert_eq!(whole, items(half, bytes.chunks(piece_bytes)), "in pieces of {piece_bytes} bytes");
    match whole {
        // A text that was none is longer when it is said again, and may be cut.
        Ok((read, true)) if !read.iter().any(has_replaced) => {
            let again = items(half, core::iter::once(&emit(&read)[..]));
            assert_eq!(again, Ok((read, true)));
        }
        Ok(_) => {}
        Err(breach) => assert!(!breach.to_string().is_empty()),
    }
}

/// True if something of a text was no UTF-8.
fn has_replaced(item: &Item) -> bool {
    matches!(item, Item::Refused(_, text) | Item::Failed(_, text) if text.contains(char::REPLACEMENT_CHARACTER))
}
