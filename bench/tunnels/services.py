"""What is behind a tunnel, on the server's host: an echo, a stream without end, small objects, and a file."""

import socket
import sys
import threading

ECHO, STREAM, OBJECTS, FILE = PORTS = [7101, 7102, 7103, 7104]
OBJECT_BYTES = 10_000
# What is written at once.
CHUNK = bytes(range(256)) * 256


def main() -> None:
    file_bytes = int(sys.argv[1])
    services = {ECHO: echo, STREAM: stream, OBJECTS: an_object, FILE: lambda end: send(end, file_bytes)}
    for port, service in services.items():
        listener = socket.create_server(("0.0.0.0", port), backlog=256)
        threading.Thread(target=accept, args=(listener, service)).start()


def accept(listener: socket.socket, service) -> None:
    while True:
        end, _ = listener.accept()
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(end, service), daemon=True).start()


def serve(end: socket.socket, service) -> None:
    with end:
        try:
            service(end)
        except OSError:
            pass  # The client is gone.


def echo(end: socket.socket) -> None:
    while data := end.recv(4096):
        end.sendall(data)


def stream(end: socket.socket) -> None:
    while True:
        end.sendall(CHUNK)


def an_object(end: socket.socket) -> None:
    """A request is a byte, as short as one can be."""
    if end.recv(1):
        send(end, OBJECT_BYTES)


def send(end: socket.socket, count: int) -> None:
    for begin in range(0, count, len(CHUNK)):
        end.sendall(CHUNK[: count - begin])


if __name__ == "__main__":
    main()
