# SPDX-License-Identifier: MIT
"""The notebooks are those of the scripts beside them. They are not run here."""
import json
import runpy

import pytest


@pytest.mark.parametrize("name", ["complete_digits", "fill_a_table"])
def test_notebook_agrees_with_its_script(root, name, tmp_path):
    agree = runpy.run_path(str(root / "examples" / "make-notebooks"))["agree"]
    script = root / "examples" / (name + ".py")
    path = script.with_suffix(".ipynb")
    assert agree(script), "run examples/make-notebooks"
    made = path.read_text()
    assert len(made) < 300_000 and "image/png" in made
    for word in ("Traceback", str(root), *(f"/{folder}/" for folder in ("home", "tmp", "root"))):
        assert word not in made
    (tmp_path / script.name).write_text(script.read_text().replace("import numpy as np", "import numpy as n", 1))
    (tmp_path / path.name).write_text(json.dumps(json.loads(made)))
    assert not agree(tmp_path / script.name)  # a change is noticed
