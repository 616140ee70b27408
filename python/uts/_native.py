"""The library for C, as its header declares it."""

from __future__ import annotations

import ctypes.util
import os
import re
from pathlib import Path
from typing import Any

from cffi import FFI

from ._errors import OF_CODE, Error

_HERE = Path(__file__).resolve().parent
# A wheel has its own; else that of the repository.
_HEADERS = (_HERE / "uts.h", _HERE.parents[1] / "crates/uts-c/include/uts.h")
_LIBRARIES = ("libuts.so.0", "libuts.so", "libuts.dylib", "libuts_c.so")


def _declarations() -> str:
    """The header without what is for a preprocessor."""
    header = next((path for path in _HEADERS if path.exists()), None)
    if header is None:
        raise ImportError(f"uts.h is not beside the package: looked for {', '.join(map(str, _HEADERS))}")
    text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"#ifdef __cplusplus.*?#endif[^\n]*", "", text, flags=re.DOTALL)
    kept = [line for line in text.splitlines() if not line.startswith("#") or re.match(r"#define \w+ \d+$", line)]
    return "\n".join(kept)


def _library() -> str:
    """Where the library is: ``UTS_LIBRARY``, beside the package, or where the system looks."""
    named = os.environ.get("UTS_LIBRARY")
    if named:
        return named
    beside = (_HERE / name for name in _LIBRARIES)
    found = next((str(path) for path in beside if path.exists()), None) or ctypes.util.find_library("uts")
    return found or _LIBRARIES[0]


ffi = FFI()
ffi.cdef(_declarations())
try:
    lib: Any = ffi.dlopen(_library())
except OSError as error:
    raise ImportError(f"{error}; `make c` installs the library, and UTS_LIBRARY names one") from error



def text(of: Any) -> str:
    """A string of the library's."""
    found: bytes = ffi.string(of)
    return found.decode("utf-8", "replace")


def version() -> str:
    """Version of the library."""
    return text(lib.uts_version())


def failure(code: int) -> Error:
    """The error of this code, with the words that the last call has left."""
    name = text(lib.uts_code_name(code))
    return OF_CODE.get(name, Error)(text(lib.uts_error()), name)


def check(code: int) -> int:
    """Raises what is negative."""
    if code < 0:
        raise failure(code)
    return code


def told(call: Any) -> str:
    """Text from a function that writes it into memory: ``call(memory, size, needed)``."""
    needed = ffi.new("size_t *")
    size = 512
    while True:
        memory = ffi.new("char[]", size)
        code = call(memory, size, needed)
        if code != lib.UTS_ETOOSMALL:
            check(code)
            return text(memory)
        size = needed[0] + 1
