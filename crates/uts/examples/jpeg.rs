//! Pictures in partial order: a player of JPEG shows each row of a picture as soon as it and the
//! headers are there, whatever else is missing.
//!
//! The parts of a picture can be ordered in two ways. Either the control data comes in any order,
//! then the rows in any order. Or the first two packets are ordered, and the rest need not be.
//!
//! ```text
//! cargo run --example jpeg
//! ```

use bytes::Bytes;
use std::error::Error;
use std::io::Write;
use uts::{
    After, ConnectOptions, Connection, FlowOptions, Identity, Listener, MessageOptions, Requirements,
    ServerOptions, connect,
};

/// Blocks of 8 by 8 pixels in a row, and rows in a picture.
const COLUMNS: usize = 48;
const ROWS: usize = 12;

/// The order of the parts of a picture.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Control data in any order, then rows in any order.
    ControlFirst,
    /// Two packets in order, then the rest in any order.
    TwoFirst,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for order in [Order::ControlFirst, Order::TwoFirst] {
        run(&mut std::io::stdout(), order).await?;
    }
    Ok(())
}

/// Both ends, in one process.
pub async fn run(out: &mut impl Write, order: Order) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0".parse()?, ServerOptions::new(Identity::generate()?))?;
    let target = listener.local_addr().to_string();
    let mut requirements = Requirements::messages();
    requirements.set("preserveOrder", "avoid")?;
    requirements.set("uts.profile.sequencing", "partial-order")?;
    let options = ConnectOptions::pinned(listener.fingerprint()).requirements(requirements);
    let (connection, accepted) = tokio::join!(connect(&target, options), listener.accept());
    let (connection, accepted) = (connection?, accepted.ok_or("the listener was closed")?);
    let sent = async { send(&connection, order).await };
    let ((), player) = tokio::try_join!(sent, play(&accepted))?;
    writeln!(out, "{order:?}: {ROWS} rows shown, the first after {} parts", player.parts_before)?;
    for row in &player.rows {
        writeln!(out, "{row}")?;
    }
    connection.close(0, "done").await;
    Ok(())
}

/// Sends a picture, each part as a message that waits for what it needs and for nothing else.
async fn send(connection: &Connection, order: Order) -> Result<(), Box<dyn Error>> {
    let (mut flow, _recv) = connection.open_flow(FlowOptions::default()).await?.split();
    let headers: Vec<Vec<u8>> = match order {
        Order::ControlFirst => coding::headers(COLUMNS, ROWS).into(),
        Order::TwoFirst => {
            let [tables @ .., frame, scan] = coding::headers(COLUMNS, ROWS);
            vec![tables.concat(), [frame, scan].concat()]
        }
    };
    let position = |flow: &uts::SendFlow| flow.position().ok_or("the connection is over");
    let from = position(&flow)?;
    for header in headers {
        let after = match order {
            Order::ControlFirst => After::NOTHING,
            Order::TwoFirst => After::Positions { from, to: position(&flow)? },
        };
        let options = MessageOptions { after, ..MessageOptions::default() };
        flow.send_message(header.into(), options).await?;
    }
    let options = MessageOptions {
        after: After::Positions { from, to: position(&flow)? },
        ..MessageOptions::default()
    };
    for row in 0..ROWS {
        let shades: Vec<u8> = (0..COLUMNS).map(|column| shade(row, column)).collect();
        flow.send_message(coding::row(row as u8, &shades), options).await?;
    }
    flow.finished().await?;
    Ok(())
}

/// A ball, lit from above.
fn shade(row: usize, column: usize) -> u8 {
    let (x, y) = (column as f64 / 24.0 - 1.0, row as f64 / 6.0 - 0.92);
    let height = 1.0 - x * x - y * y;
    if height <= 0.0 { 20 } else { (90.0 + 80.0 * height.sqrt() - 60.0 * y) as u8 }
}

/// The player's screen.
struct Player {
    rows: Vec<String>,
    /// Parts that came before the first row was shown.
    parts_before: usize,
}

async fn play(connection: &Connection) -> Result<Player, Box<dyn Error>> {
    let mut flow = connection.accept_flow().await.ok_or("the connection ended")?;
    let mut decoder = coding::Decoder::default();
    let mut player = Player { rows: vec![String::new(); ROWS], parts_before: 0 };
    let mut is_shown = false;
    while let Some(part) = flow.recv_message().await? {
        match decoder.take(&part)? {
            None => player.parts_before += usize::from(!is_shown),
            Some((row, shades)) => {
                is_shown = true;
                let line = player.rows.get_mut(row).ok_or("a row beyond the picture")?;
                let signs = b" .:-=+*#%@";
                *line =
                    shades.iter().map(|shade| char::from(signs[usize::from(*shade) * 10 / 256])).collect();
            }
        }
    }
    Ok(player)
}

/// As much of JPEG (ISO 10918-1) as this picture needs: grey blocks, and a restart interval for
/// each row, which is decoded by itself.
pub mod coding {
    use super::Bytes;

