"""What is copied: files made from a seed, and the check that a copy is the same."""

import hashlib
import os
import random
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000
# What is written and hashed at once.
BLOCK_BYTES = 1 << 20
# A block of data in a sparse file.
ISLAND_BYTES = 64 << 10


@dataclass(frozen=True)
class Sizes:
    """How much a path's cases copy."""

    one_bytes: int
    many_files: int
    sparse_bytes: int
    sparse_data_bytes: int
    half_bytes: int


@dataclass(frozen=True)
class Case:
    """A source: a file or a directory."""

    name: str
    says: str
    source: Path
    files: int
    content_bytes: int
    # What is there before the measured copy: nothing, or a copy that was interrupted at about half.
    is_resumed: bool = False

    @property
    def is_directory(self) -> bool:
        return self.source.is_dir()


def make(names: list[str], sizes: Sizes, directory: Path) -> list[Case]:
    """Makes the sources of these cases; one that is there with its size is used again."""
    makers = {"one": _one, "many": _many, "sparse": _sparse, "half": _half}
    return [makers[name](sizes, directory) for name in names]


def _says(count: int) -> str:
    return f"{count / 1000 / MB:g} GB" if count >= 1000 * MB else f"{count / MB:g} MB"


def _one(sizes: Sizes, directory: Path) -> Case:
    path = _random_file(directory / f"one-{sizes.one_bytes}.bin", sizes.one_bytes)
    return Case("one", f"one file of {_says(sizes.one_bytes)}", path, 1, sizes.one_bytes)


def _half(sizes: Sizes, directory: Path) -> Case:
    path = _random_file(directory / f"one-{sizes.half_bytes}.bin", sizes.half_bytes)
    says = f"the rest of {_says(sizes.half_bytes)} after a copy was interrupted at half"
    return Case("half", says, path, 1, sizes.half_bytes, is_resumed=True)


def _random_file(path: Path, count: int) -> Path:
    if path.exists() and path.stat().st_size == count:
        return path
    source = random.Random(count)
    with path.open("wb") as file:
        for begin in range(0, count, BLOCK_BYTES):
            file.write(source.randbytes(min(BLOCK_BYTES, count - begin)))
    return path


def _many(sizes: Sizes, directory: Path) -> Case:
    root = directory / f"many-{sizes.many_files}"
    source = random.Random(sizes.many_files)
    lengths = [source.randint(1000, 16_000) for _ in range(sizes.many_files)]
    for index, length in enumerate(lengths):
        folder = root / f"d{index // 100:03}"
        if index % 100 == 0:
            folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"f{index:05}"
        if not path.exists() or path.stat().st_size != length:
            path.write_bytes(random.Random(index).randbytes(length))
    says = f"{sizes.many_files} files of 1 to 16 kB ({_says(sum(lengths) // MB * MB)}), 100 in a directory"
    return Case("many", says, root, sizes.many_files, sum(lengths))


def _sparse(sizes: Sizes, directory: Path) -> Case:
    path = directory / f"sparse-{sizes.sparse_bytes}.img"
    islands = max(1, sizes.sparse_data_bytes // ISLAND_BYTES)
    distance = sizes.sparse_bytes // islands // ISLAND_BYTES * ISLAND_BYTES
    with path.open("wb") as file:
        file.truncate(sizes.sparse_bytes)
        for index in range(islands):
            file.seek(index * distance)
            file.write(random.Random(index).randbytes(ISLAND_BYTES))
    says = f"{_says(sizes.sparse_bytes)} of holes with {islands * ISLAND_BYTES / MB:.1f} MB of data"
    return Case("sparse", says, path, 1, sizes.sparse_bytes)


def files_of(root: Path) -> list[Path]:
    """All regular files at or beneath a path."""
    if root.is_file():
        return [root]
    return sorted(Path(folder, name) for folder, _, names in os.walk(root) for name in names)


def manifest(root: Path, top: Path) -> dict[str, str]:
    """The hash of each file, by its name beneath `top`."""
    hashes = {}
    for path in files_of(root):
        with path.open("rb") as file:
            hashes[str(path.relative_to(top))] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def allocated_bytes(root: Path) -> int:
    """What files take on the disk."""
    total = 0
    for path in files_of(root):
        try:
            total += path.lstat().st_blocks * 512
        except FileNotFoundError:
            continue  # It got its final name meanwhile.
    return total


def warm(case: Case) -> None:
    """Reads all data of a source, so that each tool finds it in the page cache."""
    for path in files_of(case.source):
        with path.open("rb", buffering=0) as file:
            end, at = path.stat().st_size, 0
            while at < end:
                try:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA)
                    hole = os.lseek(file.fileno(), at, os.SEEK_HOLE)
                except OSError:
                    break  # Nothing but a hole is left.
                file.seek(at)
                while at < hole and (read := len(file.read(min(BLOCK_BYTES, hole - at)))):
                    at += read
