//! The golden vectors of `spec/vectors`. The bytes read as the value described, and the value emits
//! the bytes. Invalid bytes fail with the kind of error, in the field and at the byte that the
//! vector names.

use serde::Deserialize;
use std::path::Path;
use uts_wire::packet::*;
use uts_wire::*;

#[derive(Deserialize)]
struct File {
    vector: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    /// Which parser: frames, packet, body, adaptive, reset, hello, profile.
    parser: String,
    hex: String,
    /// What it reads as, in Rust's debug form.
    value: Option<String>,
    error: Option<Fault>,
    /// For `adaptive`: the length of the receiver's connection ids.
    cid_len: Option<usize>,
    /// For `adaptive` and `packet`: the header protection mask.
    mask: Option<String>,
}

#[derive(Deserialize, Debug, PartialEq)]
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

/// Reads `bytes`, and returns the value in debug form and its encoding.
fn read_and_emit(vector: &Vector, bytes: &[u8]) -> Result<(String, Vec<u8>), WireError> {
    let mut out = Vec::new();
    let value = match vector.parser.as_str() {
        "frames" => {
            let frames = FrameIter::new(bytes).collect::<Result<Vec<_>, _>>()?;
            frames.iter().for_each(|frame| frame.emit(&mut out));
            frames.iter().map(|frame| format!("{frame:?}")).collect::<Vec<_>>().join("; ")
        }
        "packet" => packet(vector, bytes, &mut out)?,
        "body" => {
            let body = parse_body(bytes)?;
            body.emit(&mut out);
            format!("{body:?}")
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
            format!("{header:?} {number:?} payload {payload:02x?}")
        }
        "reset" => {
            let reset = StatelessReset::parse(bytes)?;
            reset.emit(&mut out)?;
            format!("{reset:02x?}")
        }
        "hello" => {
            let hello = Hello::parse(bytes)?;
            hello.emit(&mut out);
            format!("{hello:?}")
        }
        "profile" => {
            let mut r = Reader::new(bytes);
            let profile = WireProfile::read(&mut r)?;
            r.finish("profile")?;
            profile.emit(&mut out);
            format!("{profile:?}")
        }
        other => panic!("{}: no parser `{other}`", vector.name),
    };
    Ok((value, out))
}

fn packet(vector: &Vector, bytes: &[u8], out: &mut Vec<u8>) -> Result<String, WireError> {
    match parse_header(bytes)? {
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
            Ok(format!("{:?} number {number} sealed {sealed:02x?}", packet.header))
        }
        LongPacket::Retry(retry) => {
            retry.emit(out);
            Ok(format!("{retry:02x?}"))
        }
        LongPacket::VersionRefusal(refusal) => {
            refusal.emit(out);
            Ok(format!("{refusal:02x?}"))
        }
        LongPacket::OtherVersion(other) => {
            // Never emitted: the bytes are the peer's.
            out.extend_from_slice(bytes);
            Ok(format!("{other:02x?}"))
        }
    }
}

/// What disagrees with the vector, if anything does.
fn disagreement(vector: &Vector) -> Option<String> {
    let bytes = unhex(&vector.hex);
    let (name, read) = (&vector.name, read_and_emit(vector, &bytes));
    match (&vector.value, &vector.error, read) {
        (Some(value), None, Ok((found, _))) if *value != found => {
            Some(format!("{name}: reads as\n  {found}\nnot\n  {value}"))
        }
        (Some(_), None, Ok((_, out))) if out != bytes => {
            Some(format!("{name}: emits\n  {out:02x?}\nnot\n  {bytes:02x?}"))
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

#[test]
fn every_vector_reads_and_emits_as_described() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let (mut names, mut valid, mut invalid, mut faults) = (Vec::new(), 0, 0, Vec::new());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("readable");
        let file: File = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for vector in file.vector {
            *(if vector.error.is_some() { &mut invalid } else { &mut valid }) += 1;
            faults.extend(disagreement(&vector));
            assert!(!names.contains(&vector.name), "two vectors are named `{}`", vector.name);
            names.push(vector.name);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(valid >= 30 && invalid >= 15, "{valid} valid and {invalid} invalid vectors: some are gone");
}