    /// Headers: quantisation, Huffman tables of DC and AC, the frame, the scan. Before them and
    /// behind the rows a file has two bytes each.
    pub fn headers(columns: usize, rows: usize) -> [Vec<u8>; 5] {
        let segment = |marker: u8, body: &[u8]| {
            let length = (body.len() as u16 + 2).to_be_bytes();
            [&[0xff, marker], &length[..], body].concat()
        };
        // All by 8: a coefficient of DC is then a shade.
        let quantisation = [&[0][..], &[8; 64]].concat();
        // DC: nine lengths of differences, in four bits each. AC: the end of a block, in one bit.
        let lengths = |place: usize, count: u8| {
            let mut lengths = [0; 16];
            lengths[place - 1] = count;
            lengths
        };
        let dc = [&[0x00][..], &lengths(4, 9), &[0, 1, 2, 3, 4, 5, 6, 7, 8]].concat();
        let ac = [&[0x10][..], &lengths(1, 1), &[0]].concat();
        let size = [(rows * 8) as u16, (columns * 8) as u16].map(u16::to_be_bytes);
        let frame = [&[8][..], &size[0], &size[1], &[1, 1, 0x11, 0]].concat();
        let interval = segment(0xdd, &(columns as u16).to_be_bytes());
        let scan = [interval, segment(0xda, &[1, 1, 0x00, 0, 63, 0])].concat();
        [segment(0xdb, &quantisation), segment(0xc4, &dc), segment(0xc4, &ac), segment(0xc0, &frame), scan]
    }

    /// A row as a message: its number, and a restart interval.
    pub fn row(number: u8, shades: &[u8]) -> Bytes {
        let (mut bits, mut before) = (Vec::new(), 0i32);
        let mut put = |value: u32, count: u32| bits.extend((0..count).rev().map(|bit| value >> bit & 1 == 1));
        for shade in shades {
            let dc = i32::from(*shade) - 128;
            let difference = dc - core::mem::replace(&mut before, dc);
            let length = 32 - difference.unsigned_abs().leading_zeros();
            put(length, 4);
            // A negative one is one less, of which the low bits are taken.
            put((difference - i32::from(difference < 0)).cast_unsigned() & ((1 << length) - 1), length);
            put(0, 1);
        }
        let mut message = vec![number];
        for byte in bits.chunks(8) {
            // The last is filled with ones.
            let byte =
                (0..8).fold(0u8, |sum, bit: usize| sum << 1 | u8::from(*byte.get(bit).unwrap_or(&true)));
            message.push(byte);
            if byte == 0xff {
                message.push(0);
            }
        }
        message.into()
    }

    /// State that headers have set so far.
    #[derive(Debug, Default)]
    pub struct Decoder {
        columns: Option<usize>,
        quantiser: Option<i32>,
        /// Bits of a code of DC, and of AC.
        lengths: [Option<u32>; 2],
        has_scan: bool,
    }

    impl Decoder {
        /// Takes a part. Returns the number and the shades of a row.
        pub fn take(&mut self, part: &[u8]) -> Result<Option<(usize, Vec<u8>)>, String> {
            if part.first() != Some(&0xff) {
                return self.row(part).map(Some);
            }
            let mut rest = part;
            while let [0xff, marker, high, low, ..] = *rest {
                let end = 2 + usize::from(u16::from_be_bytes([high, low]));
                let body = rest.get(4..end).ok_or("a segment that is cut off")?;
                self.header(marker, body).ok_or_else(|| format!("a segment {marker:#x} that is wrong"))?;
                rest = &rest[end..];
            }
            Ok(None)
        }

        fn header(&mut self, marker: u8, body: &[u8]) -> Option<()> {
            match marker {
                0xdb => self.quantiser = Some(i32::from(*body.get(1)?)),
                0xc4 => {
                    let table = self.lengths.get_mut(usize::from(body.first()? >> 4))?;
                    let place = body.get(1..17)?.iter().position(|count| *count > 0)?;
                    *table = Some(place as u32 + 1);
                }
                0xc0 => {
                    self.columns = Some(usize::from(u16::from_be_bytes([*body.get(3)?, *body.get(4)?])) / 8)
                }
                0xda => self.has_scan = true,
                _ => {}
            }
            Some(())
        }

        fn row(&self, part: &[u8]) -> Result<(usize, Vec<u8>), String> {
            let (Some(columns), Some(quantiser), [Some(dc_bits), Some(ac_bits)], true) =
                (self.columns, self.quantiser, self.lengths, self.has_scan)
            else {
                return Err("a row before its headers".into());
            };
            let [number, data @ ..] = part else { return Err("an empty part".into()) };
            let stuffed = |at: &usize| *at > 0 && data[*at] == 0 && data[at - 1] == 0xff;
            let bytes = (0..data.len()).filter(|at| !stuffed(at)).map(|at| data[at]);
            let mut bits = bytes.flat_map(|byte| (0..8).rev().map(move |bit| i32::from(byte >> bit & 1)));
            let mut take = |count: u32| {
                (0..count)
                    .try_fold(0, |value, _| Some(value << 1 | bits.next()?))
                    .ok_or("a row that is cut off")
            };
            let (mut shades, mut dc) = (Vec::new(), 0);
            for _ in 0..columns {
                let length = take(dc_bits)?.cast_unsigned();
                let value = take(length)?;
                let is_negative = length > 0 && value >> (length - 1) == 0;
                dc += if is_negative { value - (1 << length) + 1 } else { value };
                take(ac_bits)?;
                shades.push((dc * quantiser / 8 + 128).clamp(0, 255) as u8);
            }
            Ok((usize::from(*number), shades))
        }
    }
}
