# SPDX-License-Identifier: MIT
"""prox^alpha of the paper (theorem 3.3 and "Efficient computation of prox"), all rows at once.

For each variable it finds z on the simplex with

    (1 - alpha) z + alpha log z = x + lambda,    sum z = 1

As in the paper: u = log z by Halley's method for a given lambda, lambda by Newton's method
around it, and the Jacobian by implicit differentiation. The paper's own lambda is this one
plus alpha.
"""

import math

import torch

HALLEY_STEPS, HALLEY_TOLERANCE = 10, 1e-3  # on the step: it is cubic, the next is rounding
NEWTON_STEPS = 30
NEWTON_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}  # on | sum z - 1 |


def halley(y, u, alpha):
    """The root of h(u) = y - alpha u - (1 - alpha) e^u, from a guess u that is too large.
    With e = (1 - alpha) e^u and s = alpha + e, h' = -s and h'' = -e, so the step is
    2 h s / (2 s^2 + h e) = h / (s + h e / (2 s)). In place, because memory is what it costs."""
    u = torch.minimum(u, y / alpha)  # an upper bound, from which no denominator can vanish
    for _ in range(HALLEY_STEPS):
        e = u.exp().mul_(1 - alpha)
        h = torch.sub(y, u, alpha=alpha).sub_(e)
        s = e + alpha
        step = h.div_(e.mul_(h).div_(s).mul_(0.5).add_(s))
        u += step
        if step.abs_().max() < HALLEY_TOLERANCE:
            break
    return u


def solve(x, alpha, dim):
    """z for x, whose dimension `dim` is the categories."""
    k = x.shape[dim]
    # sum z is convex and increasing in lambda, so Newton's method converges from above.
    # Two bounds from above: the largest z is 1; and, by Jensen, all are 1/k at the mean.
    largest = (1 - alpha) - x.amax(dim, keepdim=True)
    even = (1 - alpha) / k - alpha * math.log(k) - x.mean(dim, keepdim=True)
    shift = torch.minimum(largest, even)
    u = torch.zeros_like(x)
    for _ in range(NEWTON_STEPS):
        u = halley(x + shift, u, alpha)  # goes on from the last u
        z = u.exp()
        excess = z.sum(dim, keepdim=True) - 1
        if excess.abs().max() < NEWTON_TOLERANCE[x.dtype]:
            break
        shift = shift - excess / derivative(z, alpha).sum(dim, keepdim=True)
    return z


def derivative(z, alpha):
    """dz/dy for one entry at a given lambda."""
    return z / (alpha + (1 - alpha) * z)


class Prox(torch.autograd.Function):
    """z = prox(x); backwards, with d = dz/dy: J = diag(d) - d d' / sum d."""

    @staticmethod
    def forward(ctx, x, alpha, dim):
        z = solve(x, alpha, dim)
        ctx.save_for_backward(z)
        ctx.alpha, ctx.dim = alpha, dim
        return z

    @staticmethod
    def backward(ctx, v):
        (z,) = ctx.saved_tensors
        d = derivative(z, ctx.alpha)
        dv = d * v
        mean = dv.sum(ctx.dim, keepdim=True) / d.sum(ctx.dim, keepdim=True)
        return dv - d * mean, None, None


prox = Prox.apply
