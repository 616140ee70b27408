"""Errors, each a kind of the standard one that is like it."""

from __future__ import annotations


class Error(Exception):
    """What the library says, and its code by name, such as ``UTS_ECLOSED``."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class PropertyError(Error, ValueError):
    """There is no such property, no such value, or it contradicts others."""


class AddressError(Error, OSError):
    """The address is none, or the host has none."""


class UnreachableError(Error, ConnectionError):
    """Nobody answers."""


class UntrustedError(Error, ConnectionError):
    """The peer is not the one that was meant, or is not known."""


class RefusedError(Error, ConnectionRefusedError):
    """The peer does not let this end in."""


class ClosedError(Error, ConnectionError):
    """The connection has ended."""


class ResetError(Error, ConnectionResetError):
    """The peer has given the flow up: what was read is not the whole."""


class StoppedError(Error, BrokenPipeError):
    """The peer wants no more of the flow."""


class MessageError(Error, ValueError):
    """The message is too large, or damaged, or there are bytes where a message was asked for."""


class SystemFailure(Error, OSError):
    """A file, a socket or a thread cannot be had."""


class HandleClosed(Error, ValueError):
    """It was closed."""


OF_CODE: dict[str, type[Error]] = {
    "UTS_EPROPERTY": PropertyError,
    "UTS_EADDRESS": AddressError,
    "UTS_EUNREACHABLE": UnreachableError,
    "UTS_EUNTRUSTED": UntrustedError,
    "UTS_EREFUSED": RefusedError,
    "UTS_ENOTCONN": ClosedError,
    "UTS_ECLOSED": ClosedError,
    "UTS_ERESET": ResetError,
    "UTS_ESTOPPED": StoppedError,
    "UTS_EMESSAGE": MessageError,
    "UTS_ESYSTEM": SystemFailure,
    "UTS_EHANDLE": HandleClosed,
}
