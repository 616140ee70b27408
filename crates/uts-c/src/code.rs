//! Codes of results, and what the library's errors are among them.

use core::ffi::CStr;
use core::fmt;
use std::io;
use uts::requirements::RequirementError;
use uts::{
    CloseReason, ConnectError, FingerprintError, FlowError, IdentityError, KnownHostsError, ListenError,
    PropertyError, ReadError, WriteError,
};

/// Results of functions. What is negative is an error, and uts_error() has its text.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum uts_code {
    /// Done.
    UTS_OK = 0,
    /// Not yet, and the call was not to wait. An entry of the context's queue says when to call
    /// again.
    UTS_AGAIN = 1,
    /// Nothing more comes: the flow, the connection or the listener has ended in order.
    UTS_END = 2,
    /// An argument cannot be: NULL, not UTF-8, out of range.
    UTS_EINVAL = -1,
    /// The handle is of another kind, or was closed, also while the call waited.
    UTS_EHANDLE = -2,
    /// Another thread is in the same call with this handle.
    UTS_EBUSY = -3,
    /// The time that was given has passed.
    UTS_ETIMEDOUT = -4,
    /// The memory that was given is too small. Nothing was taken.
    UTS_ETOOSMALL = -5,
    /// No such property, no such value, or it contradicts others.
    UTS_EPROPERTY = -6,
    /// The address is none, or the host has none.
    UTS_EADDRESS = -7,
    /// Nobody answers.
    UTS_EUNREACHABLE = -8,
    /// The peer is not the one that was meant, or is not known.
    UTS_EUNTRUSTED = -9,
    /// The peer does not let this end in.
    UTS_EREFUSED = -10,
    /// The connection is not established yet.
    UTS_ENOTCONN = -11,
    /// The connection has ended.
    UTS_ECLOSED = -12,
    /// The peer has reset the flow.
    UTS_ERESET = -13,
    /// The peer wants no more of the flow.
    UTS_ESTOPPED = -14,
    /// This end has ended the flow.
    UTS_EFINISHED = -15,
    /// The message is too large, or damaged, or there are bytes where a message was asked for.
    UTS_EMESSAGE = -16,
    /// A file, a socket or a thread cannot be had.
    UTS_ESYSTEM = -17,
    /// A fault of the library, which was kept from the program.
    UTS_EPANIC = -18,
}

use uts_code::*;

impl uts_code {
    /// All of them, for who reads numbers.
    pub const ALL: [uts_code; 21] = [
        UTS_OK,
        UTS_AGAIN,
        UTS_END,
        UTS_EINVAL,
        UTS_EHANDLE,
        UTS_EBUSY,
        UTS_ETIMEDOUT,
        UTS_ETOOSMALL,
        UTS_EPROPERTY,
        UTS_EADDRESS,
        UTS_EUNREACHABLE,
        UTS_EUNTRUSTED,
        UTS_EREFUSED,
        UTS_ENOTCONN,
        UTS_ECLOSED,
        UTS_ERESET,
        UTS_ESTOPPED,
        UTS_EFINISHED,
        UTS_EMESSAGE,
        UTS_ESYSTEM,
        UTS_EPANIC,
    ];

    /// Its name.
    pub fn name(self) -> &'static CStr {
        match self {
            UTS_OK => c"UTS_OK",
            UTS_AGAIN => c"UTS_AGAIN",
            UTS_END => c"UTS_END",
            UTS_EINVAL => c"UTS_EINVAL",
            UTS_EHANDLE => c"UTS_EHANDLE",
            UTS_EBUSY => c"UTS_EBUSY",
            UTS_ETIMEDOUT => c"UTS_ETIMEDOUT",
            UTS_ETOOSMALL => c"UTS_ETOOSMALL",
            UTS_EPROPERTY => c"UTS_EPROPERTY",
            UTS_EADDRESS => c"UTS_EADDRESS",
            UTS_EUNREACHABLE => c"UTS_EUNREACHABLE",
            UTS_EUNTRUSTED => c"UTS_EUNTRUSTED",
            UTS_EREFUSED => c"UTS_EREFUSED",
            UTS_ENOTCONN => c"UTS_ENOTCONN",
            UTS_ECLOSED => c"UTS_ECLOSED",
            UTS_ERESET => c"UTS_ERESET",
            UTS_ESTOPPED => c"UTS_ESTOPPED",
            UTS_EFINISHED => c"UTS_EFINISHED",
            UTS_EMESSAGE => c"UTS_EMESSAGE",
            UTS_ESYSTEM => c"UTS_ESYSTEM",
            UTS_EPANIC => c"UTS_EPANIC",
        }
    }
}

