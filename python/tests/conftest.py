# SPDX-License-Identifier: MIT
"""With MB_CTEST each test is reported in the manner of cmocka, which is what scripts/run-tests counts."""
import os
import pathlib

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def random():
    return np.random.RandomState(7)


def pytest_runtest_logreport(report):
    if not os.environ.get("MB_CTEST") or (report.when != "call" and report.passed):
        return
    ending = "      OK" if report.passed else " SKIPPED" if report.skipped else "  FAILED"
    print("\n[ RUN      ] %s\n[ %s ] %s" % (report.nodeid, ending, report.nodeid), flush=True)
