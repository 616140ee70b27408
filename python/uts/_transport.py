"""Connections and flows for asyncio.

A context of the library is kept for each event loop. Its descriptor is watched by the loop. A call
that cannot be done at once waits for its entry in the context's queue, and is made again.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ._errors import MessageError
from ._native import check, ffi, lib, told

# Bytes that one call reads at most.
_READ_BYTES = 1 << 20


class _Context:
    """The context of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        place = ffi.new("uts_context **")
        check(lib.uts_context_new(place))
        self.handle = place[0]
        self._loop = loop
        self._waiting: dict[tuple[int, int], list[asyncio.Future[None]]] = {}
        self._entries = ffi.new("uts_entry[64]")
        self._count = ffi.new("size_t *")
        loop.add_reader(lib.uts_context_fd(self.handle), self._on_ready)

    def _on_ready(self) -> None:
        while lib.uts_poll(self.handle, self._entries, 64, self._count, 0) == lib.UTS_OK:
            for entry in self._entries[0 : self._count[0]]:
                key = (_number(entry.handle), entry.operation)
                for waiter in self._waiting.pop(key, ()):
                    if not waiter.done():
                        waiter.set_result(None)

    async def call(self, handle: Any, operation: int, call: Callable[[], int]) -> int:
        """Makes a call until it is done. Returns its code, which is no error."""
        while (code := check(call())) == lib.UTS_AGAIN:
            key, waiter = (_number(handle), operation), self._loop.create_future()
            self._waiting.setdefault(key, []).append(waiter)
            try:
                await waiter
            finally:
                waiters = self._waiting.get(key, [])
                if waiter in waiters:
                    waiters.remove(waiter)
                    if not waiters:
                        self._waiting.pop(key, None)
        return code

    def closed(self, handle: Any) -> None:
        """Who waits with a handle that was closed calls once more, and is told."""
        number = _number(handle)
        for key in [key for key in self._waiting if key[0] == number]:
            for waiter in self._waiting.pop(key):
                if not waiter.done():
                    waiter.set_result(None)

    def close(self) -> None:
        """Closes all that was made from it."""
        self._loop.remove_reader(lib.uts_context_fd(self.handle))
        lib.uts_close(self.handle)


def _number(handle: Any) -> int:
    return int(ffi.cast("uintptr_t", handle))


_contexts: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Context] = weakref.WeakKeyDictionary()


def _context() -> _Context:
    """The context of the loop that runs."""
    loop = asyncio.get_running_loop()
    context = _contexts.get(loop)
    if context is None:
        context = _contexts[loop] = _Context(loop)
        _close_with(loop, context)
    return context


def _close_with(loop: asyncio.AbstractEventLoop, context: _Context) -> None:
    """Has the context closed when the loop is."""
    close = loop.close

    def both() -> None:
        if _contexts.pop(loop, None) is not None:
            context.close()
        close()

    try:
        loop.close = both  # type: ignore[method-assign]
    except AttributeError:
        # A loop that is not written in Python: the context ends with the process.
        pass


def _name(of: str) -> str:
    """The name of a setting: ``idle_timeout`` is ``idleTimeout``."""
    first, *rest = of.split("_")
    return first + "".join(part.capitalize() for part in rest)


Properties = Mapping[str, object]


class _Options:
    """Options of the library, from settings and properties, for the time of a call."""

    def __init__(self, settings: Mapping[str, object], properties: Properties | None) -> None:
        place = ffi.new("uts_options **")
        check(lib.uts_options_new(place))
        self.handle = place[0]
        try:
            named = [(_name(name), value) for name, value in settings.items() if value is not None]
            for name, value in [*named, *(properties or {}).items()]:
                for one in value if isinstance(value, (list, tuple)) else [value]:
                    _set(self.handle, name, one)
        except BaseException:
            lib.uts_close(self.handle)
            raise

    def __enter__(self) -> Any:
        return self.handle

    def __exit__(self, *_: object) -> None:
        lib.uts_close(self.handle)


def _set(handle: Any, name: str, value: object) -> None:
    shown = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
    check(lib.uts_set(handle, name.encode(), shown.encode()))


