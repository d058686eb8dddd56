# SPDX-License-Identifier: MIT
# %% [markdown]
# # Filling a table with probabilities
#
# `MonoboltImputer` learns one model of all columns from the cells that are known, and gives every missing
# cell a distribution. The table is scikit-learn's own wine data (178 wines, 13 measurements) with the
# cultivar as a column of names; 30 % of all cells are taken out.
# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from monobolt.sklearn import MonoboltImputer

wine = load_wine(as_frame=True)
whole = wine.data.copy()
whole["cultivar"] = np.array(["barolo", "grignolino", "barbera"])[wine.target]
hidden = np.random.RandomState(0).rand(*whole.shape) < 0.3
given = whole.mask(hidden)
print(given.iloc[:5, [0, 1, 6, 9, 12, 13]].to_string())
# %%
imputer = MonoboltImputer(random_state=0).set_output(transform="pandas")
filled = imputer.fit_transform(given)
print(filled.iloc[:5, [0, 1, 6, 9, 12, 13]].round(2).to_string())
print("certificates: at most %.2g" % imputer.certificate_.max())
# %% [markdown]
# ## The probabilities of a cell
#
# `predict_proba` gives those of one column, from what is known of the others in the row. Names have one
# each, numbers one for each bin. Here are two cells of `flavanoids`, of wines whose cultivar is known.
# %%
column = "flavanoids"
p = imputer.predict_proba(given, column)
at = list(whole.columns).index(column)
values = imputer.categories_[at]
rows = [np.flatnonzero(hidden[:, at] & (given["cultivar"] == name).to_numpy())[0] for name in ("barolo", "barbera")]
figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
for axis, row in zip(axes, rows):
    axis.bar(range(len(values)), p[row])
    axis.set_xticks(range(len(values)), ["%.2f" % v for v in values], rotation=60)
    axis.set_title("%s, truth %.2f, filled %.2f" % (given["cultivar"][row], whole[column][row],
                                                    filled[column][row]), fontsize=10)
    axis.set_xlabel(column)
axes[0].set_ylabel("probability");
# %% [markdown]
# ## Are the probabilities honest?
#
# Of all cells that were taken out: among categories that were given a probability of about x, a share of
# about x should turn out to be the truth. With so few rows the model is somewhat too sure where it gives 0.5
# to 0.9, as the plot shows.
# %%
said, came = [], []
known = imputer.predict_proba(whole)  # of a known cell: one for its own bin
for j, name in enumerate(whole.columns):
    p = imputer.predict_proba(given, name)[hidden[:, j]]
    truth = whole[name].to_numpy()[hidden[:, j]]
    classes = imputer.categories_[j]
    if name == "cultivar":
        true = np.array([list(classes).index(t) for t in truth])
    else:
        first = sum(len(c) for c in imputer.categories_[:j])
        true = known[hidden[:, j], first:first + len(classes)].argmax(axis=1)
    said.append(p.ravel())
    came.append(np.eye(len(classes))[true].ravel())
said, came = np.concatenate(said), np.concatenate(came)
edges = np.linspace(0, 1, 11)
which = np.digitize(said, edges[1:-1])
x = np.array([said[which == b].mean() for b in range(10) if (which == b).sum() >= 10])
y = np.array([came[which == b].mean() for b in range(10) if (which == b).sum() >= 10])
n = np.array([(which == b).sum() for b in range(10) if (which == b).sum() >= 10])
plt.figure(figsize=(4.2, 4))
plt.plot([0, 1], [0, 1], color="grey", lw=1)
plt.errorbar(x, y, 2 * np.sqrt(y * (1 - y) / n), fmt="o-", capsize=3)
plt.xlabel("probability given")
plt.ylabel("share that was true (two standard errors)")
plt.grid(alpha=0.3);
# %% [markdown]
# ## Beside scikit-learn's imputers
#
# Root mean square error of the numbers taken out, in standard deviations of their column, and accuracy of
# the cultivar. scikit-learn's imputers get the cultivar as columns of 0 and 1, which they fill as numbers: two
# of them, since with all three any one is the rest of the others, and IterativeImputer learns only that.
# Five draws of the holes.
# %%
scale = whole.iloc[:, :13].std().to_numpy()
exact = whole.iloc[:, :13].to_numpy()
names = np.array(sorted(set(whole["cultivar"])))


def as_numbers(table):
    hot = np.array([[np.nan if pd.isna(v) else float(v == k) for k in names[:2]] for v in table["cultivar"]])
    return np.hstack([table.iloc[:, :13].to_numpy() / scale, hot])


def score(made, cultivar, gone):
    error = ((made - exact) / scale)[gone[:, :13]]
    return np.sqrt(np.mean(error**2)), 100 * np.mean(cultivar[gone[:, 13]] == whole["cultivar"][gone[:, 13]])


others = {"SimpleImputer": SimpleImputer(), "KNNImputer": KNNImputer(),
          "IterativeImputer": IterativeImputer(random_state=0, max_iter=30)}
scores = {name: [] for name in [*others, "MonoboltImputer"]}
for seed in range(5):
    gone = np.random.RandomState(seed).rand(*whole.shape) < 0.3
    table = whole.mask(gone)
    for name, other in others.items():
        made = other.fit_transform(as_numbers(table))
        hot = np.column_stack([made[:, 13:], 1 - made[:, 13:].sum(axis=1)])
        scores[name].append(score(made[:, :13] * scale, names[hot.argmax(axis=1)], gone))
    made = MonoboltImputer(random_state=seed).set_output(transform="pandas").fit_transform(table)
    scores["MonoboltImputer"].append(score(made.iloc[:, :13].to_numpy(), made["cultivar"].to_numpy(), gone))
print("%-18s %6s %10s" % ("", "RMSE", "cultivar"))
for name, all_scores in scores.items():
    print("%-18s %6.3f %8.1f %%" % ((name,) + tuple(np.mean(all_scores, axis=0))))
# %% [markdown]
# ## Draws instead of one value
#
# `sample_posterior` fills the holes by drawing them together, for whoever needs the spread: here, of the
# mean of a column.
# %%
draws = imputer.sample_posterior(given, 20, random_state=0)
means = draws[:, :, at].astype(float).mean(axis=1)
print("mean of %s: %.3f +- %.3f over 20 draws; in the whole table %.3f" % (column, means.mean(), means.std(),
                                                                          whole[column].mean()))
