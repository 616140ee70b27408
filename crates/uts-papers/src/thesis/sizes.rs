//! Sizes of the thesis's protocol server by the way in which functions are chosen (table 4.4), and
//! the bytes that a connection takes to have its functions exchanged. The latter are types and
//! allocations of a 64-bit machine, the same in each run.

use crate::engine::carried;
use crate::paper::{Series, push};
use anyhow::{Context, Result};
use core::time::Duration;
use uts_engine::ConnectionConfig;

/// Bytes that a connection has carried before it rests, and time that nothing happens.
const CARRIED_BYTES: u64 = 200_000;
const RESTS_AFTER: Duration = Duration::from_secs(10);

/// Parts of table 4.4 that the executable of the dynamically linked server consists of: the server
/// with the linker, and both forms of error control, of flow control at the sender and at the
/// receiver.
pub const PARTS: [f64; 7] = [196_689.0, 829.0, 120.0, 4658.0, 4551.0, 6201.0, 5601.0];
/// The linker's share of the first.
pub const LINKER: f64 = 22_486.0;
/// The server with embedded conditions.
pub const EMBEDDED: f64 = 185_192.0;
/// The server linked statically.
pub const STATIC: f64 = 189_886.0;
/// The server linked dynamically, as the table has it: the parts add up to 9 more.
pub const DYNAMIC: f64 = 218_640.0;

/// Sums and differences of table 4.4, in bytes and per cent.
///
/// # Errors
/// None.
pub fn published() -> Result<Series> {
    let values = [
        ("total", PARTS.iter().sum()),
        ("without-linker", PARTS[0] - LINKER),
        ("static-more", STATIC - EMBEDDED),
        ("static-percent", (STATIC / EMBEDDED - 1.0) * 100.0),
        ("dynamic-more", DYNAMIC - STATIC),
        ("dynamic-percent", (DYNAMIC / STATIC - 1.0) * 100.0),
    ];
    let mut series = Series::new();
    push(&mut series, values);
    Ok(series)
}

/// Bytes of a connection at rest at each end: all of it, and its profiles with their exchanges.
///
/// # Errors
/// The connection does not come to be, or does not carry data.
pub fn at_rest() -> Result<Series> {
    let config = ConnectionConfig { idle_timeout: Duration::ZERO, ..ConnectionConfig::default() };
    let (mut pair, handle, flow) = carried(config, Duration::from_millis(5), CARRIED_BYTES)?;
    pair.client.connection(handle).context("the connection is gone")?.finish(flow);
    pair.pass(pair.now + RESTS_AFTER)?;
    let mut series = Series::new();
    for (side, end) in [&pair.client, &pair.server].into_iter().enumerate() {
        let handle = end.handles().next().context("there is no connection")?;
        let connection = end.peek(handle).context("the connection is gone")?;
        let parts = connection.memory_parts();
        let profiles = parts.iter().find(|(part, _)| *part == "epochs").context("no part has profiles")?;
        let [total, profiles] = [connection.memory_bytes(), profiles.1].map(|bytes| bytes as f64);
        push(&mut series, [("side", side as f64), ("total", total), ("profiles", profiles)]);
    }
    Ok(series)
}
