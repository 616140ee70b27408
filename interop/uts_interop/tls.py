"""The TLS handshake (keys.md K-1 to K-12), by aioquic's TLS 1.3, which has neither sockets nor records."""

import base64
import datetime
import hashlib
import ssl

from aioquic import tls
from aioquic.buffer import Buffer
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from .keys import SUITES, expand

ALPN = "uts/1"  # K-3
EXTENSION = 57  # K-4
LEVELS = {tls.Epoch.INITIAL: "Initial", tls.Epoch.HANDSHAKE: "Handshake"}


class Alert(Exception):
    """An error of TLS, by the number of its alert (K-12)."""

    def __init__(self, number, text):
        super().__init__(text)
        self.number = number


def identity():
    """A new key of Ed25519 and a certificate that it has signed (K-9)."""
    key = ed25519.Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "uts")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
    return key, builder.not_valid_after(now + datetime.timedelta(days=365)).sign(key, None)


def fingerprint(certificate):
    """The text by which a key is known (K-10)."""
    info = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return "SHA256:" + base64.b64encode(hashlib.sha256(info).digest()).decode().rstrip("=")


class Handshake:
    """One end's handshake. `on_keys(level, sends, suite, secret)` is told of the secrets of the level Handshake."""

    def __init__(self, is_client, hello, identity=None, pin=None, server_name=None, on_keys=None, want_client=False,
                 alpn=ALPN):
        self.context = tls.Context(is_client=is_client, alpn_protocols=[alpn], verify_mode=ssl.CERT_NONE,
                                   cipher_suites=[tls.CipherSuite(number) for number in SUITES], server_name=server_name)
        self.context._supported_groups = [tls.Group.X25519, tls.Group.SECP256R1, tls.Group.SECP384R1]  # K-6
        if is_client:  # The share that is sent is the first's.
            self.context._supported_groups = [tls.Group.X25519]
        if hello is not None:
            self.context.handshake_extensions = [(EXTENSION, hello)]
        self.context._request_client_certificate = want_client
        if identity:
            self.context.certificate_private_key, self.context.certificate = identity
        self.context.update_traffic_key_cb = self._on_secret
        self.is_client, self.pin, self.on_keys, self.alpn = is_client, pin, on_keys, alpn
        self.exported = None
        self.done = False

    def _on_secret(self, direction, epoch, suite, secret):
        if epoch == tls.Epoch.HANDSHAKE:
            self.on_keys("Handshake", direction == tls.Direction.ENCRYPT, int(suite), secret)
        elif epoch == tls.Epoch.ONE_RTT and self.exported is None:
            # The transcript now ends with the server's Finished: that is where the exporter's secret is made.
            schedule = self.context.key_schedule
            self._export(schedule.derive_secret(b"exp master"), SUITES[int(suite)][1])

    def _export(self, master, algorithm):  # K-17; RFC 8446 section 7.5
        empty = hashlib.new(algorithm.name, b"").digest()
        derived = expand(master, "EXPORTER-uts", len(empty), algorithm, empty)
        self.exported = expand(derived, "exporter", 32, algorithm, empty)

    def set_hello(self, hello):
        """A server's Hello, which depends on the client's."""
        self.context.handshake_extensions = [(EXTENSION, hello)] if hello is not None else []

    def peer_hello(self):
        """The peer's Hello, or None while it has not come; raises Alert where TLS had none (K-4)."""
        if self.context.received_extensions is None:
            return None
        for number, value in self.context.received_extensions:
            if number == EXTENSION:
                return value
        raise Alert(109, "no Hello")

    def feed(self, data):
        """Takes bytes of the peer (none at a client's begin); returns the bytes that each level sends."""
        out = {level: Buffer(capacity=16384) for level in (*LEVELS, tls.Epoch.ONE_RTT)}
        try:
            self.context.handle_message(data, out)
            if self.is_client and self.context.received_extensions is not None \
                    and self.context.alpn_negotiated != self.alpn:
                raise Alert(120, "no application protocol")
        except tls.Alert as error:
            raise Alert(int(error.description), str(error)) from None
        except (ValueError, AssertionError) as error:
            raise Alert(50, str(error)) from None
        if self.context._peer_certificate is not None and self.pin not in (None, self.peer()):
            raise Alert(46, f"the server's key is {self.peer()}")
        self.done = self.context.state in (tls.State.CLIENT_POST_HANDSHAKE, tls.State.SERVER_POST_HANDSHAKE)
        return {name: out[level].data for level, name in LEVELS.items()}

    def peer(self):
        certificate = self.context._peer_certificate
        return None if certificate is None else fingerprint(certificate)
