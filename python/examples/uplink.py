"""A client of ``uts serve``: sends a file to a service of its (``--pipe NAME=PORT``), or frames that are worth
nothing after a deadline, 50 in a second (``--media``). spec/services.md says what is asked.

    uplink.py file ADDRESS FINGERPRINT NAME FILE
    uplink.py media ADDRESS FINGERPRINT NAME FRAMES DEADLINE    a deadline as 100ms
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uts

BLOCK_BYTES = 65_536
FRAME_BYTES = 800
INTERVAL_S = 0.02


async def ask(flow: uts.Flow, first: bytes, name: str, last: bytes = b"") -> None:
    """Asks for a stream by its name, and waits for the answer (V-2)."""
    text = name.encode()
    await flow.write(first + bytes([len(text)]) + text + last)
    refused, length = await flow.readexactly(2)
    said = (await flow.readexactly(length)).decode()
    if refused:
        raise SystemExit(f"refused: {said}")


async def send_file(address: str, pin: str, name: str, file: str) -> None:
    """A file by a stream of the service ``pipe`` (V-3)."""
    properties = {"uts.profile": "bulk"}
    async with await uts.connect(address, properties, pin=pin, service="pipe", key_log="on") as connection:
        flow = await connection.open_flow()
        await ask(flow, b"\1", name)
        with Path(file).open("rb") as content:
            while block := content.read(BLOCK_BYTES):
                await flow.write(block)
        await flow.finished()
        # What the service says; its end tells that it has all.
        print((await flow.read()).decode(), end="")
        print(connection.stats())


async def send_media(address: str, pin: str, name: str, frames: int, deadline: str) -> None:
    """Frames with a deadline by the service ``media``: each a message with its number before it (V-9, V-10)."""
    properties = {"uts.profile": "media", "msgLifetime": deadline}
    async with await uts.connect(address, properties, pin=pin, service="media", key_log="on") as connection:
        # Requests are bytes, whatever the rest of the connection is.
        requests = await connection.open_flow({"uts.profile": "bulk"})
        await ask(requests, b"\1\0", name, b"\0")
        flow = await connection.open_flow()
        dropped, loop = 0, asyncio.get_running_loop()
        due = loop.time()
        for number in range(frames):
            frame = number.to_bytes(4, "big") + bytes([number % 256]) * FRAME_BYTES
            # Where the path is full, this frame would come too late.
            dropped += not flow.try_send(frame)
            due += INTERVAL_S
            await asyncio.sleep(max(0.0, due - loop.time()))
        await flow.finished()
        print(f"{frames} frames, {dropped} dropped here")
        await requests.finish()
        print(connection.stats())


if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) == 5 and words[0] == "file":
        asyncio.run(send_file(words[1], words[2], words[3], words[4]))
    elif len(words) == 6 and words[0] == "media":
        asyncio.run(send_media(words[1], words[2], words[3], int(words[4]), words[5]))
    else:
        raise SystemExit(__doc__)
