//! The two machines of the thesis, as its tables 3.3, 3.4 and 3.14 measure them: the time between
//! two probes, in microseconds, for single packets.

use core::time::Duration;
use uts_sim::cost::Cost;

/// Bytes of a small and of a full packet in the tables.
const SMALL_BYTES: f64 = 1.0;
const FULL_BYTES: f64 = 1400.0;

/// Delays between each probe and the next: of a packet with 1 byte, of one with 1400 bytes, and of
/// an acknowledgement (0 where none passes). None is from probe 10 to 11, which is the cable.
type Delays = [[f64; 3]; 18];

/// Functions that a TCP has, as columns of table 3.14.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Functions {
    /// Checksums.
    pub has_errors: bool,
    /// A window, slow start, and acknowledgements.
    pub has_flow: bool,
}

impl Functions {
    /// All four, in the order of table 3.14.
    pub const ALL: [(&str, Functions); 4] = [
        ("tcp", Functions { has_errors: true, has_flow: true }),
        ("no-error", Functions { has_errors: false, has_flow: true }),
        ("no-flow", Functions { has_errors: true, has_flow: false }),
        ("neither", Functions { has_errors: false, has_flow: false }),
    ];

    fn column(self) -> usize {
        usize::from(!self.has_errors) + 2 * usize::from(!self.has_flow)
    }
}

/// A machine.
pub struct Machine {
    delays: Delays,
    /// TCP and IP at the sender, probes 5 to 7, and at the receiver, probes 15 to 17: of 1 byte and
    /// of 1400, for each column of table 3.14.
    send: [[f64; 2]; 4],
    receive: [[f64; 2]; 4],
}

/// A 486 of 33 MHz.
pub const I486: Machine = Machine {
    delays: [
        [897.39, 859.17, 0.0],
        [85.80, 101.79, 0.0],
        [358.41, 515.97, 0.0],
        [38.22, 28.47, 0.0],
        [151.71, 384.54, 39.78],
        [153.66, 168.87, 157.56],
        [83.46, 296.01, 125.58],
        [19.11, 11.31, 1.56],
        [42.90, 63.96, 14.43],
        [97.50, 125.58, 94.38],
        [122.46, 127.14, 125.58],
        [193.83, 341.25, 193.83],
        [167.31, 117.00, 155.61],
        [74.10, 64.35, 85.80],
        [382.59, 588.51, 208.26],
        [363.48, 381.03, 0.0],
        [774.93, 1116.96, 0.0],
        [683.67, 652.08, 0.0],
    ],
    send: [[305.4, 553.4], [301.5, 311.2], [301.5, 538.6], [301.1, 314.7]],
    receive: [[456.7, 653.9], [449.3, 448.5], [461.8, 645.1], [443.0, 457.1]],
};

/// A DECstation 5000/240.
pub const MIPS: Machine = Machine {
    delays: [
        [741.76, 755.18, 0.0],
        [87.23, 88.45, 0.0],
        [297.68, 528.87, 0.0],
        [12.51, 8.24, 0.0],
        [89.67, 249.49, 41.18],
        [97.30, 102.18, 107.67],
        [89.06, 356.85, 94.25],
        [12.51, 13.42, 15.56],
        [12.81, 16.47, 10.98],
        [67.71, 78.39, 68.63],
        [74.12, 78.39, 86.31],
        [122.31, 191.85, 119.26],
        [126.58, 96.69, 154.94],
        [52.16, 42.40, 57.65],
        [282.74, 434.93, 173.55],
        [224.18, 225.70, 0.0],
        [418.77, 611.22, 0.0],
        [401.99, 351.67, 0.0],
    ],
    send: [[187.0, 351.7], [180.0, 212.9], [184.5, 348.3], [168.1, 201.0]],
    receive: [[334.9, 477.3], [317.8, 321.2], [332.4, 467.9], [322.1, 311.4]],
};

/// A time for each packet, and one for each byte, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    packet_ns: f64,
    byte_ns: f64,
}

