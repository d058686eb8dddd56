# SPDX-License-Identifier: MIT
"""The monotone deep Boltzmann machine in PyTorch, as its paper describes it.

    Phi = blkdiag(A^' A^) - A^' A^,   A^_v = A_v min( sqrt(1-m) / ||A_v||_2, 1 )
    q   = prox^alpha( (1 - alpha) q + alpha (Phi q + b) )       on the hidden variables

A tier may have a gain, which the paper does not know: ||A^_v||^2 up to gain (1-m), and its own
block of the diagonal times min( (1-m) / ||A^_v||^2, 1 ). Then alpha is what still converges.

The blocks of A are convolutions; their products with A and A' are conv2d and
conv_transpose2d, gradients are autograd's, and the fixed point is differentiated by the
implicit function theorem: the backward hook solves u = u dg/dq + dl/dq by iteration.

Legend
  tier tensor  [batch, channels, height, width], channels = groups x categories
  q, b, logits [batch, all]: the tier tensors of a sample, flattened, one after another
  v            a variable: tier, cell, group; G_v = A_v' A_v its Gram matrix, s_v its scale,
               D_v its block of the diagonal: s_v^2 G_v without gain
  class        cells of a tier that are reached by the same taps: they share G_v and s_v
"""

import torch
import torch.nn.functional as F

from prox import prox

ALPHA = 0.125      # of the damped iteration, and of the prox: the largest
POWER_STEPS = 50   # for the norm of c - Phi, where alpha must be smaller
WINDOW = 5         # of Anderson acceleration
TOLERANCE = 1e-2   # on || q+ - q || / || q ||, both ways
ITERATIONS = 50    # at most


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