class _Held:
    """Something that the library knows by a handle."""

    def __init__(self, context: _Context, handle: Any) -> None:
        self._context = context
        self._handle = handle
        self._finalizer = weakref.finalize(self, lib.uts_close, handle)

    def set(self, name: str, value: object) -> None:
        """Sets a property: ``set("msgLifetime", "100ms")``."""
        _set(self._handle, name, value)

    def get(self, name: str) -> str:
        """A property or a fact, in words."""
        return told(lambda memory, size, needed: lib.uts_get(self._handle, name.encode(), memory, size, needed))

    def _close(self) -> None:
        if self._finalizer.detach():
            lib.uts_close(self._handle)
            self._context.closed(self._handle)

    def _call(self, operation: int, call: Callable[[], int]) -> Awaitable[int]:
        return self._context.call(self._handle, operation, call)


@dataclass(frozen=True)
class Event:
    """Something that happened on a connection."""

    #: ``requested``, ``granted``, ``completed``, ``refused``, ``failed``, ``brought``, ``packet_size``,
    #: ``silent``, ``heard``, ``moved``, ``no_effect``, ``closed`` or ``other``; later versions have more.
    kind: str
    #: A number, as its kind says: bytes, nanoseconds, a code.
    value: int
    #: Words, as its kind says.
    text: str


@dataclass(frozen=True)
class Closed:
    """Why a connection has ended."""

    #: The code of the end that closed it; 0 if the path did.
    code: int
    #: It was the peer that closed it.
    is_peer: bool
    #: Why, in words.
    text: str


@dataclass(frozen=True)
class Timed:
    """A message, when it was made, and what is missing before it. Times are in seconds."""

    message: memoryview
    #: When it was made, by the sender's clock; ``None`` if the sender does not ask for ``uts.playoutDelay``.
    #: Only differences mean something, of all flows of a connection.
    media: float | None
    #: For how long messages are held beyond the quickest way.
    delay: float
    #: From its making to its handing over, beyond the quickest way.
    age: float
    #: It came too late for its time.
    is_late: bool
    #: Positions that are missing before it: one for each byte, and one for each message.
    missing: int


@dataclass(frozen=True)
class Stats:
    """Figures of a connection. Times are in seconds, rates in bits per second."""

    rtt: float
    rtt_min: float
    rtt_deviation: float
    window_bytes: int
    in_flight_bytes: int
    rate_bps: int
    loss: float
    undelivered_bytes: int
    silence: float
    packets_sent: int
    bytes_sent: int
    packets_received: int
    bytes_received: int
    packets_lost: int
    data_bytes_sent: int
    data_bytes_received: int
    bytes_repeated: int
    messages_expired: int
    exchanges: int


_KINDS = {
    value: name.removeprefix("UTS_EVENT_").lower()
    for value, name in ffi.typeof("uts_event_kind").elements.items()
}


