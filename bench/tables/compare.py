# SPDX-License-Identifier: MIT
"""Fills holes of tables with several methods and scores them; see bench/tables/run."""
import argparse
import collections
import csv
import math
import os
import subprocess
import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.environ.get("MONOBOLT", os.path.join(HERE, "..", "..", "build", "monobolt"))


class Table:
    """Columns of text ('' is missing) with their types: n for numbers, c for categories."""

    def __init__(self, name, header, rows):
        self.name, self.header = name, header
        self.cells = np.array(rows, dtype=object)
        self.types = "".join("n" if self.numeric(j) else "c" for j in range(len(header)))

    def numeric(self, j):
        try:
            values = {float(v) for v in self.cells[:, j] if v != ""}
        except ValueError:
            return False
        return len(values) > 2

    def known(self):
        return self.cells != ""

    def write(self, path, cells):
        with open(path, "w", newline="") as f:
            out = csv.writer(f)
            out.writerow(self.header)
            out.writerows(cells)


def read_csv(path):
    with open(path, newline="") as f:
        rows = list(csv.reader(f))
    return rows[0], rows[1:]


def load_tables(folder, wanted):
    from sklearn import datasets
    os.makedirs(folder, exist_ok=True)
    subprocess.run(["Rscript", os.path.join(HERE, "export.R"), folder], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tables = {}
    for name in ("votes", "soybean", "zoo", "dna", "letters", "biopsies"):
        tables[name] = Table(name, *read_csv(os.path.join(folder, name + ".csv")))
    for name, load in (("wine", datasets.load_wine), ("tumours", datasets.load_breast_cancer),
                       ("iris", datasets.load_iris)):
        data = load()
        header = [n.replace(" ", "_") for n in data.feature_names] + ["class"]
        rows = [[repr(float(v)) for v in x] + ["k%d" % y] for x, y in zip(data.data, data.target)]
        tables[name] = Table(name, header, rows)
    return [tables[n] for n in (wanted.split(",") if wanted else tables)]


# ------------------------------------------------------------------- coding for scikit-learn

class Coding:
    """One-hot categories and standardised numbers, NaN where missing. `drop` leaves out the column of
    the most frequent category: linear regressions would find it by the others."""

    def __init__(self, table, cells, drop=False):
        self.drop = drop
        self.table, self.blocks = table, []
        columns = []
        for j, kind in enumerate(table.types):
            known = cells[:, j] != ""
            if kind == "n":
                values = np.array([float(v) if v != "" else np.nan for v in cells[:, j]])
                mean, scale = np.nanmean(values), np.nanstd(values) or 1.0
                self.blocks.append((len(columns), 1, (mean, scale)))
                columns.append((values - mean) / scale)
                continue
            names = [n for n, _ in collections.Counter(cells[known, j]).most_common()]
            self.blocks.append((len(columns), len(names), names))
            if drop:
                self.blocks[-1] = (len(columns), len(names) - 1, names)
            for name in names[drop:]:
                columns.append(np.where(known, (cells[:, j] == name).astype(float), np.nan))
        self.matrix = np.column_stack(columns)

    def decode(self, matrix, j):
        """Text of every row, and the probabilities if they are some."""
        first, count, info = self.blocks[j]
        if self.table.types[j] == "n":
            return matrix[:, first] * info[1] + info[0]
        shares = matrix[:, first:first + count]
        if self.drop:
            shares = np.column_stack([1 - shares.sum(axis=1), shares])
        return np.array([info[k] for k in shares.argmax(axis=1)], dtype=object)


def decode_all(table, coding, matrix):
    return [coding.decode(matrix, j) for j in range(len(table.header))], None


def fill_mode(table, cells, _):
    coding = Coding(table, cells)
    filled = np.where(np.isnan(coding.matrix), np.nanmean(coding.matrix, axis=0), coding.matrix)
    answers, _ = decode_all(table, coding, filled)
    odds = {}
    for j, kind in enumerate(table.types):
        if kind == "c":
            known = cells[cells[:, j] != "", j]
            count = collections.Counter(known)
            odds[j] = [{n: c / len(known) for n, c in count.items()}] * len(cells)
    return answers, odds


def fill_knn(table, cells, _):
    from sklearn.impute import KNNImputer
    coding = Coding(table, cells)
    filled = KNNImputer(n_neighbors=10).fit_transform(coding.matrix)
    odds = {}
    for j, kind in enumerate(table.types):  # the neighbours' shares
        if kind == "c":
            first, count, names = coding.blocks[j]
            shares = np.clip(filled[:, first:first + count], 0, 1)
            odds[j] = [dict(zip(names, row / max(row.sum(), 1e-9))) for row in shares]
    return decode_all(table, coding, filled)[0], odds


def fill_ridge(table, cells, _):
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer
    coding = Coding(table, cells, drop=True)
    imputer = IterativeImputer(max_iter=10, random_state=0)
    return decode_all(table, coding, imputer.fit_transform(coding.matrix))


def fill_forest(table, cells, _):
    """missForest's scheme with scikit-learn's forests of 50 trees: every column from all others, three
    rounds; categories are numbered by frequency."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    n, columns = cells.shape
    coding = Coding(table, cells)
    codes = np.zeros((n, columns))
    for j, kind in enumerate(table.types):
        first, count, info = coding.blocks[j]
        if kind == "n":
            codes[:, j] = np.nan_to_num(coding.matrix[:, first])
        else:
            codes[:, j] = np.nan_to_num(coding.matrix[:, first:first + count]).argmax(axis=1)
    odds = {}
    order = sorted(range(columns), key=lambda j: (cells[:, j] == "").sum())
    for _ in range(3):
        for j in order:
            hidden = cells[:, j] == ""
            if not hidden.any():
                continue
            others = np.delete(codes, j, axis=1)
            make = RandomForestRegressor if table.types[j] == "n" else RandomForestClassifier
            forest = make(n_estimators=50, random_state=0, n_jobs=1).fit(others[~hidden], codes[~hidden, j])
            codes[hidden, j] = forest.predict(others[hidden])
            if table.types[j] == "c":
                names = coding.blocks[j][2]
                row = iter(forest.predict_proba(others[hidden]))
                odds[j] = [dict(zip([names[int(k)] for k in forest.classes_], next(row))) if h else None
                           for h in hidden]
    answers = []
    for j, kind in enumerate(table.types):
        info = coding.blocks[j][2]
        answers.append(codes[:, j] * info[1] + info[0] if kind == "n" else
                       np.array([info[int(k)] for k in codes[:, j]], dtype=object))
    return answers, odds


def fill_mice(table, cells, folder):
    given, prefix = os.path.join(folder, "mice.csv"), os.path.join(folder, "mice-")
    renamed = Table.__new__(Table)
    renamed.header = ["x%d" % j for j in range(len(table.header))]
    renamed.write(given, cells)
    subprocess.run(["Rscript", os.path.join(HERE, "impute.R"), given, prefix, table.types], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
    made = [np.array(read_csv("%s%d.csv" % (prefix, i))[1], dtype=object) for i in range(1, 6)]
    answers, odds = [], {}
    for j, kind in enumerate(table.types):
        if kind == "n":
            answers.append(np.mean([[float(v) if v else np.nan for v in m[:, j]] for m in made], axis=0))
            continue
        counts = [collections.Counter(m[i, j] for m in made) for i in range(len(cells))]
        answers.append(np.array([c.most_common(1)[0][0] for c in counts], dtype=object))
        odds[j] = [{n: k / 5 for n, k in c.items()} for c in counts]
    return answers, odds


def fill_monobolt(table, cells, folder):
    given, spec = os.path.join(folder, "holes.csv"), os.path.join(folder, "holes.ini")
    out, filled = os.path.join(folder, "out"), os.path.join(folder, "filled.csv")
    table.write(given, cells)
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["rm", "-rf", out, spec], check=True)
    subprocess.run([TOOL, "spec", given, "--out", spec, "--test", "0"] + OPTIONS.spec.split(), **quiet)
    for change in OPTIONS.change or []:
        key, value = change.split("=")
        text = open(spec).read()
        section, name = key.split(".")
        lines, inside, done = [], False, False
        for line in text.split("\n"):
            if line.startswith("["):
                if inside and not done:
                    lines.append("%s = %s" % (name, value))
                    done = True
                inside = line.startswith("[" + section + "]")
            if inside and line.split("=")[0].strip() == name:
                line, done = "%s = %s" % (name, value), True
            lines.append(line)
        if inside and not done:
            lines.append("%s = %s" % (name, value))
        open(spec, "w").write("\n".join(lines) + "\n")
    subprocess.run([TOOL, "train", spec, "--out", out, "--validate", "0", "--threads", "1"], **quiet)
    subprocess.run([TOOL, "infer", os.path.join(out, "network.safetensors"), given, "--out", filled,
                    "--all", "--threads", "1"], **quiet)
    made = np.array(read_csv(filled)[1], dtype=object)
    where = {name: j for j, name in enumerate(table.header)}
    odds = {j: [None] * len(cells) for j, kind in enumerate(table.types) if kind == "c"}
    for row, _, column, value, p in read_csv(filled.replace(".csv", ".cells.csv"))[1]:
        j = where[column]
        if table.types[j] == "c":
            i = int(row) - 1
            odds[j][i] = odds[j][i] or {}
            odds[j][i][value] = float(p)
    answers = [made[:, j].astype(float) if kind == "n" else made[:, j]
               for j, kind in enumerate(table.types)]
    return answers, odds


METHODS = collections.OrderedDict([
    ("monobolt", fill_monobolt), ("mode/mean", fill_mode), ("kNN", fill_knn), ("ridge", fill_ridge),
    ("forest", fill_forest), ("mice", fill_mice)])


# -------------------------------------------------------------------------------- scores

def calibration(pairs):
    """Expected calibration error in 15 bins of (confidence, right)."""
    bins = [[0, 0, 0] for _ in range(15)]
    for p, right in pairs:
        b = bins[min(int(15 * p), 14)]
        b[0] += p
        b[1] += right
        b[2] += 1
    return sum(abs(b[0] - b[1]) for b in bins) / max(len(pairs), 1)


def score(table, hidden, answers, odds):
    right = cells = 0
    square = numbers = 0.0
    bits, pairs = [], []
    for j, kind in enumerate(table.types):
        rows = np.nonzero(hidden[:, j])[0]
        truth = table.cells[rows, j]
        if kind == "n":
            all_values = np.array([float(v) for v in table.cells[:, j] if v != ""])
            scale = all_values.std() or 1.0
            away = (np.array([float(v) for v in truth]) - answers[j][rows].astype(float)) / scale
            away[np.isnan(away)] = 3.0  # not filled at all
            square += float(np.sum(away ** 2))
            numbers += len(rows)
            continue
        right += int((answers[j][rows] == truth).sum())
        cells += len(rows)
        for i, value in zip(rows, truth):
            if odds and odds.get(j) and odds[j][i]:
                p = odds[j][i]
                best = max(p, key=p.get)
                bits.append(-math.log2(max(p.get(value, 0), 1e-3)))
                pairs.append((p[best], best == value))
    return {"accuracy": right / cells if cells else math.nan,
            "rmse": math.sqrt(square / numbers) if numbers else math.nan,
            "bits": float(np.mean(bits)) if bits else math.nan,
            "ece": calibration(pairs) if pairs else math.nan}


def hide(table, rate, seed):
    random = np.random.RandomState(seed)
    hidden = table.known() & (random.rand(*table.cells.shape) < rate)
    for j in range(hidden.shape[1]):  # a value is left in every column
        if not (table.known()[:, j] & ~hidden[:, j]).any():
            hidden[np.nonzero(hidden[:, j])[0][0], j] = False
    cells = table.cells.copy()
    cells[hidden] = ""
    return cells, hidden


FIGURES = ("accuracy", "rmse", "bits", "ece", "seconds")


def write_table(results, path):
    groups = collections.OrderedDict()
    for r in results:
        groups.setdefault((r["table"], r["rate"]), collections.OrderedDict()).setdefault(
            r["method"], []).append(r)
    with open(path, "w") as out:
        out.write("| table | hidden | method | accuracy, % | RMSE | bits | calibration error, % | s |\n"
                  "|---|---|---|---|---|---|---|---|\n")
        for (table, rate), methods in groups.items():
            for method, runs in methods.items():
                cells = []
                for figure in FIGURES:
                    values = [r[figure] for r in runs]
                    mean, spread = np.mean(values), np.std(values, ddof=1) if len(values) > 1 else 0
                    factor = 100 if figure in ("accuracy", "ece") else 1
                    digits = 1 if figure in ("accuracy", "ece", "seconds") else 3
                    text = "–" if math.isnan(mean) else "%.*f" % (digits, factor * mean)
                    if figure in ("accuracy", "rmse") and spread > 0 and not math.isnan(mean):
                        text += " ± %.*f" % (digits, factor * spread)
                    cells.append(text)
                out.write("| %s | %d %% | %s | %s |\n" % (table, round(100 * rate), method,
                                                          " | ".join(cells)))


def write_summary(results, path):
    """A line per table and share, a column per method, the best in bold."""
    methods = list(collections.OrderedDict.fromkeys(r["method"] for r in results))
    with open(path, "w") as out:
        for figure, title, factor, digits, best_of in (
                ("accuracy", "Accuracy of categories, %", 100, 1, max),
                ("rmse", "RMSE of numbers, standardised", 1, 3, min),
                ("bits", "Bits per categorical cell", 1, 3, min),
                ("ece", "Calibration error, %", 100, 1, min)):
            lines = []
            for table in collections.OrderedDict.fromkeys(r["table"] for r in results):
                for rate in sorted({r["rate"] for r in results}):
                    means = {}
                    for m in methods:
                        values = [r[figure] for r in results if (r["table"], r["rate"], r["method"])
                                  == (table, rate, m) and not math.isnan(r[figure])]
                        if values:
                            means[m] = factor * sum(values) / len(values)
                    if not means:
                        continue
                    best = best_of(means.values())
                    cells = ["–" if m not in means else
                             ("**%.*f**" if means[m] == best else "%.*f") % (digits, means[m])
                             for m in methods]
                    lines.append("| %s | %d %% | %s |" % (table, round(100 * rate), " | ".join(cells)))
            out.write("| %s | hidden | %s |\n|---|---|%s\n%s\n\n" % (
                title, " | ".join(methods), "---|" * len(methods), "\n".join(lines)))


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(prog="bench/tables/run")
    parser.add_argument("--tables", default="")
    parser.add_argument("--rates", default="0.1,0.3,0.5")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", default="out/tables")
    parser.add_argument("--spec", default="", help="more options of monobolt spec")
    parser.add_argument("--change", action="append", help="SECTION.KEY=VALUE in the spec")
    OPTIONS = parser.parse_args()
    os.makedirs(OPTIONS.out, exist_ok=True)
    results = []
    for table in load_tables(os.path.join(OPTIONS.out, "data"), OPTIONS.tables):
        for rate in (float(r) for r in OPTIONS.rates.split(",")):
            for seed in range(1, OPTIONS.seeds + 1):
                cells, hidden = hide(table, rate, seed)
                for name in OPTIONS.methods.split(","):
                    began = time.time()
                    try:
                        answers, odds = METHODS[name](table, cells, OPTIONS.out)
                    except (subprocess.SubprocessError, ValueError) as why:
                        print("%s, %g, %s: failed: %s" % (table.name, rate, name, why), file=sys.stderr)
                        continue
                    figures = score(table, hidden, answers, odds)
                    figures["seconds"] = time.time() - began
                    results.append(dict(figures, table=table.name, rate=rate, seed=seed, method=name))
                    print("%-9s %3.0f %% seed %d %-10s" % (table.name, 100 * rate, seed, name) + "".join(
                        "  %s %.4g" % (k, figures[k]) for k in FIGURES if not math.isnan(figures[k])),
                        flush=True)
    with open(os.path.join(OPTIONS.out, "results.csv"), "w", newline="") as f:
        out = csv.DictWriter(f, ["table", "rate", "seed", "method"] + list(FIGURES))
        out.writeheader()
        out.writerows(results)
    write_table(results, os.path.join(OPTIONS.out, "table.md"))
    write_summary(results, os.path.join(OPTIONS.out, "summary.md"))
    print(os.path.join(OPTIONS.out, "table.md"))


main()
