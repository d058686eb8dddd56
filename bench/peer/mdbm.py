# SPDX-License-Identifier: MIT
"""The monotone deep Boltzmann machine in PyTorch, as its paper describes it.

    Phi = blkdiag(A^' A^) - A^' A^,   A^_v = A_v min( sqrt(1-m) / ||A_v||_2, 1 )
    q   = prox^alpha( (1 - alpha) q + alpha (Phi q + b) )       on the hidden variables

What the paper does not know, but specs may have:
  gain   of a tier: ||A^_v||^2 up to gain (1-m), and its own block of the diagonal times
         min( (1-m) / ||A^_v||^2, 1 ). Then alpha is what still converges: choose_alpha.
  rows   of a tier: the channels of its row space.
  links  U: b becomes b + U x_o, x_o one-hot where observed and zero elsewhere. No iteration
         changes that, so it is computed once per solve: Phi.field.
Relays, links that hear what is hidden too, are in relays.py.

The blocks of A are convolutions; their products with A and A' are conv2d and
conv_transpose2d, gradients are autograd's, and the fixed point is differentiated by the
implicit function theorem: the backward hook solves u = u dg/dq + dl/dq by iteration.

Legend
  tier tensor  [batch, channels, height, width], channels = groups x categories
  q, logits    [batch, all]: the tier tensors of a sample, flattened, one after another
  field        b + U x_o: [all] without links, else [batch, all]
  v            a variable: tier, cell, group; G_v = A_v' A_v its Gram matrix, s_v its scale,
               D_v its block of the diagonal: s_v^2 G_v without gain
  class        cells of a tier that are reached by the same taps: they share G_v and s_v
"""

import math

import torch
import torch.nn.functional as F

from prox import prox

ALPHA = 0.125      # of the damped iteration, and of the prox: the largest
POWER_STEPS = 50   # for the smallest eigenvalue of Phi, which alpha must go with
WINDOW = 5         # of Anderson acceleration
TOLERANCE = 1e-2   # on || q+ - q || / || q ||, both ways
ITERATIONS = 50    # at most
LONG = 1000        # the same where the spec names a residual: it is to be reached


# --------------------------------------------------------------------- geometry --


def taps_along(length, rows, kernel, stride):
    """[length, kernel]: whether tap a of some row p = 0 .. rows-1 sees this cell. Row p sees
    the cells stride p - before + a."""
    cell = torch.arange(length)[:, None] + (kernel - 1) // 2 - torch.arange(kernel)
    return (cell % stride == 0) & (cell >= 0) & (cell < rows * stride)


def taps_of(block, column, row):
    """[cells, taps]: by which taps of a block each cell of its column tier is seen."""
    y = taps_along(column.height, row.height, block.kernel, block.stride)
    x = taps_along(column.width, row.width, block.kernel, block.stride)
    both = y[:, None, :, None] & x[None, :, None, :]
    return both.reshape(column.cells, block.kernel**2)


class Classes:
    """The classes of one tier's cells: `of_cell` [cells], and for each convolution that
    leaves the tier, by index, its taps [classes, taps]."""

    def __init__(self, spec, tier_index):
        tier = spec.tiers[tier_index]
        leaving = [(i, b) for i, b in enumerate(spec.blocks) if b.column == tier_index]
        convolutions = [(i, b) for i, b in leaving if not b.dense]
        taps = [taps_of(b, tier, spec.tiers[b.row]) for _, b in convolutions]
        if len(convolutions) < len(leaving):  # a dense map has columns for each cell
            kinds, self.of_cell = (torch.cat(taps, 1) if taps else None), torch.arange(tier.cells)
        else:
            together = torch.cat(taps, 1) if taps else torch.ones(tier.cells, 1)
            kinds, self.of_cell = together.unique(dim=0, return_inverse=True)
        self.taps, at = {}, 0
        for (i, _), part in zip(convolutions, taps):
            self.taps[i] = kinds[:, at : at + part.shape[1]]
            at += part.shape[1]


