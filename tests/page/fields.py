# SPDX-License-Identifier: MIT
"""usage: fields.py FOLDER...: every number and picture of index.html against the CSV files beside it."""
import base64
import csv
import html.parser
import json
import math
import os
import re
import struct
import subprocess
import sys
import zlib

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
VOID = {"meta", "img", "br", "input", "link"}


def rows_of(folder, target):
    with open(os.path.join(folder, target + ".csv"), encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


class Page(html.parser.HTMLParser):
    """Fields, differences and pictures by section; text that is neither, by the element it is in."""

    def __init__(self):
        super().__init__()
        self.stack, self.section = [], None
        self.fields, self.differences, self.loose = [], [], []
        self.pictures, self.carried, self.links, self.sections = [], {}, [], []

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if tag == "section":
            self.section = a["id"]
            self.sections.append(self.section)
        if tag not in VOID:
            self.stack.append((tag, a))
        self.links += [(k, a[k]) for k in ("src", "href") if a.get(k)]
        if tag == "img" and "svg" not in a["src"][:30]:
            owner = next((x for _, x in reversed(self.stack) if "data-picture" in x or "data-iteration" in x))
            self.pictures.append((self.section, owner, a))
        for name, to in (("data-field", self.fields), ("data-difference", self.differences)):
            if name in a:
                to.append([self.section, a[name], ""])

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop()[0] != tag:
            pass
        if tag == "section":
            self.section = None

    def handle_data(self, data):
        names = [n for _, a in self.stack for n in a]
        tags = [t for t, _ in self.stack]
        if "data-field" in names:
            self.fields[-1][2] += data
        elif "data-difference" in names:
            self.differences[-1][2] += data
        elif ("script", {"type": "text/csv"}) in self.stack:
            self.carried[self.section] = self.carried.get(self.section, "") + data
        elif "data-constant" not in names and not {"script", "style"} & set(tags):
            kinds = [a.get("class", "") for _, a in self.stack]
            self.loose.append((self.section, tags, kinds, data))


def decode(address):
    """A PNG of our own writing, whose lines have no filter: height, width, depth, bytes."""
    data = base64.b64decode(address.split(",", 1)[1])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, body = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        content = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", content[:10])
        if kind == b"IDAT":
            body += content
        at += 12 + length
    depth = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    raw, line = zlib.decompress(body), 1 + width * depth
    assert len(raw) == height * line and all(raw[y * line] == 0 for y in range(height))
    return height, width, depth, [list(raw[y * line + 1:(y + 1) * line]) for y in range(height)]


def pixels_of(folder, target):
    """{(picture, iteration, channel, kind): lines of fields}"""
    found = {}
    for row in rows_of(folder, target + "-pixels")[1:]:
        lines = found.setdefault(tuple(row[:4]), [])
        assert int(row[4]) == len(lines), row
        lines.append(row[5:])
    return found


# ------------------------------------------------------------------------------- tests --

def numbers_are_fields(folder, page):
    files = {s: rows_of(folder, s) for s in page.sections}
    assert len(page.fields) > 60, len(page.fields)
    shown = set()
    for section, field, text in page.fields:
        line, column = field.split(":")
        rows = files[section]
        want = rows[int(line)][rows[0].index(column)]
        assert text == want and want != "", (section, field, text, want)
        shown.add((section, int(line), column))
    for section, rows in files.items(): # and none is left out that belongs into a table or beside a picture
        for line, row in enumerate(rows[1:], 1):
            part, name, column, x, value, paper = row
            beside = part == "pictures" and column in ("residual", "iterations")
            if value and (column or part in ("setup", "frames")) and not beside:
                assert (section, line, "value") in shown, (section, row)
            if paper:
                assert (section, line, "paper") in shown, (section, row)


def differences_are_those_of_their_fields(folder, page):
    asked = set()
    for section, line, text in page.differences:
        row = rows_of(folder, section)[int(line)]
        assert text == "%+.4g" % (float(row[4]) - float(row[5])), (section, line, text)
        asked.add((section, int(line)))
    for section in page.sections:
        for line, row in enumerate(rows_of(folder, section)[1:], 1):
            if row[0] != "setup" and row[4] and row[5]:
                assert (section, line) in asked, (section, row)


def no_other_number_is_said(folder, page):
    looked = 0
    for section, tags, kinds, text in page.loose:
        if section is None:
            continue
        table = "td" in tags and "number" in kinds
        sentence = {"note", "budget", "verdict", "label"} & set(kinds) or "figcaption" in tags
        looked += bool(table or sentence)
        if not (table or sentence):
            continue
        known = {f for row in rows_of(folder, section) for f in row}
        for number in NUMBER.findall(text):
            assert not table and number in known, (section, text)
    assert looked > 20, looked


def smaller_budgets_are_said(folder, page):
    for section in page.sections:
        for line, row in enumerate(rows_of(folder, section)[1:], 1):
            if row[0] != "setup" or not row[5]:
                continue
            try:
                smaller = float(row[4]) < float(row[5])
            except ValueError:
                smaller = row[4] != row[5]
            # once in the table of the setup, and once in the sentence
            count = sum(f[:2] == [section, f"{line}:paper"] for f in page.fields)
            assert count == 1 + smaller, (section, row, count)


def page_needs_nothing_else(folder, page):
    for kind, address in page.links:
        if kind == "src":
            assert address.startswith("data:image/"), address
        elif address.startswith("#"):
            assert address[1:] in page.sections, address
        else:
            assert os.path.exists(os.path.join(folder, address)), address
    contents = [a[1:] for k, a in page.links if k == "href" and a.startswith("#")]
    assert contents == page.sections, contents
    for section, text in page.carried.items():
        with open(os.path.join(folder, section + "-pixels.csv"), encoding="utf-8", newline="") as file:
            assert text == "\n" + file.read(), section
    files = {name[:-len("-pixels.csv")] for name in os.listdir(folder) if name.endswith("-pixels.csv")}
    assert set(page.carried) == files and files >= {"patch", "patch-label", "extrapolate-mnist", "cifar-joint",
                                                    "extrapolate-cifar", "table-cifar"}, files


def heat(share):
    stops = ((10, 8, 30), (112, 26, 90), (222, 92, 46), (252, 236, 160))
    at = 3 * min(max(share, 0), 1)
    low = min(int(at), 2)
    return [math.floor(a + (at - low) * (b - a) + 0.5) for a, b in zip(stops[low], stops[low + 1])]


def pictures_are_those_of_the_file(folder, page):
    count = frames = 0
    for section, owner, image in page.pictures:
        files = pixels_of(folder, section)
        height, width, depth, lines = decode(image["src"])
        first = next(iter(files))[0]
        key = (owner.get("data-picture", first), owner.get("data-iteration", ""))
        channels = len({k[2] for k in files if k[3] == "original"})
        flat = lambda kind: [[int(v) for x in range(width) for v in
                              [files[key + (str(c), kind)][y][x] for c in range(channels)]]
                             for y in range(height)]
        shown = files[(key[0], "", "0", "shown")]
        if "data-iteration" in owner or image["alt"] == "completed":
            assert lines == flat("completed"), (section, key)
            frames += "data-iteration" in owner
        elif image["alt"] in ("original", "deep RBM"):
            assert lines == flat({"deep RBM": "beside"}.get(image["alt"], "original")), (section, key)
        elif image["alt"] == "observed":
            alpha = [[line[x * depth + depth - 1] for x in range(width)] for line in lines]
            assert alpha == [[255 * int(v) for v in line] for line in shown], (section, key)
        else:
            assert image["alt"] == "entropy" and depth == 3
            bins = len({k[3] for k in files if k[3].startswith("percent-")})
            for y in range(height):
                for x in range(width):
                    p = [files[key + (str(c), f"percent-{b}")][y][x] for c in range(channels)
                         for b in range(bins)]
                    bits = -sum(float(v) / 100 * math.log(float(v) / 100) for v in p if v and float(v) > 0)
                    want = heat(bits / channels / math.log(bins))
                    got = lines[y][3 * x:3 * x + 3]
                    assert all(abs(a - b) <= 1 for a, b in zip(got, want)), (section, key, y, x, got, want)
        count += 1
    assert count > 40 and frames >= 6, (count, frames)


def distributions_are_what_is_completed(folder, page):
    """Before training a bin stands for its centre."""
    for section in page.carried:
        files = pixels_of(folder, section)
        bins = len({k[3] for k in files if k[3].startswith("percent-")})
        for (picture, iteration, channel, kind), lines in files.items():
            if iteration or kind != "completed":
                continue
            shown = files[(picture, "", "0", "shown")]
            for y, line in enumerate(lines):
                for x, value in enumerate(line):
                    p = [files[(picture, "", channel, f"percent-{b}")][y][x] for b in range(bins)]
                    if shown[y][x] == "1":
                        assert p == [""] * bins
                        assert value == files[(picture, "", channel, "original")][y][x]
                        continue
                    p = [float(v) for v in p]
                    assert abs(sum(p) - 100) <= 0.05 * bins + 1e-9, (section, picture, y, x, p)
                    mean = sum(v * (b + 0.5) / bins for b, v in enumerate(p)) / 100
                    assert abs(255 * mean - int(value)) <= 0.5 + 255 * 0.0005 * bins, (picture, y, x)


def frames_follow_each_other(folder, page):
    for section in page.carried:
        rows = [r for r in rows_of(folder, section) if r[0] == "frames"]
        for name in ("update residual", "certificate"):
            at = [int(r[3]) for r in rows if r[1] == name]
            assert at == list(range(len(at))) and len(at) >= 3, at
            values = [float(r[4]) for r in rows if r[1] == name]
            assert values[-1] < values[0], values
        kept = {k[1] for k in pixels_of(folder, section) if k[1]}
        assert kept == {str(i) for i in range(len(at))}, kept


def errors_are_those_of_eval(folder, page):
    spec = folder + ".ini"
    base = [os.environ["MONOBOLT"], "eval", spec, "--untrained", "--runs", "1", "--threads", "1", "--json"]
    base += ["--data", "pictures"] if folder == "colour" else ["--limit", "4"]
    height = len(next(iter(pixels_of(folder, "patch").values())))
    half = str((height * 4 + 4) // 8)
    for section, part, row, mask in (("patch", "patch", str(height // 2), ["patch", "--patch", str(height // 2)]),
                                     ("extrapolate-mnist", "lines", half, ["bottom"])):
        found = {r[2]: r[4] for r in rows_of(folder, section) if r[:2] == [part, row]}
        if mask == ["bottom"] and height % 2: # of an odd height the halves are cut elsewhere
            continue
        answer = json.loads(subprocess.run(base + ["--mask"] + mask, check=True, capture_output=True).stdout)
        answer = answer[0] if isinstance(answer, list) else answer
        for name, key in (("RMSE", "rmse_raw"), ("squared error", "squared_error"),
                          ("iterations", "iterations"), ("converged", "converged")):
            assert found[name] == "%.4g" % answer[key]["mean"], (section, name, found[name], answer[key])
        wrong = 1 - answer["label_accuracy"]["mean"]
        assert abs(float(found["label error"]) - wrong) < 1e-3, (found, wrong)


def answers_are_those_of_eval(folder, page):
    """Colour images, asked to the tolerance that the target says; two masks."""
    base = [os.environ["MONOBOLT"], "eval", folder + ".ini", "--untrained", "--runs", "2", "--threads", "1", "--json"]
    base += ["--data", "pictures"] if folder == "colour" else ["--limit", "4"]
    for section, share, wanted in (("cifar-joint", "0.5", (("accuracy", "shipped", "label_accuracy", 100),)),
                                   ("table-cifar", "0.4", (("squared", "shipped", "squared_error", 1),
                                                           ("squared", "shipped-mean", "squared_error_mean", 1),
                                                           ("rmse", "shipped", "rmse_raw", 1)))):
        rows = rows_of(folder, section)
        tolerance = next(r[4] for r in rows if r[:2] == ["setup", "tolerance of its answers"])
        answer = json.loads(subprocess.run(base + ["--observe", share, "--tolerance", tolerance], check=True,
                                           capture_output=True).stdout)
        answer = answer[0] if isinstance(answer, list) else answer
        for part, row, key, scale in wanted:
            found = next(r[4] for r in rows if r[:2] == [part, row] and r[3] == share)
            assert found == "%.4g" % (scale * answer[key]["mean"]), (section, part, found, answer[key])


def tables_stand_beside_others(folder, page):
    """Colours are divided by the bins of one channel and by those of all; what is shown stays in the machine's
    pictures; others' errors are where they were published."""
    for section in {"table-mnist", "table-cifar"} & set(page.sections):
        rows = rows_of(folder, section)
        value = {tuple(r[:3]): r[4] for r in rows}
        files = pixels_of(folder, section)
        channels = len({k[2] for k in files})
        both = [k for k in value if k[0] == "squared"]
        assert {k[1] for k in both} >= {"shipped", "shipped-mean", "rbm-mean-field", "rbm-gibbs", "mean-image"}
        for part, row, share in both:
            other = value.get(("squared-all", row, share))
            assert (other is not None) == (channels == 3), (section, row, share)
            assert other is None or abs(float(other) * 3 / float(value[part, row, share]) - 1) < 1e-3
        paper = {r[1] for r in rows if r[0] == "squared" and r[5]}
        assert "rbm-gibbs" not in paper and paper >= {"shipped", "shipped-mean", "rbm-mean-field"}, paper
        emflow = {r[3]: r[4] for r in rows if r[:2] == ["rmse", "emflow"]}
        assert emflow["0.1"] == ("0.119" if section == "table-cifar" else "0.195"), emflow
        for (picture, iteration, channel, kind), lines in files.items():
            if kind == "beside":
                shown, original = files[picture, "", "0", "shown"], files[picture, "", channel, "original"]
                assert all(a == b for l, o, s in zip(lines, original, shown) for a, b, c in zip(l, o, s) if c == "1")
        assert {k[3] for k in files} >= {"beside"}, section


def the_mean_image_is_the_mean(folder, page):
    """One share against a mean that is taken here: the hidden pixels of two masks are drawn elsewhere, so that only
    the size is asked for."""
    if folder != "colour":
        return
    rows = {tuple(r[:3]): float(r[4]) for r in rows_of(folder, "table-cifar") if r[0] == "rmse"}
    files = pixels_of(folder, "table-cifar")
    tests = {}
    for (picture, _, channel, kind), lines in files.items():
        if kind == "original":
            tests.setdefault(picture, []).extend(int(v) for line in lines for v in line)
    count = len(tests)  # the training images are the same as the test images
    mean = [sum(t[i] for t in tests.values()) / count for i in range(len(next(iter(tests.values()))))]
    error = math.sqrt(sum((t[i] - m) ** 2 for t in tests.values() for i, m in enumerate(mean)) / count / len(mean)) / 255
    assert abs(rows["rmse", "mean-image", "10 % shown"] / error - 1) < 0.1, (rows, error)


def pictures_fit_their_facts(folder, page):
    for section in page.carried:
        rows = [r for r in rows_of(folder, section) if r[0] == "pictures"]
        names = list(dict.fromkeys(r[1] for r in rows))
        assert names == list(dict.fromkeys(k[0] for k in pixels_of(folder, section))), names
        given = section == "patch-label"
        for name in names:
            facts = {r[2]: r[4] for r in rows if r[1] == name}
            assert ("label given" in facts) == given and ("label" in facts) != given, facts
            assert 0 < float(facts["certificate"]) <= 1e-3, facts


failed = 0
for folder in sys.argv[1:]:
    with open(os.path.join(folder, "index.html"), encoding="utf-8") as file:
        page = Page()
        page.feed(file.read())
    tests = [numbers_are_fields, no_other_number_is_said, page_needs_nothing_else,
             pictures_are_those_of_the_file, distributions_are_what_is_completed,
             frames_follow_each_other, pictures_fit_their_facts, errors_are_those_of_eval, answers_are_those_of_eval,
             smaller_budgets_are_said, tables_stand_beside_others, the_mean_image_is_the_mean]
    if "residual-monotone" in page.sections:
        tests.append(differences_are_those_of_their_fields)
    for test in tests:
        print(f"[ RUN      ] {test.__name__} ({folder})")
        try:
            test(folder, page)
            print(f"[       OK ] {test.__name__} ({folder})")
        except AssertionError as error:
            failed = 1
            line = error.__traceback__.tb_next.tb_lineno if error.__traceback__.tb_next else 0
            print(f"[  FAILED  ] {test.__name__} ({folder}): line {line}: {error}")
sys.exit(failed)
