# SPDX-License-Identifier: MIT
"""Relays: links that hear what is hidden too, by its marginals, where they lead to tiers without
blocks. Such tiers need no iteration. They are ordinary layers, computed once, one after another:

    logits = b + U x_o + R (q - 1/k),   q = softmax(logits) where hidden, one-hot where observed

x_o and U as in mdbm.py; q is that of the tiers before. Autograd goes through them as through any
network, and reaches the fixed point of the tiers that have blocks where a relay hears one of these:
there the gradient is the fixed point's (MDBM.marginals).

Legend
  whole   the spec of all tiers; spec is that of the tiers in the fixed point (Spec.inner), which
          may be none
  layers  the other tiers, by index in the whole, in the order in which they are computed
  kept    the tiers of the fixed point, by index in the whole
  heard   q - 1/k, as tier tensors, by index in the whole
"""

import torch

import mdbm

NO_ITERATIONS = {"forward": 0, "forward_residual": 0, "backward": 0, "backward_residual": 0}


class Batch(mdbm.Batch):
    """shown, onehot and hidden are of the fixed point's tiers; `layers` has (shown, one-hot) tier
    tensors of those layers of which anything is observed."""

    def __init__(self, spec, observed, truth, labels, dtype):
        parts = observed.split([tier.variables for tier in spec.tiers], 1)
        self.count, self.layers, self.values = len(observed), {}, None
        if spec.kept:
            self.show(spec.inner.tiers, [parts[t] for t in spec.kept], dtype)
        for t in spec.layers:
            if (parts[t] >= 0).any():
                tier = spec.tiers[t]
                shown, values = mdbm.one_hot(tier, parts[t])
                shape = (-1, tier.channels, tier.height, tier.width)
                self.layers[t] = shown.view(shape), values.view(shape).to(dtype)
        self.ask(spec, parts, truth, labels)


class Relayed(mdbm.MDBM):
    def __init__(self, spec, arrays, layout=torch.contiguous_format, dtype=torch.float32):
        self.whole = spec
        self.prepare(spec.inner, spec.tensors(), layout, dtype)
        self.load(arrays)
        self.sources = {relay.column for relay in spec.relays}
        self.read = set(self.sources)  # layers that the loss depends on, or may
        if spec.number("train", "pixel_weight", 0.5) > 0:
            self.read |= set(spec.images)
        if spec.number("train", "label_weight", 0.5) > 0:
            self.read |= {spec.label}
        if not spec.kept:
            self.alpha = self.tape_alpha = None

    def choose_alpha(self, batch=None):
        if self.spec.tiers:
            super().choose_alpha(batch)

    def field(self, phi, batch):
        """b + U x_o of the fixed point's tiers, to which no relays lead."""
        values = self.values(batch)
        said = {i: self.said(t, values, {}) for i, t in enumerate(self.whole.kept)}
        said = {i: part for i, part in said.items() if part is not None}
        return phi.bias_and(said, batch.count) if said else phi.bias

    def values(self, batch):
        """x_o, by tier, where anything is observed; made once for a batch."""
        if batch.values is None:
            batch.values = {t: onehot.contiguous(memory_format=self.layout)
                            for t, (_, onehot) in batch.layers.items()}
            if self.spec.tiers:
                parts = mdbm.split(self.spec, batch.onehot, self.layout)
                batch.values.update(zip(self.whole.kept, parts))
        return batch.values

    # -------------------------------------------------------------------------- layers --

    def said(self, t, values, heard):
        """What links and relays say to tier t; None if there are none."""
        whole, total = self.whole, None
        for link in whole.links:
            x = (heard if link.relay else values).get(link.column) if link.row == t else None
            if x is not None:
                part = mdbm.say(whole, link, self.parameters[whole.name("link", link)], x)
                total = part if total is None else total + part
        return total

    def logits(self, t, batch, values, heard):
        bias = self.parameters[f"bias.{self.whole.tiers[t].name}"].permute(2, 0, 1)
        said = self.said(t, values, heard)
        return bias.expand(batch.count, -1, -1, -1) if said is None else said + bias

    def answer(self, t, batch, logits):
        """The marginals of a layer: one-hot where observed."""
        tier = self.whole.tiers[t]
        if self.layout == torch.channels_last:
            z = logits.permute(0, 2, 3, 1).reshape(-1, tier.cells, tier.groups, tier.k).softmax(3)
            q = z.view(-1, tier.height, tier.width, tier.channels).permute(0, 3, 1, 2)
        else:
            z = logits.reshape(-1, tier.groups, tier.k, tier.cells).softmax(2)
            q = z.view(-1, tier.channels, tier.height, tier.width)
        return torch.where(*batch.layers[t], q) if t in batch.layers else q

    # ------------------------------------------------------------------------ learning --

    def gradient(self, batch):
        whole, logits, heard = self.whole, {}, {}
        self.forget()
        self.counts, inner = dict(NO_ITERATIONS), None
        if self.spec.tiers:
            phi = self.phi()
            field = self.field(phi, batch)
            inner = self.marginals(phi, field, batch)
            logits.update(zip(whole.kept, phi.split(phi(inner) + field)))
            heard = {t: q - 1 / whole.tiers[t].k for t, q in zip(whole.kept, phi.split(inner))
                     if t in self.sources}
        values = self.values(batch)
        for t in whole.layers:
            if t in self.read:
                logits[t] = self.logits(t, batch, values, heard)
            if t in self.sources:
                heard[t] = self.answer(t, batch, logits[t]) - 1 / whole.tiers[t].k
        loss = mdbm.loss_of(whole, self.parameters, batch, logits)
        loss.backward()
        return loss.item(), lambda: self.answers(batch, logits, heard, inner)

    def answers(self, batch, logits, heard, inner):
        """(logits, marginals) of all tiers [batch, all], those included that no loss reads."""
        with torch.no_grad():
            values = self.values(batch)
            z = {t: logits[t] if t in logits else self.logits(t, batch, values, heard)
                 for t in range(len(self.whole.tiers))}
            q = {t: self.answer(t, batch, z[t]) for t in self.whole.layers}
            if inner is not None:
                q.update(zip(self.whole.kept, mdbm.split(self.spec, inner, self.layout)))
            return tuple(torch.cat([tiers[t].flatten(1) for t in range(len(tiers))], 1)
                         for tiers in (z, q))
