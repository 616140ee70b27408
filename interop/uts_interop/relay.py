"""A way of datagrams that loses, delays and reorders some of them, from a seed."""

import heapq
import random
import socket
import threading
import time


class Relay:
    """Stands between clients and the server at `target`, in a thread of its own. Shares are of all datagrams; `delay`
    is one way, in seconds. `move()` gives the client's side another port towards the server, as a translator would."""

    def __init__(self, target, seed, loss=0.0, reorder=0.0, delay=0.002, host="127.0.0.1"):
        self.target, self.loss, self.reorder, self.delay = target, loss, reorder, delay
        self.random = random.Random(seed)
        self.front, self.back = self._socket(host), self._socket(host)
        self.client, self.queue, self.count, self.dropped = None, [], 0, 0
        self.running = True
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    @staticmethod
    def _socket(host):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        sock.bind((host, 0))
        return sock

    @property
    def address(self):
        return self.front.getsockname()

    def move(self):
        old, self.back = self.back, self._socket("127.0.0.1")
        old.close()

    def close(self):
        self.running = False
        self.thread.join()
        self.front.close()
        self.back.close()

    def _take(self, sock, towards_server):
        for _ in range(64):
            try:
                data, source = sock.recvfrom(65535, socket.MSG_DONTWAIT)
            except OSError:
                return
            if towards_server:
                self.client = source
            self.count += 1
            if self.random.random() < self.loss:
                self.dropped += 1
                continue
            wait = self.delay * (1 + 4 * (self.random.random() < self.reorder))
            heapq.heappush(self.queue, (time.monotonic() + wait, self.count, data, towards_server))

    def _run(self):
        while self.running:
            self._take(self.front, True)
            self._take(self.back, False)
            while self.queue and self.queue[0][0] <= time.monotonic():
                _, _, data, towards_server = heapq.heappop(self.queue)
                try:
                    if towards_server:
                        self.back.sendto(data, self.target)
                    elif self.client:
                        self.front.sendto(data, self.client)
                except OSError:
                    pass
            time.sleep(0.0003)