# ------------------------------------------------------------------ the operator --


def split(spec, q, layout):
    """The tier tensors in q."""
    parts = q.split([tier.size for tier in spec.tiers], 1)
    return [p.reshape(-1, t.channels, t.height, t.width).contiguous(memory_format=layout)
            for p, t in zip(parts, spec.tiers)]


def say(spec, link, w, x):
    """U_ij x, of tier tensors."""
    if not link.dense:
        return F.conv2d(x, w.permute(3, 2, 0, 1), stride=link.stride, padding=link.padding)
    to = spec.tiers[link.row]
    part = x.permute(0, 2, 3, 1).flatten(1) @ w
    return part.view(-1, to.height, to.width, to.channels).permute(0, 3, 1, 2)


class Phi:
    """Phi, b and U for one set of parameters: computed once a step, applied many times."""

    def __init__(self, spec, classes, parameters, layout):
        self.spec, self.layout = spec, layout
        self.weights = [parameters[spec.name("weights", block)] for block in spec.blocks]
        self.links = [parameters[spec.name("link", link)] for link in spec.links]
        if spec.center:
            self.weights = [self._centred(b, w) for b, w in zip(spec.blocks, self.weights)]
        biases = [parameters[f"bias.{tier.name}"] for tier in spec.tiers]
        self.bias = torch.cat([bias.permute(2, 0, 1).flatten() for bias in biases])
        self.scales, self.grams = [], []
        for t, tier in enumerate(spec.tiers):
            gram, scale = self._normalised(t, tier, classes[t])
            self.grams.append(gram[classes[t].of_cell])
            scale = scale[classes[t].of_cell].repeat_interleave(tier.k, 1)
            self.scales.append(scale.t().reshape(tier.channels, tier.height, tier.width))

    def _centred(self, block, w):
        tier = self.spec.tiers[block.column]
        # the categories are dimension 2 here, whatever the block
        split = w.reshape(-1, tier.k, 1) if block.dense else w.reshape(-1, tier.k, block.kernel**2)
        return (split - split.mean(1, keepdim=True)).reshape(w.shape)

    def _normalised(self, t, tier, classes):
        """(D_v, s_v) of each class and group."""
        count, groups, k = int(classes.of_cell.max()) + 1, tier.groups, tier.k
        gram = self.bias.new_zeros(count, groups, k, k)
        for i, (block, w) in enumerate(zip(self.spec.blocks, self.weights)):
            if block.column != t:
                continue
            if block.dense:
                columns = w.view(-1, tier.cells, groups, k)
                gram = gram + torch.einsum("rcgi,rcgj->cgij", columns, columns)
            else:
                columns = w.view(-1, groups, k, block.kernel**2)
                per_tap = torch.einsum("ogia,ogja->agij", columns, columns)
                gram = gram + torch.einsum("ca,agij->cgij", classes.taps[i].to(w), per_tap)
        scale = torch.ones_like(gram[..., 0, 0])
        if self.spec.monotone:
            norm2 = torch.linalg.eigvalsh(gram)[..., -1].clamp(min=1e-12)
            scale = (tier.gain * (1 - self.spec.m) / norm2).sqrt().clamp(max=1)
            if tier.gain > 1:
                own = scale**2 * ((1 - self.spec.m) / (scale**2 * norm2)).clamp(max=1)
                return own[..., None, None] * gram, scale
        return scale[..., None, None] ** 2 * gram, scale

    def detached(self):
        """The same for no gradients but those by q."""
        other = object.__new__(Phi)
        other.spec, other.layout, other.bias = self.spec, self.layout, self.bias.detach()
        for name in ("weights", "links", "scales", "grams"):
            setattr(other, name, [tensor.detach() for tensor in getattr(self, name)])
        return other

    def split(self, q):
        return split(self.spec, q, self.layout)

    def forward(self, block, w, x):
        """A_ij x"""
        if not block.dense:
            return F.conv2d(x, w, stride=block.stride, padding=block.padding)
        row = self.spec.tiers[block.row]
        y = F.linear(x.permute(0, 2, 3, 1).flatten(1), w)
        return y.view(-1, row.height, row.width, row.rows).permute(0, 3, 1, 2)

    def transpose(self, block, w, y):
        """A_ij' y"""
        column, row = self.spec.tiers[block.column], self.spec.tiers[block.row]
        if block.dense:
            x = F.linear(y.permute(0, 2, 3, 1).flatten(1), w.t())
            return x.view(-1, column.height, column.width, column.channels).permute(0, 3, 1, 2)
        extra = [n - (rows - 1) * block.stride - block.kernel + 2 * block.padding
                 for n, rows in ((column.height, row.height), (column.width, row.width))]
        return F.conv_transpose2d(y, w, stride=block.stride, padding=block.padding,
                                  output_padding=extra)

    def field(self, batch):
        """b + U x_o, once per solve."""
        if not self.links:
            return self.bias
        values, said = self.split(batch.onehot), {}
        for link, w in zip(self.spec.links, self.links):
            part = say(self.spec, link, w, values[link.column])
            said[link.row] = said[link.row] + part if link.row in said else part
        return self.bias_and(said, len(batch.onehot))

    def bias_and(self, said, count):
        """b and what is said to some tiers, of so many samples."""
        parts = self.bias.split([tier.size for tier in self.spec.tiers])
        return torch.cat([part + said[t].flatten(1) if t in said else part.expand(count, -1)
                          for t, part in enumerate(parts)], 1)

    def __call__(self, q):
        """Phi q"""
        tiers, rows, products = self.split(q), {}, {}
        scaled = [tier * scale for tier, scale in zip(tiers, self.scales)]
        for block, w in zip(self.spec.blocks, self.weights):
            part = self.forward(block, w, scaled[block.column])
            rows[block.row] = rows[block.row] + part if block.row in rows else part
        for block, w in zip(self.spec.blocks, self.weights):
            part, j = self.transpose(block, w, rows[block.row]), block.column
            products[j] = products[j] + part if j in products else part
        out = []
        for j, (x, tier) in enumerate(zip(tiers, self.spec.tiers)):
            by_group = x.view(-1, tier.groups, tier.k, tier.cells)
            own = torch.einsum("cgij,bgjc->bgic", self.grams[j], by_group).flatten(1)
            out.append(own - (products[j] * self.scales[j]).flatten(1) if j in products else own)
        return torch.cat(out, 1)


