//! Delays between the points of figure 3.4, as A. Richards published them in "The Universal
//! Transport System" (1995): tables 3.3 and 3.4, averages of 400 packets each under Mach 3.0.

/// Delays of a machine, in us: a row for each stage in the order of
/// [`STAGES`](super::budget::STAGES), with packets of 1 byte, of 1400 bytes, and acknowledgements,
/// which have no delay at the ends of an application.
pub type Delays = [(f64, f64, Option<f64>); 18];

/// A machine, and its table.
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    /// The table of the thesis.
    pub table: &'static str,
    /// Delays that it printed.
    pub delays: Delays,
}

/// Both machines of the thesis.
pub const MACHINES: [Machine; 2] = [
    Machine {
        name: "i486",
        table: "3.3",
        delays: [
            (897.39, 859.17, None),
            (85.80, 101.79, None),
            (358.41, 515.97, None),
            (38.22, 28.47, None),
            (151.71, 384.54, Some(39.78)),
            (153.66, 168.87, Some(157.56)),
            (83.46, 296.01, Some(125.58)),
            (19.11, 11.31, Some(1.56)),
            (42.90, 63.96, Some(14.43)),
            (97.50, 125.58, Some(94.38)),
            (122.46, 127.14, Some(125.58)),
            (193.83, 341.25, Some(193.83)),
            (167.31, 117.00, Some(155.61)),
            (74.10, 64.35, Some(85.80)),
            (382.59, 588.51, Some(208.26)),
            (363.48, 381.03, None),
            (774.93, 1116.96, None),
            (683.67, 652.08, None),
        ],
    },
    Machine {
        name: "DEC 5000",
        table: "3.4",
        delays: [
            (741.76, 755.18, None),
            (87.23, 88.45, None),
            (297.68, 528.87, None),
            (12.51, 8.24, None),
            (89.67, 249.49, Some(41.18)),
            (97.30, 102.18, Some(107.67)),
            (89.06, 356.85, Some(94.25)),
            (12.51, 13.42, Some(15.56)),
            (12.81, 16.47, Some(10.98)),
            (67.71, 78.39, Some(68.63)),
            (74.12, 78.39, Some(86.31)),
            (122.31, 191.85, Some(119.26)),
            (126.58, 96.69, Some(154.94)),
            (52.16, 42.40, Some(57.65)),
            (282.74, 434.93, Some(173.55)),
            (224.18, 225.70, None),
            (418.77, 611.22, None),
            (401.99, 351.67, None),
        ],
    },
];
