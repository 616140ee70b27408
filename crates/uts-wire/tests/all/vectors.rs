//! The golden vectors of `spec/vectors`. The bytes read as the value described, and the value emits
//! the bytes. Invalid bytes fail with the kind of error, in the field and at the byte that the
//! vector names.

use crate::described;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use uts_wire::packet::*;
use uts_wire::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "about")]
    _about: String,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    /// Which parser: frames, packet, body, adaptive, reset, hello, profile.
    parser: String,
    hex: String,
    /// Value that the bytes read as (`described.rs`).
    value: Option<Value>,
    error: Option<Fault>,
    /// For `adaptive`: the length of the receiver's connection ids.
    cid_len: Option<usize>,
    /// For `adaptive` and `packet`: the header protection mask.
    mask: Option<String>,
    /// For `hello`: the end that says it.
    from: Option<String>,
    /// Bytes that the value emits, if others read as it, too.
    emits: Option<String>,
}

#[derive(Deserialize, Serialize, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct Fault {
    kind: String,
    what: String,
    at: usize,
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Fault { kind: error.problem.kind().to_owned(), what: error.what.to_owned(), at: error.at }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap_or_else(|| panic!("{c:?} is no hexadecimal digit")))
        .collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in {text:?}");
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

fn mask_of(vector: &Vector) -> [u8; 5] {
    let mask = vector.mask.as_deref().map_or(vec![0; 5], unhex);
    mask.try_into().unwrap_or_else(|mask| panic!("{}: mask {mask:?} is not 5 bytes", vector.name))
}

/// Reads `bytes`, and returns the value and its encoding.
fn read_and_emit(vector: &Vector, bytes: &[u8]) -> Result<(Value, Vec<u8>), WireError> {
    let mut out = Vec::new();
    let value = match vector.parser.as_str() {
        "frames" => {
            let frames = FrameIter::new(bytes).collect::<Result<Vec<_>, _>>()?;
            frames.iter().for_each(|frame| frame.emit(&mut out));
            frames.iter().map(described::frame).collect()
        }
        "packet" => packet(vector, bytes, &mut out)?,
        "body" => {
            let body = parse_body(bytes)?;
            body.emit(&mut out);
            described::body(&body)
        }
        "adaptive" => {
            let mask = mask_of(vector);
            let (header, pn_offset) = AdaptiveHeader::parse(bytes, vector.cid_len.expect("cid_len"))?;
            let mut clear = bytes.to_vec();
            let number = adaptive::unmask(&mut clear, pn_offset, &mask)?;
            let mark = header.emit(number, &mut out);
            let payload = &clear[mark.payload_offset()..];
            out.extend_from_slice(payload);
            mark.mask(&mut out, &mask);
            described::adaptive(&header, number, payload)
        }
        "reset" => {
            let reset = StatelessReset::parse(bytes)?;
            reset.emit(&mut out)?;
            json!({ "random": described::hex(reset.prefix), "token": described::hex(reset.token) })
        }
        "hello" => {
            let from = match vector.from.as_deref() {
                Some("client") => End::Client,
                Some("server") => End::Server,
                other => panic!("{}: from {other:?}, which is no end", vector.name),
            };
            let hello = Hello::parse(bytes, from)?;
            hello.emit(&mut out);
            described::hello(&hello)
        }
        "profile" => {
            let mut r = Reader::new(bytes);
            let profile = WireProfile::read(&mut r)?;
            r.finish("profile")?;
            profile.emit(&mut out);
            described::profile(&profile)
        }
        other => panic!("{}: no parser `{other}`", vector.name),
    };
    Ok((value, out))
}

