# SPDX-License-Identifier: MIT
"""Functions of the public headers that the package does not wrap, and why. All of them can be called as
monobolt.lib.NAME; a test checks that every function is either used or listed here."""
from typing import Dict

_BASELINE = "the paper's baseline, for comparisons: `monobolt rbm`"
_FILES = "Python writes files, numpy arrays and pictures by itself"
_CSV = "Python's csv module, or pandas"
_DEFAULTS = "mb_settings_default on the table does the same"
_PLOTS = "matplotlib"
_MEASURING = "`monobolt bench`"

LEFT_OUT: Dict[str, str] = {
    "mb_solver_settings_default": _DEFAULTS,
    "mb_sample_settings_default": _DEFAULTS,
    "mb_file_save": _FILES,
    "mb_folder_make": _FILES,
    "mb_npy_write": _FILES,
    "mb_png_write": _FILES,
    "mb_csv_find": _CSV,
    "mb_csv_names": _CSV,
    "mb_csv_numbers": _CSV,
    "mb_csv_shown": _CSV,
    "mb_spec_key_at": "for the documents that the tool writes: docs/specs.md",
    "mb_edit_distance": "for the tool's messages",
    "mb_known_class_names": "a dataset that is loaded has them: Dataset.class_names",
    "mb_known_recoded": "for the tool's messages",
    "mb_predictor_interrupt": "Ctrl-C calls it, in C",
    "mb_plot_write": _PLOTS,
    "mb_plot_print": _PLOTS,
    "mb_measure_prox": _MEASURING,
    "mb_measure_operator": _MEASURING,
    "mb_measure_sgemm": _MEASURING,
    **{"mb_rbm_" + name: _BASELINE for name in (
        "settings_table", "create", "load", "destroy", "describe", "settings_of", "parameters_of", "save",
        "masks", "trainer_create", "trainer_destroy", "trainer_step", "trainer_gradient", "trainer_save",
        "trainer_resume", "inference_table", "predictor_create", "predictor_destroy", "predictor_run",
        "predictor_batch", "evaluate")},
}
