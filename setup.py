"""What a wheel holds besides the files of the checkout: the tables of sketchc.parsing.parser."""

import importlib
import sys

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py


class BuildWithTables(build_py):
    """Computes the parse tables in the folder that becomes the wheel."""

    def run(self) -> None:
        """Build, then add the parse tables, unless the folder is the checkout itself."""
        super().run()
        if not self.editable_mode:
            sys.path.insert(0, self.build_lib)
            importlib.import_module("sketchc.parsing.parser").ship()


#: The folders at the top, which install as one package; a new package in one of them needs no line.
PARTS = ("agents", "docspec", "grammar", "lowering", "runtime")
PACKAGES = ["sketchc", *(f"sketchc.{name}" for name in find_packages("sketchc"))]
for part in PARTS:
    PACKAGES += [f"sketchc.{part}", *(f"sketchc.{part}.{name}" for name in find_packages(part))]

setup(cmdclass={"build_py": BuildWithTables}, packages=PACKAGES)
