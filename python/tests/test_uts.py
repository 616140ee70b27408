"""Both ends in one process, over the loopback. Nothing depends on how long anything takes."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import unittest
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uts

#: Seconds after which a test has failed: far beyond what any takes.
PATIENCE = 60


@asynccontextmanager
async def ends(properties: uts._transport.Properties | None = None) -> AsyncIterator[tuple[uts.Connection, uts.Connection]]:
    """A client and a server, connected."""
    async with uts.listen("127.0.0.1:0", properties, identity="ephemeral") as listener:
        client, server = await asyncio.gather(
            uts.connect(listener.address, properties, pin=listener.fingerprint), listener.accept()
        )
        assert server is not None
        async with client, server:
            yield client, server


class Streams(unittest.IsolatedAsyncioTestCase):
    async def test_bytes_go_both_ways(self) -> None:
        async with ends() as (client, server):
            flow = await client.open_flow()
            data = os.urandom(3_000_000)

            async def echo() -> None:
                back = await server.accept_flow()
                assert back is not None
                room = bytearray(100_000)
                while got := await back.readinto(room):
                    await back.write(memoryview(room)[:got])
                await back.finished()

            async def send() -> None:
                await flow.write(data)
                await flow.finish()

            async with asyncio.timeout(PATIENCE) if hasattr(asyncio, "timeout") else _nothing():
                _, _, answer = await asyncio.gather(echo(), send(), flow.read())
            self.assertEqual(answer, data)

    async def test_reads_of_a_size(self) -> None:
        async with ends() as (client, server):
            flow = await client.open_flow()
            await flow.write(bytearray(b"0123456789"))
            await flow.finish()
            back = await server.accept_flow()
            assert back is not None
            self.assertEqual(await back.readexactly(4), b"0123")
            with self.assertRaises(asyncio.IncompleteReadError) as raised:
                await back.readexactly(7)
            self.assertEqual(raised.exception.partial, b"456789")
            self.assertEqual(await back.read(5), b"")

    async def test_flow_that_is_dropped_is_no_whole(self) -> None:
        async with ends() as (client, server):
            flow = await client.open_flow()
            await flow.write(b"half")
            back = await server.accept_flow()
            assert back is not None
            flow.close()
            with self.assertRaises(uts.ResetError):
                await back.read()
            with self.assertRaises(ValueError):
                await flow.write(b"more")

    async def test_several_readers_of_many_flows(self) -> None:
        async with ends() as (client, server):

            async def ask(n: int) -> bytes:
                async with await client.open_flow() as flow:
                    await flow.write(b"%d" % n)
                    await flow.finish()
                    return await flow.read()

            async def serve() -> None:
                async for flow in server.flows():
                    await flow.write(await flow.read())
                    await flow.finished()

            serving = asyncio.ensure_future(serve())
            answers = await asyncio.gather(*(ask(n) for n in range(50)))
            self.assertEqual(answers, [b"%d" % n for n in range(50)])
            client.close()
            await serving

    async def test_wait_that_is_given_up_loses_nothing(self) -> None:
        async with ends() as (client, server):
            flow = await client.open_flow()
            await flow.write(b"a")
            back = await server.accept_flow()
            assert back is not None
            self.assertEqual(await back.read(1), b"a")
            waits = asyncio.ensure_future(back.read(1))
            await asyncio.sleep(0)
            waits.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waits
            await flow.write(b"b")
            self.assertEqual(await back.read(1), b"b")


class Messages(unittest.IsolatedAsyncioTestCase):
    async def test_messages_keep_their_boundaries_and_are_not_copied(self) -> None:
        async with ends({"uts.profile": "messages"}) as (client, server):
            flow = await client.open_flow()
            await flow.send(b"first")
            await flow.send(memoryview(bytearray(b"second")), lifetime=30.0)
            await flow.send(b"")
            await flow.finish()
            back = await server.accept_flow()
            assert back is not None
            messages = [message async for message in back]
            self.assertEqual([bytes(message) for message in messages], [b"first", b"second", b""])
            self.assertTrue(messages[0].readonly)
            kept = messages[1][1:3]
            del messages
            gc.collect()
            self.assertEqual(kept, b"ec")

    async def test_messages_have_the_time_of_their_making(self) -> None:
        async with ends({"uts.profile": "messages", "uts.playoutDelay": "50ms"}) as (client, server):
            flow = await client.open_flow()
            count = 0
            back = None
            timed: list[uts.Timed] = []
            while len(timed) < 5:
                await flow.send(count.to_bytes(4, "big"))
                count += 1
                back = back or await server.accept_flow()
                assert back is not None
                message = await back.recv_timed()
                assert message is not None
                # What is sent before the first profile with playout is in use has no time.
                if message.media is not None:
                    timed.append(message)
            times = [message.media for message in timed if message.media is not None]
            self.assertEqual(times, sorted(times))
            self.assertTrue(all(message.age >= 0.04 for message in timed), timed)
            self.assertAlmostEqual(timed[-1].delay, 0.05)
            self.assertEqual(sum(message.missing for message in timed), 0)

    async def test_view_outlives_its_connection(self) -> None:
        async with ends({"uts.profile": "messages"}) as (client, server):
            flow = await client.open_flow()
            await flow.send(b"x" * 1000)
            back = await server.accept_flow()
            assert back is not None
            view = await back.recv()
        gc.collect()
        self.assertEqual(view, b"x" * 1000)

    async def test_expedited_message_passes(self) -> None:
        async with ends({"uts.expedited": True}) as (client, server):
            flow = await client.open_flow()
            await flow.write(b"x")
            back = await server.accept_flow()
            assert back is not None
            await flow.send(b"stop", expedited=True)
            self.assertEqual(await back.recv_expedited(), b"stop")

    async def test_what_is_full_is_not_waited_for(self) -> None:
        async with ends({"uts.profile": "messages"}) as (client, _server):
            flow = await client.open_flow()
            # Nobody reads: some time there is no room.
            self.assertTrue(flow.try_send(bytes(100_000)))
            self.assertFalse(all(flow.try_send(bytes(100_000)) for _ in range(10_000)))

    async def test_bytes_are_no_messages(self) -> None:
        async with ends() as (client, server):
            flow = await client.open_flow()
            await flow.write(b"bytes")
            back = await server.accept_flow()
            assert back is not None
            with self.assertRaises(uts.MessageError):
                await back.recv()


class Connections(unittest.IsolatedAsyncioTestCase):
    async def test_end_is_told_with_its_reason(self) -> None:
        async with ends() as (client, server):
            client.shutdown(7, "enough")
            closed = await server.closed()
            self.assertEqual((closed.code, closed.is_peer), (7, True))
            self.assertIn("enough", closed.text)
            self.assertIsNone(await server.accept_flow())
            with self.assertRaises(uts.ClosedError):
                await server.open_flow()

    async def test_events_tell_of_exchanges_and_the_end(self) -> None:
        async with ends() as (client, _server):
            client.set("uts.profile.congestion", "bbr")
            kinds = []
            async for event in client.events():
                kinds.append(event.kind)
                if event.kind == "completed":
                    self.assertIn("bbr", event.text)
                    client.shutdown()
            self.assertEqual(kinds[-1], "closed")
            self.assertIn("requested", kinds)

    async def test_figures_and_facts(self) -> None:
        async with ends() as (client, server):
            stats = client.stats()
            self.assertGreater(stats.packets_sent, 0)
            self.assertGreater(stats.window_bytes, 0)
            self.assertEqual(client.remote_address, server.local_address)
            self.assertTrue(client.fingerprint.startswith("SHA256:"))
            self.assertIn("congestion", client.explain())
            self.assertEqual(client.get("preserveOrder"), "require")

    async def test_unknown_key_is_refused_and_accepted_by_hand(self) -> None:
        async with uts.listen("127.0.0.1:0", identity="ephemeral") as listener:
            with tempfile.TemporaryDirectory() as folder:
                hosts = os.path.join(folder, "known_hosts")
                with self.assertRaises(uts.UntrustedError) as raised:
                    await uts.connect(listener.address, known_hosts=hosts)
                self.assertIn(listener.fingerprint, str(raised.exception))
                self.assertEqual(raised.exception.code, "UTS_EUNTRUSTED")
                uts.known_hosts_add(listener.address, listener.fingerprint, hosts)
                async with await uts.connect(listener.address, known_hosts=hosts):
                    pass

    async def test_what_is_wrong_is_said(self) -> None:
        with self.assertRaisesRegex(uts.PropertyError, "did you mean `msgLifetime`"):
            uts.explain({"msgLifetme": "1s"})
        with self.assertRaisesRegex(ValueError, "`soon`"):
            await uts.connect("localhost:1", idle_timeout="soon", pin="SHA256:" + "A" * 43)
        with self.assertRaisesRegex(uts.AddressError, "port"):
            await uts.connect("localhost", pin="SHA256:" + "A" * 43)

    async def test_handles_are_given_back(self) -> None:
        async with ends() as (client, server):
            for _ in range(3):
                flow = await client.open_flow()
                await flow.write(b"x")
                back = await server.accept_flow()
                assert back is not None
                handle = back._handle
                del flow, back
                gc.collect()
                place = uts._native.ffi.new("size_t *")
                code = uts._native.lib.uts_recv(handle, uts._native.ffi.NULL, 0, place, 0)
                self.assertEqual(code, uts._native.lib.UTS_EHANDLE)


class Loops(unittest.TestCase):
    def test_each_loop_has_a_context(self) -> None:
        async def once() -> int:
            async with ends() as (client, _server):
                return client.stats().packets_sent

        for _ in range(3):
            self.assertGreater(asyncio.run(once()), 0)

    def test_explain_needs_no_loop(self) -> None:
        clean = uts.explain({"uts.profile": "media"}, rtt=0.1)
        lossy = uts.explain({"uts.profile": "media"}, rtt=0.1, loss=0.05)
        self.assertNotEqual(clean, lossy)


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


if __name__ == "__main__":
    unittest.main()