/// Reason for which a function has not done what it was called for.
#[derive(Debug)]
pub struct Failure {
    /// Its code.
    pub code: uts_code,
    /// The same in words; empty for what is no error.
    pub text: String,
}

/// Result of what a function does.
pub type Result<T> = core::result::Result<T, Failure>;

impl Failure {
    /// An error.
    pub fn new(code: uts_code, text: impl fmt::Display) -> Self {
        Failure { code, text: text.to_string() }
    }

    /// An argument that cannot be.
    pub fn argument(text: impl fmt::Display) -> Self {
        Self::new(UTS_EINVAL, text)
    }

    /// Something that the system does not give.
    pub fn system(what: &str, error: &io::Error) -> Self {
        Self::new(UTS_ESYSTEM, format_args!("{what}: {}", uts::printable::words(error)))
    }

    /// Not yet.
    pub fn again() -> Self {
        Failure { code: UTS_AGAIN, text: String::new() }
    }

    /// Nothing more comes.
    pub fn end() -> Self {
        Failure { code: UTS_END, text: String::new() }
    }
}

impl From<CloseReason> for Failure {
    fn from(reason: CloseReason) -> Self {
        Failure::new(UTS_ECLOSED, reason)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let code = match &error {
            ConnectError::Address { .. } | ConnectError::NoSuchHost { .. } => UTS_EADDRESS,
            ConnectError::Socket { .. } => UTS_ESYSTEM,
            ConnectError::Unreachable { .. }
            | ConnectError::NoAnswer { .. }
            | ConnectError::Unconfirmed { .. }
            | ConnectError::NoneAnswers { .. } => UTS_EUNREACHABLE,
            ConnectError::Untrusted(_) => UTS_EUNTRUSTED,
            ConnectError::KeyRefused { .. } => UTS_EREFUSED,
            ConnectError::Setup(_) => UTS_EPROPERTY,
            _ => UTS_ECLOSED,
        };
        Failure::new(code, error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        let code = match &error {
            WriteError::Stopped(_) => UTS_ESTOPPED,
            WriteError::Refused(_) | WriteError::NotExpedited => UTS_EPROPERTY,
            WriteError::Finished => UTS_EFINISHED,
            WriteError::TooLarge { .. } => UTS_EMESSAGE,
            _ => UTS_ECLOSED,
        };
        Failure::new(code, error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        let code = match &error {
            ReadError::Reset(_) => UTS_ERESET,
            // Who reads on behind the end is told the same again.
            ReadError::Ended => return Failure::end(),
            ReadError::NotMessages | ReadError::Damaged(_) | ReadError::RightTo { .. } => UTS_EMESSAGE,
            _ => UTS_ECLOSED,
        };
        Failure::new(code, error)
    }
}

/// Error of reading and writing bytes: one of a flow, as one of input and output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let inner = error.get_ref();
        if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<WriteError>()) {
            return error.clone().into();
        }
        if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<ReadError>()) {
            return error.clone().into();
        }
        let code = if error.kind() == io::ErrorKind::InvalidData { UTS_EMESSAGE } else { UTS_ESYSTEM };
        Failure::new(code, uts::printable::words(&error))
    }
}

impl From<FlowError> for Failure {
    fn from(error: FlowError) -> Self {
        let code = match &error {
            FlowError::Closed(_) => UTS_ECLOSED,
            _ => UTS_EPROPERTY,
        };
        Failure::new(code, error)
    }
}

impl From<PropertyError> for Failure {
    fn from(error: PropertyError) -> Self {
        let code = match &error {
            PropertyError::Closed(_) => UTS_ECLOSED,
            _ => UTS_EPROPERTY,
        };
        Failure::new(code, error)
    }
}

impl From<RequirementError> for Failure {
    fn from(error: RequirementError) -> Self {
        Failure::new(UTS_EPROPERTY, error)
    }
}

impl From<FingerprintError> for Failure {
    fn from(error: FingerprintError) -> Self {
        Failure::new(UTS_EPROPERTY, error)
    }
}

impl From<IdentityError> for Failure {
    fn from(error: IdentityError) -> Self {
        Failure::new(UTS_ESYSTEM, error)
    }
}

impl From<KnownHostsError> for Failure {
    fn from(error: KnownHostsError) -> Self {
        Failure::new(UTS_ESYSTEM, error)
    }
}

impl From<ListenError> for Failure {
    fn from(error: ListenError) -> Self {
        Failure::new(UTS_ESYSTEM, error)
    }
}
