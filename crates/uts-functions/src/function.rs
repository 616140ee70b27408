//! The functions: the duties that a transport may have, with their numbers and names.

macro_rules! functions {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)+) => {
        /// A duty that a transport may have. Numbers are those of `spec/functions.toml` and of the
        /// wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Function {
            $($(#[$doc])* $variant = $number,)+
        }

        impl Function {
            /// All functions, in the order in which a prediction passes through them.
            pub const ALL: &[Function] = &[$(Function::$variant),+];

            /// Number of functions.
            pub const COUNT: usize = Self::ALL.len();

            /// The name in profiles, options and reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Function::$variant => $name,)+
                }
            }

            /// The function of that number.
            pub const fn from_number(number: u8) -> Option<Function> {
                match number {
                    $($number => Some(Function::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

functions! {
    /// Set-up of a connection.
    Establishment = 0, "establishment";
    /// Change of messages before they are sent (compression, conversion).
    Presentation = 1, "presentation";
    /// Form of data at the receiver: messages or bytes.
    Segmentation = 2, "segmentation";
    /// Order in which data is handed over.
    Sequencing = 3, "sequencing";
    /// Repair of losses by redundancy sent ahead.
    Fec = 4, "fec";
    /// Repetition of what was lost.
    Retransmission = 5, "retransmission";
    /// Reports of the receiver on what arrived.
    Acknowledgement = 6, "acknowledgement";
    /// Time-outs that follow from round trips.
    Timing = 7, "timing";
    /// Keeping the sender from overrunning the receiver.
    Flow = 8, "flow";
    /// Spacing of packets.
    Rate = 9, "rate";
    /// Keeping the sender from overrunning the path.
    Congestion = 10, "congestion";
    /// Finding damaged packets.
    Detection = 11, "detection";
    /// Secrecy and authenticity of packets.
    Protection = 12, "protection";
    /// Telling which packets in flight are lost.
    Finding = 13, "finding";
    /// When messages are handed over, by the time at which they were made.
    Playout = 14, "playout";
}

impl Function {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The function of that name.
    pub fn from_name(name: &str) -> Option<Function> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// True if a connection direction performs this function once for all its flows. The others
    /// belong to the flow.
    pub const fn is_shared(self) -> bool {
        matches!(
            self,
            Function::Establishment
                | Function::Acknowledgement
                | Function::Timing
                | Function::Rate
                | Function::Congestion
                | Function::Protection
                | Function::Finding
        )
    }

    /// True if the sender performs this function by itself: the receiver cannot tell which
    /// mechanism does it.
    pub const fn is_senders_own(self) -> bool {
        matches!(self, Function::Timing | Function::Rate | Function::Congestion | Function::Finding)
    }
}
