//! The tables of `spec/packets.md` and the code have the same frames and the same items of a Hello.

use crate::described::FRAMES;
use std::path::Path;
use uts_wire::frame::{Frame, kind};
use uts_wire::library::{End, ITEMS};
use uts_wire::{Problem, Reader};

/// The cells of the table that begins with this row, without its head.
fn table(head: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/packets.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let rows = text.lines().skip_while(|line| *line != head).skip(2).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let rows: Vec<Vec<String>> = rows.map(cells).collect();
    assert!(!rows.is_empty(), "no table begins with {head}");
    rows
}

fn type_of(text: &str) -> u8 {
    let digits = text.strip_prefix("0x").unwrap_or_else(|| panic!("{text} is no type"));
    u8::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{text} is no type"))
}

/// The types that a cell of the frame table names: `0x01`, `0x40-0x7f`, `0xc0, 0xc2`.
fn types(cell: &str) -> Vec<u8> {
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => type_of(first)..=type_of(last),
        None => type_of(part)..=type_of(part),
    };
    cell.split(", ").flat_map(range).collect()
}

/// True if a frame of this type can be read.
fn is_known(frame_kind: u8) -> bool {
    let bytes = [frame_kind];
    let read = Frame::read(&mut Reader::new(&bytes));
    !matches!(read, Err(error) if matches!(error.problem, Problem::Unknown { .. }))
}

#[test]
fn the_page_has_the_frames_of_the_code() {
    let (mut listed, mut wrong) = ([false; 256], Vec::new());
    for row in table("| type | frame | fields | ends the connection |") {
        for frame_kind in types(&row[0]) {
            assert!(!core::mem::replace(&mut listed[usize::from(frame_kind)], true), "{frame_kind:#x} twice");
            let name = match frame_kind {
                kind::DATA..0x80 => "Data",
                0x80..=kind::DATA_LAST => "Data, presented",
                kind::MESSAGES | kind::MESSAGES_PLACED => "Messages, of one length",
                other => FRAMES.iter().find(|(kind, _)| *kind == other).map_or("reserved", |(_, name)| name),
            };
            let is_right = row[1].starts_with(name) && (name != "reserved") == is_known(frame_kind);
            if !is_right {
                wrong.push(format!("{frame_kind:#x} is {} on the page, {name} in code", row[1]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let left_out: Vec<usize> = (0..256).filter(|kind| !listed[*kind]).collect();
    assert!(left_out.is_empty(), "no row has {left_out:x?}");
}

#[test]
fn the_page_has_the_items_of_the_code() {
    let rows = table("| number | item | value | said by | mandatory |");
    assert_eq!(rows.len(), ITEMS.len());
    for (row, item) in rows.iter().zip(ITEMS) {
        let of = match item.of {
            None => "both",
            Some(End::Client) => "the client",
            Some(End::Server) => "the server",
        };
        let is_mandatory = row[4] == "yes";
        let found = (row[0].as_str(), row[3].as_str(), is_mandatory);
        assert_eq!(found, (item.number.to_string().as_str(), of, item.mandatory), "{}", item.name);
    }
}