impl Part {
    /// The straight line through both delays. One that falls is level at their mean.
    fn through([small_us, full_us]: [f64; 2]) -> Self {
        if full_us < small_us {
            return Part { packet_ns: 500.0 * (small_us + full_us), byte_ns: 0.0 };
        }
        let byte_ns = 1000.0 * (full_us - small_us) / (FULL_BYTES - SMALL_BYTES);
        Part { packet_ns: 1000.0 * small_us - byte_ns * SMALL_BYTES, byte_ns }
    }

    /// Both, one behind the other.
    pub fn and(self, other: Part) -> Self {
        Part { packet_ns: self.packet_ns + other.packet_ns, byte_ns: self.byte_ns + other.byte_ns }
    }

    /// Of so many bytes, in nanoseconds.
    pub fn of(self, bytes: u32) -> u64 {
        (self.packet_ns + self.byte_ns * f64::from(bytes)).round() as u64
    }

    /// The same as a cost of simulated hosts.
    pub fn cost(self) -> Cost {
        let ns = |value: f64| Duration::from_nanos(value.max(0.0).round() as u64);
        Cost { packet: ns(self.packet_ns), kilobyte: ns(self.byte_ns * 1000.0) }
    }

    /// This without another part; never below nothing.
    pub fn less(self, other: Part) -> Self {
        let (packet_ns, byte_ns) = (self.packet_ns - other.packet_ns, self.byte_ns - other.byte_ns);
        Part { packet_ns: packet_ns.max(0.0), byte_ns: byte_ns.max(0.0) }
    }

    /// This spread over so many packets: bytes take what they take.
    pub fn spread(self, packets: f64) -> Self {
        Part { packet_ns: self.packet_ns / packets, byte_ns: self.byte_ns }
    }

    /// Time of the bytes alone, in nanoseconds.
    pub fn of_bytes(self, bytes: u32) -> u64 {
        (self.byte_ns * f64::from(bytes)).round() as u64
    }
}

impl Machine {
    /// Delays from one probe to another on one side of the cable, in microseconds: of 1 byte, of
    /// 1400 bytes, or of an acknowledgement (`column` 0, 1, 2).
    pub fn delay(&self, from: usize, to: usize, column: usize) -> f64 {
        rows(from, to).map(|row| self.delays[row][column]).sum()
    }

    /// The same as a time for each packet and for each byte.
    pub fn part(&self, from: usize, to: usize) -> Part {
        let line = |row: usize| Part::through([self.delays[row][0], self.delays[row][1]]);
        rows(from, to).map(line).fold(Part::default(), Part::and)
    }

    /// An acknowledgement's, in nanoseconds.
    pub fn of_ack(&self, from: usize, to: usize) -> u64 {
        (self.delay(from, to, 2) * 1000.0).round() as u64
    }

    /// TCP and IP of a packet that is sent.
    pub fn sending(&self, functions: Functions) -> Part {
        Part::through(self.send[functions.column()])
    }

    /// TCP and IP of a packet that is received.
    pub fn receiving(&self, functions: Functions) -> Part {
        Part::through(self.receive[functions.column()])
    }
}

/// Rows of a table between two probes.
fn rows(from: usize, to: usize) -> impl Iterator<Item = usize> {
    let row = |probe: usize| if probe < 10 { probe - 1 } else { probe - 2 };
    row(from)..row(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 3.14 is of the same packets as tables 3.3 and 3.4 (probes 5 to 7, 15 to 17). Of a full
    /// packet that a 486 receives it has 1 us more, in which one of the two is misprinted.
    #[test]
    fn both_tables_of_a_machine_agree() {
        for machine in [&I486, &MIPS] {
            for column in [0, 1] {
                assert!((machine.delay(5, 7, column) - machine.send[0][column]).abs() < 0.1);
                let received = machine.receive[0][column];
                let misprint = if received == 653.9 { 1.0 } else { 0.0 };
                assert!((machine.delay(15, 17, column) + misprint - received).abs() < 0.1);
            }
        }
        let part = I486.part(3, 4);
        assert_eq!((part.of(1), part.of(1400)), (358_410, 515_970));
        assert_eq!(I486.part(1, 2).of(65_536), I486.part(1, 2).of(1), "no copy is made");
        assert_eq!(I486.of_ack(15, 17), 294_060);
    }
}