# -------------------------------------------------------------------- fixed points --


def anderson(f, x, tolerance, limit):
    """The fixed point of f from x, accelerated (Walker and Ni), each sample on its own. f(x) is
    the next iterate, and how far x is from the solution, of the whole batch: until that is small.
    Returns the last x, the next iterate, the number of evaluations, and how far x was."""
    batch, size = x.shape
    differences = x.new_zeros(2, batch, WINDOW, size)
    df, dg = differences  # of f(x), and of g = f(x) - x
    fx, residual = f(x)
    g = fx - x
    for count in range(1, limit + 1):
        residual = residual.item()
        if residual <= tolerance or count == limit or not math.isfinite(residual):
            break
        x = fx
        used = min(count - 1, WINDOW)
        if used > 0:
            kept = dg[:, :used]
            normal = torch.bmm(kept, kept.transpose(1, 2)).double()
            right = torch.bmm(kept, g[:, :, None]).double()
            ridge = 1e-8 * normal.diagonal(dim1=1, dim2=2).amax(1)[:, None, None] + 1e-30
            normal = normal + ridge * torch.eye(used, dtype=torch.float64)
            gamma = torch.linalg.solve(normal, right).to(x.dtype)
            x = fx - torch.bmm(gamma.transpose(1, 2), df[:, :used])[:, 0]
        last_fx, last_g = fx, g
        fx, residual = f(x)
        g = fx - x
        slot = (count - 1) % WINDOW
        torch.sub(fx, last_fx, out=df[:, slot])
        torch.sub(g, last_g, out=dg[:, slot])
    return x, fx, count, residual