fn packet(vector: &Vector, bytes: &[u8], out: &mut Vec<u8>) -> Result<Value, WireError> {
    let long = parse_header(bytes)?;
    match &long {
        LongPacket::Establishment(packet) => {
            let mask = mask_of(vector);
            let mut clear = bytes.to_vec();
            let number = establishment::unmask_number(&mut clear, packet.pn_offset, &mask)?;
            let sealed = &clear[packet.body()];
            let mark = packet.header.emit(number, out);
            out.extend_from_slice(sealed);
            mark.set_length(out, 0)?;
            mask_number(&mut out[mark.pn_offset..mark.body_offset()], &mask);
            let rest = bytes.len() - packet.range.end;
            assert_eq!(rest, 0, "{}: vectors hold one packet", vector.name);
            return Ok(described::establishment(&packet.header, number, sealed));
        }
        LongPacket::Retry(retry) => retry.emit(out),
        LongPacket::VersionRefusal(refusal) => refusal.emit(out),
        // Never emitted: the bytes are the peer's.
        LongPacket::OtherVersion(_) => out.extend_from_slice(bytes),
    }
    Ok(described::unprotected(&long))
}

/// Disagreement with the vector, if there is any.
fn disagreement(vector: &Vector) -> Option<String> {
    let bytes = unhex(&vector.hex);
    let (name, read) = (&vector.name, read_and_emit(vector, &bytes));
    let emitted = vector.emits.as_deref().map_or_else(|| bytes.clone(), unhex);
    match (&vector.value, &vector.error, read) {
        (Some(value), None, Ok((found, _))) if *value != found => {
            Some(format!("{name}: reads as\n  {found}\nnot\n  {value}"))
        }
        (Some(_), None, Ok((_, out))) if out != emitted => {
            Some(format!("{name}: emits\n  {out:02x?}\nnot\n  {emitted:02x?}"))
        }
        (Some(_), None, Ok(_)) => None,
        (Some(_), None, Err(error)) => Some(format!("{name}: {error}")),
        (None, Some(_), Ok((found, _))) => Some(format!("{name}: reads as {found}")),
        (None, Some(fault), Err(error)) if *fault != Fault::from(error) => {
            Some(format!("{name}: fails with {:?} ({error}), not {fault:?}", Fault::from(error)))
        }
        (None, Some(_), Err(_)) => None,
        _ => Some(format!("{name}: has not one of value and error")),
    }
}

/// The files of vectors that have a parser; `handshake.json` and `breaches.json` are read where
/// connections are.
fn files() -> Vec<File> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors");
    let read = |name: &str| {
        let path = folder.join(name);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    ["frames.json", "hello.json", "packets.json"].map(read).into()
}

#[test]
fn every_vector_reads_and_emits_as_described() {
    let (mut names, mut valid, mut invalid, mut faults) = (Vec::new(), 0, 0, Vec::new());
    for file in files() {
        for vector in file.vectors {
            *(if vector.error.is_some() { &mut invalid } else { &mut valid }) += 1;
            faults.extend(disagreement(&vector));
            assert!(!names.contains(&vector.name), "two vectors are named `{}`", vector.name);
            names.push(vector.name);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(valid >= 60 && invalid >= 65, "{valid} valid and {invalid} invalid vectors: some are gone");
}

/// Each frame, each item of a Hello, and each kind of error.
#[test]
fn there_are_vectors_of_everything() {
    let (mut seen, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for vector in files().into_iter().flat_map(|file| file.vectors) {
        kinds.extend(vector.error.map(|fault| fault.kind));
        match vector.value {
            Some(Value::Array(frames)) => {
                seen.extend(frames.iter().filter_map(|frame| Some(frame["frame"].as_str()?.to_owned())));
            }
            Some(Value::Object(hello)) if vector.parser == "hello" => {
                seen.extend(hello.into_iter().map(|(number, _)| number));
            }
            _ => {}
        }
    }
    let frames = described::FRAMES.iter().map(|(_, name)| (*name).to_owned());
    let items = library::ITEMS.iter().map(|item| item.number.to_string());
    let others = ["Data", "Data, presented", "Messages"].map(str::to_owned);
    let lacking: Vec<String> =
        frames.chain(items).chain(others).filter(|name| !seen.contains(name)).collect();
    assert!(lacking.is_empty(), "no vector has {lacking:?}");
    let all = ["truncated", "value", "too-long", "unknown", "duplicate", "missing", "misplaced", "trailing"];
    let lacking: Vec<&str> = all.into_iter().chain(["not-text"]).filter(|k| !kinds.contains(*k)).collect();
    assert!(lacking.is_empty(), "no vector fails as {lacking:?}");
}
