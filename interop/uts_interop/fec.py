"""Forward error correction: the schemes that every end has (functions/fec.md)."""


def _tables():
    exp, log, value = [0] * 512, [0] * 256, 1
    for power in range(255):
        exp[power], log[value] = value, power
        value <<= 1
        if value & 256:
            value ^= 0x11D
    exp[255:510] = exp[:255]
    return exp, log


EXP, LOG = _tables()


def times(a, b):
    return EXP[LOG[a] + LOG[b]] if a and b else 0


def inverse(a):
    return EXP[255 - LOG[a]]


ROWS = [bytes(times(a, b) for b in range(256)) for a in range(256)]


def coefficient(scheme, parity, source):
    return 1 if scheme == "xor" else times(64 ^ source, inverse((64 + parity) ^ source))


def add(total, symbol, factor):
    """`total` plus `factor` times `symbol`, as long as the longer of the two."""
    size = max(len(total), len(symbol))
    scaled = symbol.translate(ROWS[factor]).ljust(size, b"\0")
    value = int.from_bytes(total.ljust(size, b"\0"), "big") ^ int.from_bytes(scaled, "big")
    return value.to_bytes(size, "big")


def symbol(payload):
    return len(payload).to_bytes(2, "big") + payload


def parities(scheme, symbols, count):
    out = []
    for parity in range(count):
        total = b""
        for source, value in enumerate(symbols):
            total = add(total, value, coefficient(scheme, parity, source))
        out.append(total)
    return out


class Encoder:
    """The open blocks of one epoch at its sender."""

    def __init__(self, profile):
        self.scheme = profile["fec"]
        self.data = profile.get("fec", "data")
        self.parity = profile.get("fec", "parity", 1) if self.scheme == "reed-solomon" else 1
        self.interleave = profile.get("fec", "interleave")
        self.flush = profile.get("fec", "flush") / 1e3
        self.blocks, self.turn, self.first, self.first_time = [], 0, None, None

    def source(self, number, payload, now):
        """Counts a packet in; returns the repairs of blocks that are closed by it (R-4)."""
        out = self.close() if self.first is not None and number - self.first >= 256 - self.interleave else []
        if not self.blocks:
            self.blocks = [[] for _ in range(self.interleave)]
            self.turn, self.first, self.first_time = 0, number, now
        self.blocks[self.turn].append((number, payload))
        self.turn = (self.turn + 1) % self.interleave
        if all(len(block) == self.data for block in self.blocks):
            out += self.close()
        return out

    def close(self):
        blocks, out = [b for b in self.blocks if b], []
        self.blocks, self.first, self.first_time = [], None, None
        for block in blocks:
            out += self._repairs(block)
        return sorted(out, key=lambda frame: frame["index"])

    def _repairs(self, block):
        first, mask = block[0][0], bytearray(32)
        for number, _ in block:
            mask[(number - first) // 8] |= 1 << (number - first) % 8
        count = -(-self.parity * len(block) // self.data)
        sums = parities(self.scheme, [symbol(payload) for _, payload in block], count)
        return [{"frame": "Repair", "first": first, "mask": bytes(mask).rstrip(b"\0"), "index": index, "count": count,
                 "symbol": total} for index, total in enumerate(sums)]

    def due(self):
        return None if self.first_time is None else self.first_time + self.flush


class Decoder:
    """What the receiver of one epoch keeps (R-12)."""

    def __init__(self, profile):
        self.scheme = profile["fec"]
        self.data = profile.get("fec", "data")
        self.most = profile.get("fec", "parity", 1) if self.scheme == "reed-solomon" else 1
        self.payloads, self.blocks, self.recovered = {}, {}, set()
        self.refused = 0

    def arrived(self, number, payload):
        self.payloads[number] = payload
        while len(self.payloads) > 512:
            del self.payloads[min(self.payloads)]
        return self._try_all()

    def repair(self, frame):
        """Takes a repair in; returns packets that come out: their numbers and payloads."""
        mask = frame["mask"]
        numbers = [frame["first"] + i for i in range(8 * len(mask)) if mask[i // 8] >> i % 8 & 1]
        block = self.blocks.get(frame["first"])
        bad = numbers[0] != frame["first"] or not mask[-1] or len(numbers) > self.data or len(frame["symbol"]) < 2
        bad |= frame["count"] > self.most or frame["index"] >= frame["count"]
        bad |= any(n in self.payloads and len(self.payloads[n]) + 2 > len(frame["symbol"]) for n in numbers)
        if block and (block["numbers"], block["count"], block["size"]) != (numbers, frame["count"], len(frame["symbol"])):
            bad = True
        if bad:
            self.refused += 1
            return []
        block = self.blocks.setdefault(frame["first"], {"numbers": numbers, "count": frame["count"],
                                                        "size": len(frame["symbol"]), "sums": {}})
        block["sums"][frame["index"]] = frame["symbol"]
        while len(self.blocks) > 32:
            del self.blocks[next(iter(self.blocks))]
        return self._try_all()

    def _try_all(self):
        out = []
        for first, block in list(self.blocks.items()):
            missing = [i for i, n in enumerate(block["numbers"]) if n not in self.payloads]
            if not missing:
                del self.blocks[first]
            elif len(missing) <= len(block["sums"]):
                del self.blocks[first]
                out += self._solve(block, missing)
        return out

    def _solve(self, block, missing):
        rows = []
        for parity, total in list(block["sums"].items())[: len(missing)]:
            for source, number in enumerate(block["numbers"]):
                if source not in missing:
                    total = add(total, symbol(self.payloads[number]), coefficient(self.scheme, parity, source))
            rows.append([[coefficient(self.scheme, parity, source) for source in missing], total])
        for column in range(len(missing)):
            pivot = next(i for i in range(column, len(rows)) if rows[i][0][column])
            rows[column], rows[pivot] = rows[pivot], rows[column]
            factor = inverse(rows[column][0][column])
            rows[column] = [[times(factor, v) for v in rows[column][0]], rows[column][1].translate(ROWS[factor])]
            for i, row in enumerate(rows):
                if i != column and row[0][column]:
                    factor = row[0][column]
                    rows[i] = [[a ^ times(factor, b) for a, b in zip(row[0], rows[column][0])],
                               add(row[1], rows[column][1], factor)]
        out = []
        for index, row in zip(missing, rows):
            size = int.from_bytes(row[1][:2], "big")
            if size + 2 > len(row[1]) or any(row[1][2 + size :]):
                self.refused += 1
                return []
            out.append((block["numbers"][index], row[1][2 : 2 + size]))
        out = [(n, p) for n, p in out if n not in self.recovered]
        self.recovered.update(n for n, _ in out)
        for number, payload in out:
            self.payloads[number] = payload
        return out
