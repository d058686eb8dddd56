# SPDX-License-Identifier: MIT
"""Imputers before the same classifier, cross-validated on tables with missing cells; and the classifiers that
need no imputer. See bench/tables/pipeline."""
import argparse
import csv
import os
import subprocess
import time
import warnings

import numpy as np
from sklearn import datasets
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.compose import make_column_transformer

from monobolt.sklearn import MonoboltClassifier, MonoboltImputer

warnings.filterwarnings("ignore")
CLASS = {"votes": "Class", "soybean": "Class", "zoo": "type", "dna": "Class", "biopsies": "Class"}


def load(name, folder):
    """(cells, NaN where missing: numbers, or numbers of categories; which columns are categories; classes)"""
    loader = {"wine": datasets.load_wine, "iris": datasets.load_iris, "tumours": datasets.load_breast_cancer}
    if name in loader:
        X, y = loader[name](return_X_y=True)
        return X, [], y
    path = os.path.join(folder, name + ".csv")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        subprocess.run(["Rscript", os.path.join(os.path.dirname(__file__), "export.R"), folder], check=True)
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    header, cells = rows[0], np.array(rows[1:], dtype=object)
    at = [h.lower() for h in header].index(CLASS[name].lower())
    y, X = cells[:, at], np.delete(cells, at, axis=1)
    keep = y != ""
    X = np.where(X[keep] == "", np.nan, X[keep])
    codes = OrdinalEncoder().fit_transform(X)  # keeps NaN
    return codes, list(range(codes.shape[1])), np.unique(y[keep], return_inverse=True)[1]


def after(categorical, n):
    """The classifier, on scaled numbers or one-hot categories."""
    model = LogisticRegression(max_iter=2000)
    if not categorical:
        return make_pipeline(StandardScaler(), model)
    # an imputed number is rounded to the nearest category
    return make_pipeline(Rounded(), OneHotEncoder(handle_unknown="ignore"), model)


class Rounded:
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.rint(np.asarray(X, dtype=float))

    def get_params(self, deep=True):
        return {}

    def set_params(self, **_):
        return self


def methods(categorical, n, steps):
    mode = "most_frequent" if categorical else "mean"
    return {
        "SimpleImputer": make_pipeline(SimpleImputer(strategy=mode), after(categorical, n)),
        "IterativeImputer": make_pipeline(IterativeImputer(random_state=0), after(categorical, n)),
        "MonoboltImputer": make_pipeline(MonoboltImputer(categorical_features=categorical, steps=steps,
                                                         random_state=0), after(categorical, n)),
        "MonoboltClassifier": MonoboltClassifier(categorical_features=categorical, steps=steps, random_state=0),
    }


def main():
    parser = argparse.ArgumentParser(prog="bench/tables/pipeline")
    parser.add_argument("--tables", default="iris,wine,votes,zoo,biopsies,tumours")
    parser.add_argument("--rates", default="0.3,0.5")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=None, help="of training; default: as monobolt spec has it")
    parser.add_argument("--data", default="out/tables/data", help="where the tables of mlbench are, or are put")
    options = parser.parse_args()
    print("| table | hidden | %s |\n|---|---|%s" % (" | ".join(methods([], 1, 1)), "---|" * 4), flush=True)
    for name in options.tables.split(","):
        X, categorical, y = load(name, options.data)
        for rate in (float(r) for r in options.rates.split(",")):
            hidden = np.random.RandomState(1).rand(*X.shape) < rate
            given, cells = np.where(hidden, np.nan, X), []
            folds = StratifiedKFold(options.folds, shuffle=True, random_state=0)
            for model in methods(categorical, X.shape[1], options.steps).values():
                began = time.time()
                scores = cross_val_score(model, given, y, cv=folds)
                cells.append("%.1f (%.0f s)" % (100 * scores.mean(), time.time() - began))
            print("| %s | %d %% | %s |" % (name, 100 * rate, " | ".join(cells)), flush=True)


main()
