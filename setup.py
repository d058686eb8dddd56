# SPDX-License-Identifier: MIT
"""So that `pip install .` works at the top of the project; the package is in python/."""
import os
import runpy

runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "python", "setup.py"), run_name="__main__")
