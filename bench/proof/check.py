# SPDX-License-Identifier: MIT
"""Checks refined answers of `monobolt infer` against an independent solution in double; see run.

A network file is read here, A written out as a sparse matrix, Phi made of it as DESIGN and the header
say, and the mean-field solution found by Newton's method from uniform marginals. Nothing is shared
with the library but the file.
"""
import argparse
import configparser
import json
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.environ.get("MONOBOLT", os.path.join(HERE, "..", "..", "build", "monobolt"))


def load(path):
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        body = f.read()
    spec = configparser.ConfigParser(comment_prefixes=(";", "#"), inline_comment_prefixes=None)
    spec.read_string(header["__metadata__"]["spec"])
    tensors = {}
    for name, t in header.items():
        if name.startswith("__") or t["dtype"] not in ("F32", "F16"):
            continue
        a, b = t["data_offsets"]
        kind = "<f4" if t["dtype"] == "F32" else "<f2"
        tensors[name] = np.frombuffer(body[a:b], kind).reshape(t["shape"]).astype(float)
    return spec, tensors


class Model:
    """Phi, b and the links U in double, from a network file."""

    def __init__(self, spec, tensors):
        m = spec.getfloat("model", "m", fallback=0.01)
        center = spec.getboolean("model", "center", fallback=False)
        self.tiers, at, var, row = {}, 0, 0, 0
        self.first, self.k, self.gain = [], [], []
        for section in spec.sections():
            if not section.startswith("tier "):
                continue
            t = spec[section]
            h, w = (int(x) for x in t.get("grid", "1x1").split("x"))
            k, groups = int(t["cardinality"]), int(t.get("groups", "1"))
            size = h * w * groups * k
            channels = int(t.get("rows", "0")) or groups * k
            self.tiers[section[5:]] = dict(h=h, w=w, k=k, groups=groups, at=at, size=size, var=var,
                                           row=row, rows=h * w * channels)
            row += h * w * channels
            self.first += list(range(at, at + size, k))
            self.k += [k] * (h * w * groups)
            self.gain += [float(t.get("gain", "1"))] * (h * w * groups)
            at, var = at + size, var + h * w * groups
        self.n = at
        self.b = np.concatenate([tensors["bias." + name].ravel() for name in self.tiers])
        self.first, self.k, self.gain = map(np.array, (self.first, self.k, self.gain))
        self.of = np.repeat(np.arange(len(self.k)), self.k)  # the variable of an entry
        A, U = ([], [], []), ([], [], [])
        for section in spec.sections():
            names = section.split()[1:]
            if section.startswith("block "):
                t = self.tiers[names[0]]
                self.taps(spec[section], names, tensors["weights." + ".".join(names)], t["row"], t["rows"], A)
            if section.startswith("link "):
                t, w = self.tiers[names[0]], tensors["link." + ".".join(names)]
                w = w.T if w.ndim == 2 else w.transpose(3, 2, 0, 1)  # stored by what is observed
                self.taps(spec[section], names, w, t["at"], t["size"], U)
        A, self.U = (sp.csr_matrix((np.concatenate(v), (np.concatenate(r), np.concatenate(c))),
                                   shape=(high, at)) if v else sp.csr_matrix((high, at))
                     for (r, c, v), high in ((A, row), (U, at)))
        mean = sp.csr_matrix((1.0 / self.k[self.of], (np.arange(at), self.of)))
        ones = sp.csr_matrix((np.ones(at), (np.arange(at), self.of)))
        if center:
            A = A - (A @ mean) @ ones.T
        self.scale(A.tocsc(), m)

    def taps(self, section, names, w, first, size, into):
        """The entries of a block or a link: to `size` places from `first` on, from a tier's channels."""
        row, col = self.tiers[names[0]], self.tiers[names[1]]
        rows, cols, values = into
        if section.get("kind", "convolution") == "dense":
            r, c = np.meshgrid(np.arange(size), np.arange(col["size"]), indexing="ij")
            rows.append(r.ravel() + first)
            cols.append(c.ravel() + col["at"])
            values.append(w.ravel())
            return
        assert section.get("padding", "same") == "same"
        stride, kernel = int(section.get("stride", "1")), w.shape[2]
        co, ci = w.shape[0], w.shape[1]
        o, i = np.meshgrid(np.arange(co), np.arange(ci), indexing="ij")
        for y in range(row["h"]):
            for x in range(row["w"]):
                for a in range(kernel):
                    for b in range(kernel):
                        cy = stride * y - (kernel - 1) // 2 + a
                        cx = stride * x - (kernel - 1) // 2 + b
                        if not (0 <= cy < col["h"] and 0 <= cx < col["w"]):
                            continue
                        rows.append(((y * row["w"] + x) * co + o).ravel() + first)
                        cols.append(((cy * col["w"] + cx) * ci + i).ravel() + col["at"])
                        values.append(w[:, :, a, b].ravel())

    def scale(self, A, m):
        s, blocks = np.ones(self.n), []
        for v, (first, k) in enumerate(zip(self.first, self.k)):
            part = A[:, first:first + k].toarray()
            gram = part.T @ part
            norm2 = max(np.linalg.eigvalsh(gram)[-1], 0)
            budget, most = 1 - m, self.gain[v] * (1 - m)
            s[first:first + k] = np.sqrt(most / norm2) if norm2 > most else 1
            d = max(budget / norm2, 1 / self.gain[v]) if norm2 > budget else 1
            blocks.append(d * gram)
        S = sp.diags(s)
        self.A = (A @ S).tocsr()
        self.D = (S @ sp.block_diag(blocks) @ S).tocsr()
        self.mu = 1 + m

    def phi(self, v):
        return self.D @ v - self.A.T @ (self.A @ v)

    def softmax(self, u):
        top = np.maximum.reduceat(u, self.first)
        e = np.exp(u - top[self.of])
        return e / np.add.reduceat(e, self.first)[self.of]

    def solve(self, observed):
        """observed: the category of each variable, or -1. Marginals, and what is left of the misfit."""
        hidden = np.repeat(observed < 0, self.k)
        hot = np.zeros(self.n)
        for v in np.flatnonzero(observed >= 0):
            hot[self.first[v] + observed[v]] = 1
        # the sample's biases are this sum, rounded once to float (docs/design.md, "Links")
        bias = (self.b + self.U @ hot).astype(np.float32).astype(float) if self.U.nnz else self.b

        def point(u):
            q = np.where(hidden, self.softmax(u), hot)
            r = np.where(hidden, u - self.phi(q) - bias, 0)
            r -= np.where(hidden, np.add.reduceat(q * r, self.first)[self.of], 0)
            return q, r

        u = np.zeros(self.n)
        q, r = point(u)
        for _ in range(200):
            root = np.sqrt(q) * hidden

            def project(x):
                return x - root * np.add.reduceat(root * x, self.first)[self.of]

            def hess(x):  # I - P R Phi R P
                x = project(x)
                return x - project(root * self.phi(root * x))

            p, _ = cg(LinearOperator((self.n, self.n), hess), project(root * r), tol=1e-8,
                      maxiter=2000)
            step = r + np.where(hidden, self.phi(root * project(p)), 0)
            size, t = np.sum(q * r * r), min(1, 3 / max(np.abs(step).max(), 1e-300))
            while t > 1e-6:
                q2, r2 = point(u - t * step)
                if np.sum(q2 * r2 * r2) <= (1 - 0.1 * t) * size:
                    break
                t /= 2
            else:
                break
            u, q, r = u - t * step, q2, r2
            if np.sqrt(np.sum(r * r)) < 1e-11:
                break
        means = np.add.reduceat(r, self.first) / self.k
        return q, self.phi(q) + bias, np.linalg.norm(np.where(hidden, r - means[self.of], 0))


