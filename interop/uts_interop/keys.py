"""Keys of establishment packets (keys.md) and of adaptive ones (functions/protection.md)."""

import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

SALT = bytes.fromhex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a")  # K-13
TAG = 16


class Unauthentic(Exception):
    """A packet whose tag or checksum is wrong."""


def expand(secret, label, length, algorithm=hashes.SHA256, context=b""):
    """HKDF-Expand-Label of RFC 8446 section 7.1."""
    full = b"tls13 " + label.encode()
    info = length.to_bytes(2, "big") + bytes([len(full)]) + full + bytes([len(context)]) + context
    return HKDFExpand(algorithm=algorithm(), length=length, info=info).derive(secret)


def _aes_mask(key):
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return lambda sample: encryptor.update(sample)[:5]


def _chacha_mask(key):  # RFC 9001 section 5.4.4
    return lambda sample: Cipher(algorithms.ChaCha20(key, sample), mode=None).encryptor().update(bytes(5))


CIPHERS = {"aes-128-gcm": (16, AESGCM, _aes_mask), "aes-256-gcm": (32, AESGCM, _aes_mask),
           "chacha20-poly1305": (32, ChaCha20Poly1305, _chacha_mask)}
#: TLS suites (K-5): the cipher and the hash.
SUITES = {0x1301: ("aes-128-gcm", hashes.SHA256), 0x1302: ("aes-256-gcm", hashes.SHA384),
          0x1303: ("chacha20-poly1305", hashes.SHA256)}


class Keys:
    """What seals and opens packets of one secret; `prefix` is that of the labels (K-15, protection.md R-4)."""

    def __init__(self, secret, cipher, prefix, algorithm=hashes.SHA256):
        size, aead, mask = CIPHERS[cipher]
        self.key = expand(secret, f"{prefix} key", size, algorithm)
        self.iv = int.from_bytes(expand(secret, f"{prefix} iv", 12, algorithm), "big")
        self.hp = expand(secret, f"{prefix} hp", size, algorithm)
        self.aead, self.mask = aead(self.key), mask(self.hp)

    def seal(self, number, data, associated):
        return self.aead.encrypt((self.iv ^ number).to_bytes(12, "big"), data, associated)

    def open(self, number, data, associated):
        try:
            return self.aead.decrypt((self.iv ^ number).to_bytes(12, "big"), data, associated)
        except InvalidTag:
            raise Unauthentic from None


def initial(cid):
    """Keys of the level Initial: the client's and the server's (K-13)."""
    secret = hmac.new(SALT, cid, hashlib.sha256).digest()
    return [Keys(expand(secret, label, 32), "aes-128-gcm", "quic") for label in ("client in", "server in")]


def handshake(suite, secret):
    cipher, algorithm = SUITES[suite]
    return Keys(secret, cipher, "quic", algorithm)


def retry_integrity(first_dcid, packet):
    """The field `integrity` of a Retry whose bytes before it are `packet` (K-22)."""
    message = bytes([len(first_dcid)]) + first_dcid + packet
    return hmac.new(b"uts retry integrity 1", message, hashlib.sha256).digest()[:16]


class Ratchet:
    """The secrets of a direction, epoch after epoch (protection.md R-2, R-3)."""

    def __init__(self, exported, label):
        self.epoch, self.secret = 0, expand(exported, label, 32)

    def keys(self, epoch, cipher):
        if cipher == "none":
            return None
        secret = self.secret
        for _ in range(epoch - self.epoch):
            secret = expand(secret, "uts ratchet", 32)
        return Keys(secret, cipher, "uts")

    def forget_below(self, epoch):
        """Wipes what no epoch in use or to come is derived from."""
        while self.epoch < epoch:
            self.epoch, self.secret = self.epoch + 1, expand(self.secret, "uts ratchet", 32)


def associated(cid):
    return cid.ljust(16, b"\0")  # P-39


def mask_number(packet, at, count, mask):
    for i in range(count):
        packet[at + i] ^= mask[1 + i]


def seal_long(keys, head, body):
    """A protected establishment packet; `head` ends in the 4 bytes of the number."""
    packet = bytearray(head + keys.seal(int.from_bytes(head[-4:], "big"), body, head))
    mask_number(packet, len(head) - 4, 4, keys.mask(bytes(packet[len(head) : len(head) + 16])))
    return bytes(packet)


def open_long(keys, data, packet):
    """Number and body of a packet that `packets.parse_long` has read."""
    at, end, start = packet["number_at"], packet["end"], packet["start"]
    head = bytearray(data[start : at + 4])
    mask_number(head, at - start, 4, keys.mask(bytes(data[at + 4 : at + 20])))
    number = int.from_bytes(head[-4:], "big")
    return number, keys.open(number, bytes(data[at + 4 : end]), bytes(head))


def seal_short(keys, head, cid_len, number, payload):
    """A protected adaptive packet; without keys the packet as it is (protection.md R-10)."""
    if keys is None:
        return head + payload
    count = len(head) - 1 - cid_len
    payload += bytes(max(0, 4 - count - len(payload)))  # P-6
    packet = bytearray(head + keys.seal(number, payload, associated(head[1 : 1 + cid_len])))
    sample = 1 + cid_len + 4
    mask = keys.mask(bytes(packet[sample : sample + 16]))
    packet[0] ^= mask[0] & 3
    mask_number(packet, 1 + cid_len, count, mask)
    return bytes(packet)