# ------------------------------------------------------------------------- the model --


def one_hot(tier, part):
    """(shown, values) [batch, size] of the categories [batch, variables] of a tier."""
    part = part.reshape(-1, tier.height, tier.width, tier.groups, 1).permute(0, 3, 4, 1, 2)
    categories = torch.arange(tier.k, dtype=part.dtype).view(1, 1, tier.k, 1, 1)
    values = part == categories
    return (part >= 0).expand(values.shape).flatten(1), values.flatten(1)


class Batch:
    """What a batch shows, and what is true of it.
    observed [batch, variables], truth [batch, image variables], labels [batch]: categories,
    -1 where hidden; variables in Monobolt's order: tier, row, column, group."""

    def __init__(self, spec, observed, truth, labels, dtype):
        parts = observed.split([tier.variables for tier in spec.tiers], 1)
        self.show(spec.tiers, parts, dtype)
        self.ask(spec, parts, truth, labels)

    def show(self, tiers, parts, dtype):
        shown, values = zip(*(one_hot(tier, part) for tier, part in zip(tiers, parts)))
        self.shown, self.onehot = torch.cat(shown, 1), torch.cat(values, 1).to(dtype)
        self.hidden = (~self.shown).to(dtype)

    def ask(self, spec, parts, truth, labels):
        self.truth, self.labels = truth.long(), labels.long()
        self.hidden_pixels = parts[spec.images[0]] < 0
        self.label_hidden = spec.label is not None and parts[spec.label][:, 0] < 0


