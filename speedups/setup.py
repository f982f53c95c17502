"""Compile every Cython module of the package, when extensions are built and not before: an sdist needs no compiler."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
}
USUAL = ["-O2", "-g0"]
SANITIZED = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
"""Options of a build that ends at the first wrong access (``MIGRATOR_SANITIZE=1``, see ``make speedups-asan``)."""


class Build(build_ext):
    """Translates Cython to C in ``build/`` before it compiles."""

    def build_extensions(self) -> None:
        """Give every module the C that it was translated to."""
        translated = cythonize(self.extensions, build_dir="build", compiler_directives=DIRECTIVES)
        for module, made in zip(self.extensions, translated, strict=True):
            module.sources = made.sources
            module.extra_compile_args = SANITIZED if os.environ.get("MIGRATOR_SANITIZE") else USUAL
            module.extra_link_args = SANITIZED if os.environ.get("MIGRATOR_SANITIZE") else []
        super().build_extensions()


here = Path(__file__).resolve().parent
sources = sorted(path.relative_to(here) for path in here.glob("migrator_speedups/*.pyx"))
setup(
    ext_modules=[Extension(f"migrator_speedups.{path.stem}", [str(path)]) for path in sources],
    cmdclass={"build_ext": Build},
)
