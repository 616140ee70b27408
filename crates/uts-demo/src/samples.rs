//! Readers of the tables that the relay and `uts cp --trace` write.

use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use uts_record::demo::{Points, Queue, Trace};

/// Seconds that are kept of the time before the origin, so that series begin at it.
const LEAD_S: f64 = 0.02;

/// Reads the relay's samples of the forward link (see [`uts_relay`]), from just before `origin_s`,
/// which becomes 0, to `end_s` after it.
///
/// # Errors
/// The file cannot be read, or is not such a table.
pub(super) fn read_queue(path: &Path, origin_s: f64, end_s: f64) -> Result<Queue> {
    let mut queue = Queue::default();
    let columns = ["t_s", "dir", "queue_packets", "dropped_queue", "dropped_loss", "bytes_delivered"];
    read_table(path, columns, |[t_s, dir, packets, dropped_queue, dropped_loss, delivered]| {
        if dir != "fwd" {
            return Some(());
        }
        let t_s = rounded(finite(t_s)? - origin_s);
        if t_s < -LEAD_S || t_s > end_s {
            return Some(());
        }
        queue.t_s.push(t_s);
        queue.packets.push(packets.parse().ok()?);
        queue.dropped_queue.push(dropped_queue.parse().ok()?);
        queue.dropped_loss.push(dropped_loss.parse().ok()?);
        queue.bytes_delivered.push(delivered.parse().ok()?);
        Some(())
    })?;
    Ok(queue)
}

/// Reads a trace of packets: `t_s,kind,number,bytes,flow,position` with kinds `sent`, `acked`,
/// `lost` and `repeat`; others are passed over. Of several flows the one with most packets is kept,
/// with all packets that belong to none. `t_s` plus `offset_s` is the time that is kept.
///
/// # Errors
/// The file cannot be read, or is not such a table.
pub(super) fn read_trace(path: &Path, offset_s: f64) -> Result<Trace> {
    let mut rows = Vec::new();
    let mut flows: HashMap<String, u64> = HashMap::new();
    let columns = ["t_s", "kind", "number", "flow", "position"];
    read_table(path, columns, |[t_s, kind, number, flow, position]| {
        let position: Option<u64> = match position {
            "" => None,
            text => Some(text.parse().ok()?),
        };
        if position.is_some() {
            *flows.entry(flow.to_owned()).or_default() += 1;
        }
        rows.push((finite(t_s)?, kind.to_owned(), number.parse::<u64>().ok()?, flow.to_owned(), position));
        Some(())
    })?;
    let busiest = flows.iter().max_by_key(|(flow, packets)| (**packets, *flow)).map(|(flow, _)| flow);
    let mut trace = Trace::default();
    for (t_s, kind, number, flow, position) in rows {
        let points: &mut Points = match kind.as_str() {
            "sent" => &mut trace.sent,
            "acked" => &mut trace.acked,
            "lost" => &mut trace.lost,
            "repeat" => &mut trace.repeat,
            _ => continue,
        };
        points.t_s.push(rounded(t_s + offset_s));
        points.number.push(number);
        points.position.push(position.filter(|_| busiest == Some(&flow)));
    }
    Ok(trace)
}

/// Hands the named columns of each row to `take`, which says whether it could read them.
fn read_table<const N: usize>(
    path: &Path,
    columns: [&str; N],
    mut take: impl FnMut([&str; N]) -> Option<()>,
) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = BufReader::new(file).lines();
    let header = lines.next().transpose()?.unwrap_or_default();
    let names: Vec<&str> = header.trim().split(',').collect();
    let mut places = [0; N];
    for (place, column) in places.iter_mut().zip(columns) {
        *place = names
            .iter()
            .position(|name| *name == column)
            .with_context(|| format!("{} has no column `{column}`", path.display()))?;
    }
    for (line, number) in lines.zip(2..) {
        let line = line.with_context(|| format!("cannot read {}", path.display()))?;
        let fields: Vec<&str> = line.trim().split(',').collect();
        let values = places.map(|place| fields.get(place).copied());
        let complete = values.iter().all(Option::is_some);
        if !complete || take(values.map(Option::unwrap_or_default)).is_none() {
            bail!("{}:{number}: cannot make sense of `{line}`", path.display());
        }
    }
    Ok(())
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// To 10 us, which is finer than a thread is woken.
pub(super) fn rounded(t_s: f64) -> f64 {
    (t_s * 1e5).round() / 1e5
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn the_busiest_flow_is_kept() {
        let file = file(
            "t_s,kind,number,bytes,flow,position\n0.5,sent,1,1200,2,0\n0.6,sent,2,40,0,0\n\
             0.7,repeat,3,1200,2,0\n0.8,acked,3,1200,,\n0.9,lost,1,1200,2,0\n1.0,weather,1,,,\n",
        );
        let trace = read_trace(file.path(), 10.0).unwrap();
        assert_eq!(trace.sent.t_s, [10.5, 10.6]);
        assert_eq!(trace.sent.position, [Some(0), None]);
        assert_eq!((trace.repeat.number, trace.lost.t_s), (vec![3], vec![10.9]));
        assert_eq!(trace.acked.position, [None]);
    }

    #[test]
    fn the_forward_link_is_kept() {
        let file = file(
            "t_s,dir,queue_packets,queue_bytes,packets_in,delivered,dropped_queue,dropped_loss,bytes_delivered,\
             rate_bps\n0.20,fwd,0,0,0,0,0,0,0,50000000\n1.00,fwd,3,900,9,6,1,2,700,50000000\n9.00,fwd,0,0,9,6,1,2,\
             900,50000000\n1.00,bwd,1,90,9,6,0,0,70,\n",
        );
        let queue = read_queue(file.path(), 0.25, 5.0).unwrap();
        assert_eq!((queue.t_s, queue.packets, queue.bytes_delivered), (vec![0.75], vec![3], vec![700]));
    }

    #[test]
    fn what_is_no_such_table_is_refused() {
        let refused = |text: &str| read_trace(file(text).path(), 0.0).unwrap_err().to_string();
        assert!(refused("").ends_with("has no column `t_s`"));
        let header = "t_s,kind,number,bytes,flow,position\n";
        assert!(
            refused(&format!("{header}1,sent,x,1,1,1\n"))
                .ends_with(":2: cannot make sense of `1,sent,x,1,1,1`")
        );
        assert!(refused(&format!("{header}1,sent\n")).contains("cannot make sense"));
        assert!(refused(&format!("{header}inf,sent,1,1,1,1\n")).contains("cannot make sense"));
    }
}
