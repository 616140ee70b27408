"""The wheel is of one system where the library is inside, and of any version of Python."""

from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

HAS_LIBRARY = any((Path(__file__).resolve().parent / "uts").glob("libuts*"))


class Wheel(bdist_wheel):
    """A wheel with a library, or without."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not HAS_LIBRARY

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(cmdclass={"bdist_wheel": Wheel})
