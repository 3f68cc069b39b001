"""What a wheel holds besides the files of the checkout: the tables of sketchc.parsing.tables."""

import importlib
import sys

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithTables(build_py):
    """Computes the parse tables in the folder that becomes the wheel."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            sys.path.insert(0, self.build_lib)
            importlib.import_module("sketchc.parsing.tables").ship()


setup(cmdclass={"build_py": BuildWithTables})
