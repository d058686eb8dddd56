# SPDX-License-Identifier: MIT
# %% [markdown]
# # Completing digits, with a certificate
#
# A monotone deep Boltzmann machine has one mean-field answer for whatever is shown and whatever is hidden,
# and the solver proves how far it is from that answer. Run this at the root of the repository, after
# `monobolt fetch mnist`; without it, digits drawn from strokes take the place of the test images.
# %%
import os

import matplotlib.pyplot as plt
import numpy as np

import monobolt as mb

network = mb.Network.load("models/mnist.safetensors")
if os.path.exists("data/mnist"):
    digits = mb.Dataset.load("data/mnist", "test")
else:
    digits = mb.Dataset.digits(200, 28, 28)
images, truth = digits.images[:200], np.asarray(digits.labels[:200])
shown = np.random.RandomState(0).rand(200, 28, 28) < 0.4
print(network)
# %% [markdown]
# ## 60 % of the pixels are hidden
#
# `infer` returns a distribution over grey levels for every hidden pixel. Below: what is shown (the hidden
# pixels are blue), the expected picture, the entropy of each pixel, and the digit itself.
# %%
plt.rcParams["image.interpolation"] = "nearest"
seen = network.infer(images, shown=shown, tolerance=1e-3, max_iterations=100)
p = seen.pixels[:, :, :, 0]
entropy = -(p * np.log2(np.maximum(p, 1e-12))).sum(axis=-1) * ~shown
print("labels right: %.1f %%, with 60 %% of the pixels hidden" % (100 * np.mean(seen.labels == truth)))
print("certificates: median %.2g, largest %.2g" % (np.median(seen.certificates), seen.certificates.max()))

rows = 10
figure, axes = plt.subplots(4, rows, figsize=(10, 4.4))
pictures = np.asarray(images).reshape(-1, 28, 28) / np.max(images)
grey = plt.get_cmap("gray").copy()
grey.set_bad("steelblue")
for i in range(rows):
    axes[0, i].imshow(np.ma.masked_where(~shown[i], pictures[i]), cmap=grey, vmin=0, vmax=1)
    axes[1, i].imshow(seen.images[i, :, :, 0], cmap="gray", vmin=0, vmax=1)
    axes[2, i].imshow(entropy[i], cmap="magma", vmin=0, vmax=2)
    axes[3, i].imshow(pictures[i], cmap="gray", vmin=0, vmax=1)
    axes[0, i].set_title("%d: %.0f %%" % (seen.labels[i], 100 * seen.label[i].max()), fontsize=9)
for axis, name in zip(axes[:, 0], ("shown", "completed", "entropy", "the digit")):
    axis.set_ylabel(name)
for axis in axes.flat:
    axis.set_xticks([])
    axis.set_yticks([])
# %% [markdown]
# ## The certificate falls with the iterations
#
# Stopped early, an answer comes with a larger certificate: the distance to the only right answer is at most
# this, proven. The distance itself (to an answer refined in double precision) is always below it.
# %%
exact = network.infer(images[:20], shown=shown[:20], refine=1e-9, marginals=True)
counts, bound, distance = [2, 4, 6, 8, 12, 16, 24, 32, 48], [], []
for n in counts:
    early = network.infer(images[:20], shown=shown[:20], marginals=True, tolerance=1e-6, max_iterations=n)
    bound.append(np.median(early.certificates))
    distance.append(np.median(np.linalg.norm(early.q - exact.q, axis=1)))
    assert (np.linalg.norm(early.q - exact.q, axis=1) <= early.certificates + exact.certificates).all()
plt.figure(figsize=(6, 3.5))
plt.semilogy(counts, bound, "o-", label="certificate")
plt.semilogy(counts, distance, "s-", label="distance to the refined answer")
plt.xlabel("iterations, at most")
plt.ylabel("median of 20 digits")
plt.grid(alpha=0.3)
plt.legend();
# %% [markdown]
# ## Labels that are proven
#
# `prove=True` goes on, in double precision if need be, until the most probable class is that of the exact
# answer for certain. With `refine`, `low` and `high` enclose the exact probabilities. This proves what the
# *model* says; whether the model is right is another matter, as the last column shows.
# %%
sure = network.infer(images[:8], shown=shown[:8], prove=True)
fine = network.infer(images[:8], shown=shown[:8], refine=1e-6)
label = network.visible["label"].first
print("digit  model says  proven  its probability lies in         right")
for i in range(8):
    k = sure.labels[i]
    low, high = fine.part("label", fine.low)[i, k], fine.part("label", fine.high)[i, k]
    print("%5d  %10d  %6s  [%.8f, %.8f]  %s" % (i, k, "yes" if sure.proven[i, label] else "no", low, high,
                                                "yes" if k == truth[i] else "no, it is %d" % truth[i]))
# %% [markdown]
# ## Less shown, more doubt
#
# With nothing shown the model can only give the share of each class; probabilities grow with what is shown.
# %%
shares, right, sureness = [0, 0.05, 0.1, 0.2, 0.4, 0.7, 1], [], []
for share in shares:
    answer = network.infer(images, shown=np.random.RandomState(1).rand(200, 28, 28) < share)
    right.append(100 * np.mean(answer.labels == truth))
    sureness.append(100 * answer.label.max(axis=1).mean())
plt.figure(figsize=(6, 3.5))
plt.plot(shares, right, "o-", label="right, of 200 digits")
plt.plot(shares, sureness, "s-", label="mean probability of the label")
plt.xlabel("share of the pixels shown")
plt.ylabel("%")
plt.grid(alpha=0.3)
plt.legend();