class Phi:
    """Phi and b for one set of parameters: computed once a step, applied many times."""

    def __init__(self, spec, classes, parameters, layout):
        self.spec, self.layout = spec, layout
        self.weights = [parameters[name] for name in spec.tensors() if name.startswith("weights.")]
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
        for name in ("weights", "scales", "grams"):
            setattr(other, name, [tensor.detach() for tensor in getattr(self, name)])
        return other

    def split(self, q):
        """The tier tensors in q."""
        parts = q.split([tier.size for tier in self.spec.tiers], 1)
        return [p.reshape(-1, t.channels, t.height, t.width).contiguous(memory_format=self.layout)
                for p, t in zip(parts, self.spec.tiers)]

    def forward(self, block, w, x):
        """A_ij x"""
        if not block.dense:
            return F.conv2d(x, w, stride=block.stride, padding=(block.kernel - 1) // 2)
        row = self.spec.tiers[block.row]
        y = F.linear(x.permute(0, 2, 3, 1).flatten(1), w)
        return y.view(-1, row.height, row.width, row.channels).permute(0, 3, 1, 2)

    def transpose(self, block, w, y):
        """A_ij' y"""
        column, row = self.spec.tiers[block.column], self.spec.tiers[block.row]
        if block.dense:
            x = F.linear(y.permute(0, 2, 3, 1).flatten(1), w.t())
            return x.view(-1, column.height, column.width, column.channels).permute(0, 3, 1, 2)
        padding = (block.kernel - 1) // 2
        extra = [n - (rows - 1) * block.stride - block.kernel + 2 * padding
                 for n, rows in ((column.height, row.height), (column.width, row.width))]
        return F.conv_transpose2d(y, w, stride=block.stride, padding=padding, output_padding=extra)

    def __call__(self, q):
        """Phi q + b"""
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
        return torch.cat(out, 1) + self.bias


# -------------------------------------------------------------------- fixed points --


def anderson(f, x, weight, tolerance, limit):
    """The fixed point of f from x, accelerated (Walker and Ni), each sample on its own; until
    the relative difference || f(x) - x || / || weight x || of the batch is small.
    Returns f(x), the number of evaluations, and that difference."""
    batch, size = x.shape
    differences = x.new_zeros(2, batch, WINDOW, size)
    df, dg = differences  # of f(x), and of g = f(x) - x
    fx = f(x)
    g = fx - x
    for count in range(1, limit + 1):
        residual = (g.norm() / (weight * x).norm()).item()
        if residual <= tolerance or count == limit:
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
        last_fx, last_g, fx = fx, g, f(x)
        g = fx - x
        slot = (count - 1) % WINDOW
        torch.sub(fx, last_fx, out=df[:, slot])
        torch.sub(g, last_g, out=dg[:, slot])
    return fx, count, residual


# ------------------------------------------------------------------------- the model --


class Batch:
    """What a batch shows, and what is true of it.
    observed [batch, variables], truth [batch, image variables], labels [batch]: categories,
    -1 where hidden; variables in Monobolt's order: tier, row, column, group."""

    def __init__(self, spec, observed, truth, labels, dtype):
        self.truth, self.labels = truth.long(), labels.long()
        shown, values = [], []
        parts = observed.split([tier.variables for tier in spec.tiers], 1)
        for tier, part in zip(spec.tiers, parts):
            part = part.view(-1, tier.height, tier.width, tier.groups, 1).permute(0, 3, 4, 1, 2)
            categories = torch.arange(tier.k, dtype=part.dtype).view(1, 1, tier.k, 1, 1)
            values.append((part == categories).flatten(1))
            shown.append((part >= 0).expand(values[-1].shape[0], tier.groups, tier.k, tier.height,
                                            tier.width).flatten(1))
        self.hidden_pixels = parts[spec.image] < 0
        self.label_hidden = spec.label is not None and parts[spec.label][:, 0] < 0
        self.shown, self.onehot = torch.cat(shown, 1), torch.cat(values, 1).to(dtype)
        self.hidden = (~self.shown).to(dtype)


class MDBM:
    def __init__(self, spec, arrays, layout=torch.contiguous_format, dtype=torch.float32):
        self.spec, self.layout = spec, layout
        self.classes = [Classes(spec, t) for t in range(len(spec.tiers))]
        self.parameters = {name: torch.zeros(shape, dtype=dtype, requires_grad=True)
                           for name, shape in spec.tensors().items()}
        self.load(arrays)
        self.tolerance, self.limit = TOLERANCE, ITERATIONS
        self.alpha = ALPHA
        self.counts = {}  # iterations of the last step, forward and backward
        uniform = [torch.full((tier.size,), 1 / tier.k, dtype=dtype) for tier in spec.tiers]
        self.uniform = torch.cat(uniform)

    def load(self, arrays):
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(torch.from_numpy(arrays[name].copy()))

    def phi(self):
        return Phi(self.spec, self.classes, self.parameters, self.layout)

    def choose_alpha(self):
        """With gain: the paper's, or 1.9 over the norm of c - Phi, c = 1-m, if that is less. The
        test of a step is made as strict as it would be with the paper's: a tolerance for alpha."""
        if all(tier.gain == 1 for tier in self.spec.tiers):
            return
        with torch.no_grad():
            phi, c = self.phi(), 1 - self.spec.m
            x = torch.randn(1, self.spec.size, generator=torch.Generator().manual_seed(1)).to(self.uniform)
            for _ in range(POWER_STEPS):
                x = x / x.norm()
                x = c * x - (phi(x) - phi.bias)
            self.alpha = min(ALPHA, 1.9 / (1.05 * float(x.norm())))
        self.tolerance = TOLERANCE * self.alpha / ALPHA

    def prox(self, x):
        parts = x.split([tier.size for tier in self.spec.tiers], 1)
        return torch.cat([prox(part.reshape(-1, tier.groups, tier.k, tier.cells), self.alpha, 2)
                          .flatten(1) for part, tier in zip(parts, self.spec.tiers)], 1)

    def update(self, phi, batch, q):
        """g(q): one damped step; what is observed stays."""
        z = self.prox((1 - self.alpha) * q + self.alpha * phi(q))
        return torch.where(batch.shown, batch.onehot, z)

    def solve(self, phi, batch):
        """Algorithm "ForwardIteration"; no gradients."""
        with torch.no_grad():
            start = torch.where(batch.shown, batch.onehot, self.uniform)
            q, count, residual = anderson(lambda q: self.update(phi, batch, q), start, batch.hidden,
                                          self.tolerance, self.limit)
        self.counts["forward"], self.counts["forward_residual"] = count, residual
        return q

    def marginals(self, phi, batch):
        """The fixed point on the tape: one more step, whose gradient the hook replaces by that
        of the fixed point (algorithm "BackwardIteration")."""
        solution = self.solve(phi, batch)
        q = self.update(phi, batch, solution)
        q0 = q.detach().requires_grad_()
        g = self.update(phi.detached(), batch, q0)

        def backward(grad):
            grad = grad * batch.hidden
            u, count, residual = anderson(
                lambda u: torch.autograd.grad(g, q0, u, retain_graph=True)[0] * batch.hidden + grad,
                grad, batch.hidden, self.tolerance, self.limit)
            self.counts["backward"], self.counts["backward_residual"] = count, residual
            return u

        q.register_hook(backward)
        return q

    def loss(self, phi, batch, q):
        """(loss, logits): cross-entropy on the scaled logits of the hidden pixels, with
        class-balanced weights, and of the label."""
        spec = self.spec
        logits = phi(q)
        tiers = phi.split(logits)
        image = spec.tiers[spec.image]
        temperatures = self.parameters["log_temperature.image_then_label"].exp()
        tau = temperatures[: -1 if spec.label is not None else None]
        z = tiers[spec.image].view(-1, image.groups, image.k, image.cells)
        z = (z * tau).permute(0, 3, 1, 2).reshape(-1, image.k)[batch.hidden_pixels.flatten()]
        truth = batch.truth.flatten()[batch.hidden_pixels.flatten()]
        loss = spec.number("train", "pixel_weight", 0.5) * self.pixel_loss(z, truth, image.k)
        if spec.label is not None and batch.label_hidden.any():
            z = tiers[spec.label].flatten(1)[batch.label_hidden] * temperatures[-1]
            label_loss = F.cross_entropy(z, batch.labels[batch.label_hidden])
            loss = loss + spec.number("train", "label_weight", 0.5) * label_loss
        return loss, logits

    def pixel_loss(self, z, truth, k):
        beta = self.spec.number("train", "balance", 0.9999)
        gamma = self.spec.number("train", "focal", 2)
        counts = torch.bincount(truth, minlength=k).double()
        weights = (1 - beta) / (1 - beta**counts) if beta > 0 else torch.ones_like(counts)
        weights = torch.where(counts > 0, weights, torch.zeros_like(weights)).to(z)
        if gamma == 0:
            return F.cross_entropy(z, truth, weights)
        log_p = F.log_softmax(z, 1).gather(1, truth[:, None])[:, 0]
        w = weights[truth]
        return -(w * (1 - log_p.exp()) ** gamma * log_p).sum() / w.sum()

    def gradient(self, batch):
        """Loss, logits and marginals of a batch; gradients are left in the parameters."""
        for parameter in self.parameters.values():
            parameter.grad = None
        phi = self.phi()
        q = self.marginals(phi, batch)
        loss, logits = self.loss(phi, batch, q)
        loss.backward()
        return loss.item(), logits.detach(), q.detach()
