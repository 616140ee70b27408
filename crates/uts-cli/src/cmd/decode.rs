//! `uts decode`: packets of a capture in words.

use super::Failure;
use crate::args::DecodeArgs;
use crate::ui::lines;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use uts_decode::capture::Item;
use uts_decode::{Capture, CaptureError, Decoder, KeyLog, Row};

/// Prints a line for each packet of UTS in a capture.
///
/// # Errors
/// [`Failure::Failed`] when the key log or the capture cannot be read, or holds nothing of UTS.
pub fn run(args: &DecodeArgs) -> Result<(), Failure> {
    let shown = args.capture.display();
    let mut decoder = Decoder::new(keys(args.keylog.as_deref())?);
    let file = match args.capture.as_os_str() == "-" {
        true => uts_end::output::input_handle().map(File::from),
        false => File::open(&args.capture),
    };
    let file = file.map_err(|error| failed(format!("{shown}: {error}")))?;
    let of_capture = |error: CaptureError| failed(format!("{shown}: {error}"));
    let mut capture = Capture::open(BufReader::new(file)).map_err(of_capture)?;
    let (mut datagrams, mut unread) = (0_u64, 0_u64);
    loop {
        match capture.next_item().map_err(of_capture)? {
            None => break,
            Some(Item::KeyLog(text)) => {
                decoder.add_keys(&text).map_err(|error| failed(format!("{shown}: {error}")))?;
            }
            Some(Item::Datagram(datagram)) => {
                datagrams += 1;
                let rows = decoder.decode(&datagram);
                unread += rows.iter().filter(|row| row.unread.is_some()).count() as u64;
                rows.iter().filter(|row| !args.exchanges || row.is_of_exchange()).for_each(|row| {
                    print(row, args.json);
                });
            }
        }
    }
    if decoder.connections() == 0 {
        return Err(failed(match datagrams {
            0 => format!("{shown}: no UDP datagrams"),
            _ => format!("{shown}: no beginning of a connection of UTS in {datagrams} UDP datagrams"),
        }));
    }
    if unread > 0 {
        lines::tell(format_args!("{unread} packets could not be read; their lines say why"));
    }
    Ok(())
}

fn failed(line: String) -> Failure {
    Failure::Failed(line)
}

/// The key log that is named, by the option or by the environment; an empty one if none is.
fn keys(file: Option<&Path>) -> Result<KeyLog, Failure> {
    let named = std::env::var_os("SSLKEYLOGFILE").filter(|file| !file.is_empty());
    let Some(file) = file.or(named.as_deref().map(Path::new)) else { return Ok(KeyLog::default()) };
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| failed(format!("{shown}: {error}")))?;
    KeyLog::parse(&text).map_err(|error| failed(format!("{shown}: {error}")))
}

fn print(row: &Row, as_json: bool) {
    match as_json {
        true => lines::print_json(serde_json::json!(row)),
        false => lines::print(&row.to_string()),
    }
}