class MDBM:
    def __init__(self, spec, arrays, layout=torch.contiguous_format, dtype=torch.float32):
        self.prepare(spec, spec.tensors(), layout, dtype)
        self.load(arrays)

    def prepare(self, spec, shapes, layout, dtype):
        """All but the values of the parameters, whose shapes are given by name."""
        self.spec, self.layout = spec, layout
        self.classes = [Classes(spec, t) for t in range(len(spec.tiers))]
        self.parameters = {name: torch.zeros(shape, dtype=dtype, requires_grad=True)
                           for name, shape in shapes.items()}
        self.alpha = self.tape_alpha = ALPHA  # of the way forward; of the tape and the way back
        if spec.stop == "step":  # the paper's settings
            self.tolerance = self.adjoint_tolerance = TOLERANCE
            self.limit = ITERATIONS
        else:
            self.tolerance = spec.number("solver", "tolerance", 1e-3)
            self.adjoint_tolerance = spec.number("solver", "adjoint_tolerance", 1e-3)
            self.limit = LONG
        self.counts = {}  # iterations of the last step, forward and backward
        uniform = [torch.full((tier.size,), 1 / tier.k, dtype=dtype) for tier in spec.tiers]
        self.uniform = torch.cat(uniform) if uniform else None  # no tiers: no fixed point

    def load(self, arrays):
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(torch.from_numpy(arrays[name].copy()))

    def phi(self):
        return Phi(self.spec, self.classes, self.parameters, self.layout)

    def field(self, phi, batch):
        return phi.field(batch)

    # ------------------------------------------------------------ variable by variable --

    def by_variable(self, *arrays):
        """For each tier, its parts of arrays [batch, all] as [batch, groups, categories, cells]."""
        sizes = [tier.size for tier in self.spec.tiers]
        for tier, *parts in zip(self.spec.tiers, *(array.split(sizes, 1) for array in arrays)):
            yield [part.reshape(-1, tier.groups, tier.k, tier.cells) for part in parts]

    def prox(self, x, alpha):
        return torch.cat([prox(part, alpha, 2).flatten(1) for part, in self.by_variable(x)], 1)

    def softmax(self, x):
        return torch.cat([part.softmax(2).flatten(1) for part, in self.by_variable(x)], 1)

    def spread(self, q, r):
        """The sum of r'Sr over all variables, S = diag(q) - qq'."""
        return sum((p * x * x).sum() - (p * x).sum(2).square().sum()
                   for p, x in self.by_variable(q, r))

    # ------------------------------------------------------------------------ the step --

    def steepness(self):
        """L = 1 - lambda_min(Phi) on the zero-sum directions of the variables, which are all that
        matters: by power iteration on c - Phi, which is positive for c = max || D_v ||."""
        with torch.no_grad():
            phi = self.phi()
            c = max(1.0, *(float(torch.linalg.eigvalsh(gram).max()) for gram in phi.grams))
            x = torch.randn(1, self.spec.size, generator=torch.Generator().manual_seed(1)).to(self.uniform)
            for _ in range(POWER_STEPS):
                x = torch.cat([(p - p.mean(2, keepdim=True)).flatten(1) for p, in self.by_variable(x)], 1)
                x = x / x.norm()
                y = c * x - phi(x)
                largest, x = float((x * y).sum()), y
            return largest - c + 1

    def choose_alpha(self, batch=None):
        """The paper's step, or 1.9 / L if that is less, with 5 % for what the power iteration
        misses: every step below 2 / L converges. With a batch, and a spec that is not the paper's:
        for the way forward twice that, and again, as long as it takes fewer iterations, up to the
        larger of the two. Acceleration may converge with steps that alone would not, and who uses
        the peer would find them. The step on the tape is not accelerated, and is the proven one."""
        proven = min(1, 1.9 / (1.05 * self.steepness()))
        if self.spec.stop == "step":
            self.alpha = self.tape_alpha = min(ALPHA, proven)
            return
        self.tape_alpha, self.alpha, largest = proven, min(ALPHA, proven), max(ALPHA, proven)
        if batch is None:
            return
        with torch.no_grad():
            phi = self.phi()
            field = self.field(phi, batch)
        best, least, limit = self.alpha, math.inf, self.limit
        while True:
            self.solve(phi, field, batch)
            count = self.counts["forward"] if self.met() else math.inf
            if count >= least:
                break
            best, least = self.alpha, count
            if self.alpha == largest:
                break
            self.alpha, self.limit = min(largest, 2 * self.alpha), min(limit, count)
        self.alpha, self.limit = best, limit

    def met(self):
        """Whether the last solve, and what followed backward, were ended by their tolerances."""
        return (self.counts["forward_residual"] <= self.tolerance
                and self.counts.get("backward_residual", 0) <= self.adjoint_tolerance)

    # -------------------------------------------------------------------- fixed points --

    def update(self, phi, field, batch, q, alpha):
        """(g(q), logits): one damped step, in which what is observed stays."""
        logits = phi(q) + field
        z = self.prox((1 - alpha) * q + alpha * logits, alpha)
        return torch.where(batch.shown, batch.onehot, z), logits

    def move(self, phi, field, batch, q):
        """(g(q), what must be small relative to q): with stop = step the way to g(q), as in the
        paper (as long as its step would make it); else that to softmax(logits), which does
        not depend on the step."""
        following, logits = self.update(phi, field, batch, q, self.alpha)
        if self.spec.stop == "step":
            return following, (following - q) * batch.hidden * (ALPHA / self.alpha)
        return following, (self.softmax(logits) - q) * batch.hidden

    def solve(self, phi, field, batch):
        """Algorithm "ForwardIteration"; no gradients. With stop = step the answer is g(q), as in
        the paper; else the q that was tested, as g may lead away from it."""

        def step(q):
            following, move = self.move(phi, field, batch, q)
            return following, move.norm() / (q * batch.hidden).norm()

        with torch.no_grad():
            start = torch.where(batch.shown, batch.onehot, self.uniform)
            q, following, count, residual = anderson(step, start, self.tolerance, self.limit)
        self.counts = {"forward": count, "forward_residual": residual}
        return following if self.spec.stop == "step" else q

    def marginals(self, phi, field, batch):
        """The fixed point on the tape: one more step, whose gradient the hook replaces by that
        of the fixed point (algorithm "BackwardIteration")."""
        solution = self.solve(phi, field, batch)
        q, _ = self.update(phi, field, batch, solution, self.tape_alpha)
        q0 = q.detach().requires_grad_()
        g, _ = self.update(phi.detached(), field.detach(), batch, q0, self.tape_alpha)

        def backward(grad):
            grad = grad * batch.hidden
            at = q0.detach()
            right = self.spread(at, grad)

            def step(u):
                following = torch.autograd.grad(g, q0, u, retain_graph=True)[0] * batch.hidden + grad
                if self.spec.stop == "step":
                    far = (following - u).norm() / u.norm() * (ALPHA / self.tape_alpha)
                else:  # with w = alpha J u this is the residual of (1/S - Phi) w = grad, as it is
                    far = (self.spread(at, following - u) / right).sqrt()
                return following, far

            _, u, count, residual = anderson(step, grad, self.adjoint_tolerance, self.limit)
            self.counts["backward"], self.counts["backward_residual"] = count, residual
            return u

        q.register_hook(backward)
        return q

    # ------------------------------------------------------------------------ learning --

    def gradient(self, batch):
        """(loss, answers) of a batch, answers() being its logits and marginals; gradients are left
        in the parameters."""
        self.forget()
        phi = self.phi()
        field = self.field(phi, batch)
        q = self.marginals(phi, field, batch)
        logits = phi(q) + field
        loss = loss_of(self.spec, self.parameters, batch, phi.split(logits))
        loss.backward()
        return loss.item(), lambda: (logits.detach(), q.detach())

    def forget(self):
        for parameter in self.parameters.values():
            parameter.grad = None


