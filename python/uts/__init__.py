"""UTS for Python: streams and messages for asyncio, over the library for C.

    connection = await uts.connect("example.org:4433", pin="SHA256:…")
    async with connection:
        flow = await connection.open_flow()
        await flow.write(b"hello")
        await flow.finish()
        answer = await flow.read()

``docs/python.md`` is the guide.
"""

from ._errors import (
    AddressError,
    ClosedError,
    Error,
    MessageError,
    PropertyError,
    RefusedError,
    ResetError,
    StoppedError,
    UnreachableError,
    UntrustedError,
)
from ._native import version
from ._transport import (
    Closed,
    Connection,
    Event,
    Flow,
    Listener,
    Stats,
    Timed,
    connect,
    explain,
    known_hosts_add,
    listen,
)

__all__ = [
    "AddressError",
    "Closed",
    "ClosedError",
    "Connection",
    "Error",
    "Event",
    "Flow",
    "Listener",
    "MessageError",
    "PropertyError",
    "RefusedError",
    "ResetError",
    "Stats",
    "StoppedError",
    "Timed",
    "UnreachableError",
    "UntrustedError",
    "connect",
    "explain",
    "known_hosts_add",
    "listen",
    "version",
]