def write_mask(path, shown):
    h, w = shown.shape
    raw = b"".join(b"\0" + bytes((255 * row).astype(np.uint8)) for row in shown)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(raw)),
             (b"IEND", b"")]
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in parts:
            f.write(struct.pack(">I", len(data)) + kind + data +
                    struct.pack(">I", zlib.crc32(kind + data)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("network")
    parser.add_argument("images")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--refine", default="1e-4")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    spec, tensors = load(args.network)
    model = Model(spec, tensors)
    image, label = spec["data"]["image"], spec["data"].get("label")
    tier = model.tiers[image]
    copies = [t for name, t in model.tiers.items()  # shown the pixels, and not read
              if name in spec["data"].get("given", "").split() and t["size"] == tier["size"]]
    shown = (np.random.default_rng(1).random((tier["h"], tier["w"])) < 0.4)
    os.makedirs(args.out, exist_ok=True)
    write_mask(os.path.join(args.out, "mask.png"), shown)
    folder = os.path.join(args.out, "answers")
    subprocess.run([TOOL, "infer", args.network, args.images, "--limit", str(args.count), "--mask",
                    os.path.join(args.out, "mask.png"), "--refine", args.refine, "--save",
                    "probabilities,marginals,hidden", "--out", folder],
                   check=True, stdout=subprocess.DEVNULL)
    q = np.concatenate([np.load(os.path.join(folder, "marginals.%s.npy" % name))
                        .reshape(args.count, -1) for name in model.tiers], axis=1).astype(float)
    with open(os.path.join(folder, "results.csv")) as f:
        names = f.readline().strip().split(",")
        results = [dict(zip(names, line.strip().split(","))) for line in f]
    worst = 0
    print("image  certificate  error     of it  label proven / exact")
    for n in range(args.count):
        observed = np.full(len(model.k), -1)
        cells = np.flatnonzero(shown.ravel())
        start = tier["at"] + cells * tier["k"]
        for t in [tier] + copies:
            observed[t["var"] + cells] = [np.argmax(q[n, s:s + tier["k"]]) for s in start]
        exact, logits, left = model.solve(observed)
        certificate = float(results[n]["certificate"])
        # the file holds floats: half a unit of each number
        error = np.linalg.norm(q[n] - exact) - left / model.mu - 6e-8 * np.linalg.norm(q[n])
        best = ""
        if label:
            t = model.tiers[label]
            z = logits[t["at"]:t["at"] + t["size"]]
            best = "%s %s / %d" % (results[n]["label"], results[n]["proven"], np.argmax(z))
            if results[n]["proven"] == "yes" and int(results[n]["label"]) != np.argmax(z):
                sys.exit("image %d: the proven label is wrong" % n)
        worst = max(worst, error / certificate)
        print("%5d  %.3e    %.2e  %.3f  %s" % (n, certificate, max(error, 0), error / certificate, best))
        if error > certificate:
            sys.exit("image %d: the error is above the certificate" % n)
    print("error/certificate at most %.3f" % worst)


main()