def loss_of(spec, parameters, batch, tiers):
    """Cross-entropy on the scaled logits (by tier) of the hidden pixels, with class-balanced
    weights, and of the label. A term without weight is not computed."""
    image = spec.tiers[spec.images[0]]
    temperatures = parameters["log_temperature.image_then_label"].exp()
    loss = 0 * temperatures.sum()  # should there be no other term
    weight = spec.number("train", "pixel_weight", 0.5)
    if weight > 0:
        tau = temperatures[: -1 if spec.label is not None else None]
        z = sum(tiers[t] for t in spec.images)  # tiers that carry the same pixels
        z = z.reshape(-1, image.groups, image.k, image.cells)
        z = (z * tau).permute(0, 3, 1, 2).reshape(-1, image.k)[batch.hidden_pixels.flatten()]
        truth = batch.truth.flatten()[batch.hidden_pixels.flatten()]
        loss = loss + weight * pixel_loss(spec, z, truth, image.k)
    weight = spec.number("train", "label_weight", 0.5)
    if weight > 0 and spec.label is not None and batch.label_hidden.any():
        z = tiers[spec.label].flatten(1)[batch.label_hidden] * temperatures[-1]
        loss = loss + weight * F.cross_entropy(z, batch.labels[batch.label_hidden])
    return loss


def pixel_loss(spec, z, truth, k):
    beta = spec.number("train", "balance", 0.9999)
    gamma = spec.number("train", "focal", 2)
    counts = torch.bincount(truth, minlength=k).double()
    weights = (1 - beta) / (1 - beta**counts) if beta > 0 else torch.ones_like(counts)
    weights = torch.where(counts > 0, weights, torch.zeros_like(weights)).to(z)
    if gamma == 0:
        return F.cross_entropy(z, truth, weights)
    log_p = F.log_softmax(z, 1).gather(1, truth[:, None])[:, 0]
    w = weights[truth]
    return -(w * (1 - log_p.exp()) ** gamma * log_p).sum() / w.sum()