class Flow(_Held):
    """A flow: bytes or messages, both ways. Closed unfinished, it is reset behind what was written."""

    async def write(self, data: Any) -> None:
        """Hands bytes over, from anything with a buffer. Waits while the flow is full."""
        view = memoryview(data).cast("B")
        written = ffi.new("size_t *")
        while len(view) > 0:
            memory = ffi.from_buffer(view)
            size = len(view)

            def some(memory: Any = memory, size: int = size) -> int:
                code: int = lib.uts_write(self._handle, memory, size, written, 0)
                # What was taken is not offered again.
                return lib.UTS_OK if code == lib.UTS_AGAIN and written[0] > 0 else code

            await self._call(lib.UTS_ON_SEND, some)
            view = view[written[0] :]

    async def readinto(self, buffer: Any) -> int:
        """Reads bytes into anything with a buffer that may be written. Returns how many; 0 at the end."""
        memory, got = ffi.from_buffer(buffer, require_writable=True), ffi.new("size_t *")
        if len(memory) == 0:
            return 0
        code = await self._call(lib.UTS_ON_RECV, lambda: lib.uts_read(self._handle, memory, len(memory), got, 0))
        return 0 if code == lib.UTS_END else int(got[0])

    async def read(self, size: int = -1) -> bytes:
        """Reads up to ``size`` bytes, at least one; all up to the end if it is negative. Empty at the end."""
        if size >= 0:
            room = bytearray(min(size, _READ_BYTES))
            return bytes(memoryview(room)[: await self.readinto(room)])
        parts = []
        while part := await self.read(_READ_BYTES):
            parts.append(part)
        return b"".join(parts)

    async def readexactly(self, size: int) -> bytes:
        """Reads so many bytes. Raises ``asyncio.IncompleteReadError`` at the end."""
        room = bytearray(size)
        view, have = memoryview(room), 0
        while have < size:
            got = await self.readinto(view[have:])
            if got == 0:
                raise asyncio.IncompleteReadError(bytes(view[:have]), size)
            have += got
        return bytes(room)

    async def send(
        self,
        message: Any,
        *,
        lifetime: float | None = None,
        key: int | None = None,
        checksum_len: int | None = None,
        expedited: bool = False,
    ) -> None:
        """Hands a message over, from anything with a buffer, whole or not at all.

        ``lifetime`` is in seconds: after it the message is worth nothing, and is given up. ``key`` keeps
        the order of messages with the same key, ``checksum_len`` says how many bytes have to arrive
        undamaged, ``expedited`` passes all others (16 bytes at most).
        """
        options = ffi.new("uts_message_options *")
        if lifetime is not None:
            options.flags |= lib.UTS_HAS_LIFETIME
            options.lifetime_us = round(lifetime * 1e6)
        if key is not None:
            options.flags |= lib.UTS_HAS_KEY
            options.key = key
        if checksum_len is not None:
            options.flags |= lib.UTS_HAS_CHECKSUM_LEN
            options.checksum_len = checksum_len
        if expedited:
            options.flags |= lib.UTS_EXPEDITED
        memory = ffi.from_buffer(message)
        await self._call(lib.UTS_ON_SEND, lambda: lib.uts_send(self._handle, memory, len(memory), options, 0))

    def try_send(self, message: Any, **options: Any) -> bool:
        """Hands a message over if there is room for it: for media, where late is lost."""
        sending = self.send(message, **options)
        try:
            sending.send(None)
        except StopIteration:
            return True
        sending.close()
        return False

    async def recv(self) -> memoryview | None:
        """The next message, in the library's memory and not copied; ``None`` at the end.

        ``bytes(message)`` copies it. The memory is given back with the last view of it.
        """
        timed = await self.recv_timed()
        return None if timed is None else timed.message

    async def recv_timed(self) -> Timed | None:
        """The next message, as :meth:`recv` gives it, with its time and what is missing before it."""
        chunk = await self._recv(0)
        if chunk is None:
            return None
        is_message, view, timing = chunk
        if not is_message:
            raise MessageError("the flow carries bytes, not messages: ask for preserveMsgBoundaries", "UTS_EMESSAGE")
        return Timed(
            message=view,
            media=timing.media_us / 1e6 if timing.is_timed else None,
            delay=timing.delay_us / 1e6,
            age=timing.age_us / 1e6,
            is_late=bool(timing.is_late),
            missing=timing.missing,
        )

    async def recv_chunk(self, bytes_max: int = _READ_BYTES) -> memoryview | None:
        """What comes next, a message or bytes, not copied; ``None`` at the end."""
        chunk = await self._recv(bytes_max)
        return None if chunk is None else chunk[1]

    async def _recv(self, bytes_max: int) -> tuple[bool, memoryview, Any] | None:
        buffer = ffi.new("uts_buffer *")
        code = await self._call(
            lib.UTS_ON_RECV, lambda: lib.uts_recv_buffer(self._handle, buffer, bytes_max, 0)
        )
        if code == lib.UTS_END:
            return None
        timing = ffi.new("uts_timing *")
        check(lib.uts_buffer_timing(buffer, timing))
        owned = ffi.gc(buffer.data, lambda _data, buffer=buffer: lib.uts_release(buffer))
        return bool(buffer.is_message), memoryview(ffi.buffer(owned, buffer.size)).toreadonly(), timing

    async def recv_expedited(self) -> bytes | None:
        """The next expedited message; ``None`` when none can come any more."""
        memory, got = ffi.new("char[16]"), ffi.new("size_t *")
        code = await self._call(
            lib.UTS_ON_RECV_EXPEDITED, lambda: lib.uts_recv_expedited(self._handle, memory, 16, got, 0)
        )
        return None if code == lib.UTS_END else bytes(ffi.buffer(memory, got[0]))

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        while (message := await self.recv()) is not None:
            yield message

    async def finish(self) -> None:
        """Ends the flow behind what was written."""
        check(lib.uts_finish(self._handle))

    async def finished(self) -> None:
        """Ends the flow, if that was not done, and waits until the peer has acknowledged everything."""
        await self._call(lib.UTS_ON_FINISHED, lambda: lib.uts_finished(self._handle, 0))

    def reset(self, code: int = 0) -> None:
        """Gives up at once what is sent."""
        check(lib.uts_reset(self._handle, code))

    def stop(self, code: int = 0) -> None:
        """Tells the peer that no more is wanted."""
        check(lib.uts_stop(self._handle, code))

    def close(self) -> None:
        """Lets the flow go."""
        self._close()

    async def __aenter__(self) -> Flow:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Connection(_Held):
    """A connection to one peer."""

    async def open_flow(self, properties: Properties | None = None, **settings: object) -> Flow:
        """Opens a flow, with properties of its own if any are given. Waits while the peer allows no more."""
        with _Options(settings, properties) as options:
            place = ffi.new("uts_flow **")
            await self._call(
                lib.UTS_ON_OPEN_FLOW, lambda: lib.uts_open_flow(self._handle, options, place, 0)
            )
        return Flow(self._context, place[0])

    async def accept_flow(self) -> Flow | None:
        """The next flow that the peer opens; ``None`` once the connection has ended."""
        place = ffi.new("uts_flow **")
        code = await self._call(lib.UTS_ON_ACCEPT_FLOW, lambda: lib.uts_accept_flow(self._handle, place, 0))
        return None if code == lib.UTS_END else Flow(self._context, place[0])

    async def flows(self) -> AsyncIterator[Flow]:
        """The flows that the peer opens, until the connection ends."""
        while (flow := await self.accept_flow()) is not None:
            yield flow

    async def events(self) -> AsyncIterator[Event]:
        """What happens on the connection, until its end. The first also has what happened before."""
        event = ffi.new("uts_event *")
        while await self._call(
            lib.UTS_ON_EVENT, lambda: lib.uts_next_event(self._handle, event, 0)
        ) != lib.UTS_END:
            words = ffi.string(event.text).decode("utf-8", "replace")
            yield Event(_KINDS.get(event.kind, "other"), int(event.value), words)

    def stats(self) -> Stats:
        """Figures of the connection and of its path."""
        found = ffi.new("uts_stats *")
        check(lib.uts_get_stats(self._handle, found, ffi.sizeof("uts_stats")))
        values: dict[str, Any] = {}
        for name in dir(found):
            value = getattr(found, name)
            values[name.removesuffix("_ns")] = value / 1e9 if name.endswith("_ns") else value
        return Stats(**{name: values[name] for name in Stats.__dataclass_fields__})

    def explain(self) -> str:
        """Which mechanisms are chosen for the path as it was measured, and why, in a table."""
        return told(lambda memory, size, needed: lib.uts_explain(self._handle, ffi.NULL, memory, size, needed))

    async def closed(self) -> Closed:
        """Waits for the end of the connection."""
        code, is_peer = ffi.new("uint64_t *"), ffi.new("int *")
        memory = ffi.new("char[4096]")
        await self._call(
            lib.UTS_ON_ENDED,
            lambda: lib.uts_ended(self._handle, code, is_peer, memory, 4096, ffi.NULL, 0),
        )
        return Closed(int(code[0]), bool(is_peer[0]), ffi.string(memory).decode("utf-8", "replace"))

    def migrate(self, address: str) -> None:
        """Goes on from another address of this host."""
        check(lib.uts_migrate(self._handle, address.encode()))

    def follow_network(self) -> None:
        """Moves with this host from now on."""
        check(lib.uts_follow_network(self._handle))

    @property
    def local_address(self) -> str:
        """This end's address."""
        return self.get("localAddress")

    @property
    def remote_address(self) -> str:
        """The peer's address."""
        return self.get("remoteAddress")

    @property
    def fingerprint(self) -> str:
        """The key that the peer has shown; ``none`` for a client that was not asked for one."""
        return self.get("fingerprint")

    @property
    def profile(self) -> str:
        """The mechanisms of what this end sends."""
        return self.get("profile")

    def shutdown(self, code: int = 0, reason: str = "") -> None:
        """Ends the connection at once and tells the peer why. What was not delivered is lost."""
        check(lib.uts_shutdown(self._handle, code, reason.encode()))

    def close(self, code: int = 0, reason: str = "") -> None:
        """Ends the connection, if it has not ended, and lets it go."""
        if self._finalizer.alive:
            lib.uts_shutdown(self._handle, code, reason.encode())
        self._close()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Listener(_Held):
    """Accepts connections at an address."""

    async def accept(self) -> Connection | None:
        """The next connection; ``None`` when none can come any more."""
        place = ffi.new("uts_connection **")
        code = await self._call(lib.UTS_ON_ACCEPT, lambda: lib.uts_accept(self._handle, place, 0))
        return None if code == lib.UTS_END else Connection(self._context, place[0])

    async def __aiter__(self) -> AsyncIterator[Connection]:
        while (connection := await self.accept()) is not None:
            yield connection

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.get("localAddress")

    @property
    def fingerprint(self) -> str:
        """The key by which clients know it."""
        return self.get("fingerprint")

    def close(self) -> None:
        """Accepts no more connections. Those that were accepted go on."""
        self._close()

    async def __aenter__(self) -> Listener:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def connect(target: str, properties: Properties | None = None, **settings: object) -> Connection:
    """Opens a connection to ``host:port``.

    The server is known by ``pin`` (a fingerprint, or several), ``known_hosts`` (a file, or ``default``)
    or ``roots`` (a PEM file). Settings are those of docs/c.md, in this form: ``idle_timeout="30s"``.
    ``properties`` are those of RFC 9622: ``{"uts.profile": "media", "msgLifetime": "100ms"}``.
    """
    context, place = _context(), ffi.new("uts_connection **")
    with _Options(settings, properties) as options:
        check(lib.uts_connect(context.handle, target.encode(), options, place, 0))
    connection = Connection(context, place[0])
    try:
        await connection._call(lib.UTS_ON_CONNECTED, lambda: lib.uts_connected(connection._handle, 0))
    except BaseException:
        connection._close()
        raise
    return connection


def listen(
    address: str, properties: Properties | None = None, *, identity: str = "default", **settings: object
) -> Listener:
    """Accepts connections at ``host:port``, in the loop that runs.

    ``identity`` is a file with this end's key, which is made if it is not there; ``default`` is the
    user's own, ``ephemeral`` a new one for this process.
    """
    context, place = _context(), ffi.new("uts_listener **")
    with _Options({"identity": identity, **settings}, properties) as options:
        check(lib.uts_listen(context.handle, address.encode(), options, place))
    return Listener(context, place[0])


def explain(
    properties: Properties | None = None, *, rtt: float = 0.0, rate_bps: int = 0, loss: float = 0.0
) -> str:
    """Which mechanisms properties lead to on a path, and why, in a table. Nothing is sent.

    ``rtt`` is in seconds. Without any figure nothing is known of the path.
    """
    path = ffi.new("uts_path *", {"rtt_us": round(rtt * 1e6), "rate_bps": rate_bps, "loss": loss})
    given = path if rtt or rate_bps or loss else ffi.NULL
    with _Options({}, properties) as options:
        return told(lambda memory, size, needed: lib.uts_explain(options, given, memory, size, needed))


def known_hosts_add(host: str, fingerprint: str, file: str | None = None) -> None:
    """Adds a host's key to a file of known hosts, or to the user's own."""
    place = ffi.NULL if file is None else file.encode()
    check(lib.uts_known_hosts_add(place, host.encode(), fingerprint.encode()))
