# SPDX-License-Identifier: MIT
"""The estimators for scikit-learn."""
import pickle
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_iris, load_wine  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from monobolt.sklearn import MonoboltClassifier, MonoboltImputer  # noqa: E402

# Checks of scikit-learn that do not pass, by estimator, and why. There are none.
EXCEPTIONS = {}


@parametrize_with_checks([MonoboltImputer(steps=20), MonoboltClassifier(steps=60)])
def test_check_estimator(estimator, check):
    name = getattr(check, "func", check).__name__
    if name in EXCEPTIONS.get(type(estimator).__name__, {}):
        pytest.skip(EXCEPTIONS[type(estimator).__name__][name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def holes(X, share=0.3, seed=1):
    hidden = np.random.RandomState(seed).rand(*X.shape) < share
    return np.where(hidden, np.nan, X), hidden


def people(n=240, seed=0):
    """A table with columns of every kind, which go together; and the same with holes."""
    pandas = pytest.importorskip("pandas")
    random = np.random.RandomState(seed)
    colour = random.choice(["red", "green", "blue"], n)
    size = np.select([colour == "red", colour == "green"], [0.0, 3.0], 6.0) + 0.5 * random.randn(n)
    whole = pandas.DataFrame({"colour": colour, "size": size, "kind": pandas.Categorical((size > 3).astype(int)),
                              "big": size > 2, "count": pandas.array(random.randint(0, 5, n), dtype="Int64")})
    hidden = random.rand(*whole.shape) < 0.2
    return whole, whole.mask(hidden), hidden


def test_imputer_beats_the_mean():
    X = load_wine(return_X_y=True)[0]
    given, hidden = holes(X)
    scale = X.std(axis=0)

    def error(imputer):
        made = imputer.fit_transform(given)
        assert np.array_equal(made[~hidden], X[~hidden]) and not np.isnan(made).any()
        return np.sqrt(np.mean(((made - X) / scale)[hidden] ** 2))

    assert error(MonoboltImputer(random_state=0, steps=200)) < 0.92 * error(SimpleImputer())


def test_imputer_of_pandas_with_mixed_columns():
    whole, given, hidden = people()
    imputer = MonoboltImputer(random_state=0, steps=300).set_output(transform="pandas")
    made = imputer.fit_transform(given)
    assert list(made.columns) == list(given.columns) == list(imputer.get_feature_names_out())
    assert not made.isna().any().any() and made.index.equals(given.index)
    assert str(made.dtypes["kind"]) == "category" and made.dtypes["size"] == float
    assert (made["colour"] == whole["colour"])[hidden[:, 0]].mean() > 0.8
    assert np.abs(made["size"] - whole["size"])[hidden[:, 1]].mean() < 1.0
    known = ~hidden
    for j, name in enumerate(given.columns):
        assert (made[name] == whole[name])[known[:, j]].all()
    # without pandas in the output: objects, the same values
    plain = imputer.set_output(transform="default").transform(given)
    assert plain.dtype == object and (plain[:, 0] == made["colour"]).all()


def test_imputer_of_object_arrays_and_lists():
    whole, given, hidden = people(80)
    rows = [[None if gone else v for v, gone in zip(row, h)] for row, h in zip(whole.to_numpy(object), hidden)]
    a = MonoboltImputer(random_state=0, steps=30).fit(rows)
    b = MonoboltImputer(random_state=0, steps=30).fit(np.array(rows, dtype=object))
    assert (a.transform(rows) == b.transform(np.array(rows, dtype=object))).all()
    numbers = np.array([[1.0, None], [2, 3], [None, 4]], dtype=object)
    assert MonoboltImputer(steps=5).fit_transform(numbers).dtype == np.float64


def test_categorical_features():
    X = np.array([[0, 1.5], [2, 2.5], [0, np.nan], [np.nan, 3.5]] * 10)
    for chosen in ([0], [True, False]):
        made = MonoboltImputer(categorical_features=chosen, steps=30, random_state=0).fit(X)
        assert set(made.transform(X)[:, 0]) <= {0.0, 2.0} and set(made.categories_[0]) == {0, 2}
    with pytest.raises(ValueError, match="no column 5"):
        MonoboltImputer(categorical_features=[5], steps=5).fit(X)


def test_probabilities_of_any_cell():
    whole, given, hidden = people()
    imputer = MonoboltImputer(random_state=0, steps=300).fit(given)
    p = imputer.predict_proba(given, "colour")
    assert p.shape == (240, 3) and np.allclose(p.sum(axis=1), 1, atol=1e-4)
    assert (imputer.categories_[0][p.argmax(axis=1)] == whole["colour"]).mean() > 0.85
    changed = given.copy()
    changed["colour"] = "red"  # a column's own values are not looked at
    assert np.array_equal(imputer.predict_proba(changed, 0), p)
    everything = imputer.predict_proba(given)
    assert everything.shape == (240, sum(len(c) for c in imputer.categories_))
    row = np.nonzero(~hidden[:, 0])[0][0]
    assert sorted(everything[row, :3]) == [0, 0, 1]
    filled = imputer.transform(given)
    gone = hidden[:, 0]
    assert (imputer.categories_[0][everything[gone, :3].argmax(axis=1)] == filled[gone, 0]).all()
    with pytest.raises(ValueError, match="no column 'age'"):
        imputer.predict_proba(given, "age")


def test_samples_of_the_posterior():
    whole, given, hidden = people()
    imputer = MonoboltImputer(random_state=0, steps=300).fit(given)
    draws = imputer.sample_posterior(given, 40, random_state=1)
    assert draws.shape == (40, 240, 5)
    assert (draws[:, ~hidden[:, 0], 0] == whole["colour"].to_numpy()[~hidden[:, 0]]).all()
    assert np.array_equal(draws[:2], imputer.sample_posterior(given, 2, random_state=1))
    alone = np.nonzero(hidden[:, 0] & (hidden.sum(axis=1) == 1))[0]  # one hole: draws are of its probabilities
    p = imputer.predict_proba(given, "colour")[alone]
    seen = np.stack([(draws[:, alone, 0] == c).mean(axis=0) for c in imputer.categories_[0]], axis=1)
    assert np.abs(seen - p).mean() < 0.06
    both = hidden[:, 0] & hidden[:, 1]  # drawn together they go together
    sizes, colours = draws[:, both, 1].astype(float), draws[:, both, 0]
    assert sizes[colours == "blue"].mean() > sizes[colours == "red"].mean() + 2


def test_certificates_pickles_clones():
    X = load_iris(return_X_y=True)[0]
    given, _ = holes(X)
    imputer = MonoboltImputer(random_state=0, steps=60).fit(given)
    assert imputer.certificate_.shape == (150,) and np.isfinite(imputer.certificate_).all()
    assert np.allclose(imputer.certificate(given), imputer.certificate_)
    again = pickle.loads(pickle.dumps(imputer))
    assert np.array_equal(again.transform(given), imputer.transform(given))
    assert np.array_equal(clone(imputer).fit(given).transform(given), imputer.transform(given))
    # not on the order of rows, and hardly on the rows beside it, does a row's answer depend
    assert np.array_equal(imputer.transform(given[::-1])[::-1], imputer.transform(given))
    assert np.allclose(imputer.transform(given[:7]), imputer.transform(given)[:7], rtol=1e-5)


def test_columns_without_a_value_are_dropped():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0, np.nan] * 5, "gone": np.nan, "b": ["x", None, "y"] * 5})
    with pytest.warns(UserWarning, match="dropped: .1."):
        imputer = MonoboltImputer(steps=10).fit(frame)
    assert list(imputer.get_feature_names_out()) == ["a", "b"] and imputer.transform(frame).shape == (15, 2)
    with pytest.raises(ValueError, match="every cell is missing"):
        MonoboltImputer(steps=10).fit(np.full((4, 2), np.nan))


def test_new_categories_and_odd_texts():
    odd = ["1", " ", "NA", "?", "'q", "a,b", 'say "x"', "line\nbreak", "(other)", "-"]
    X = np.array([[v, str(i % 2)] for i, v in enumerate(odd * 6)], dtype=object)
    imputer = MonoboltImputer(steps=30, random_state=0).fit(X)
    assert set(imputer.categories_[0]) == set(odd) and set(imputer.categories_[1]) == {"0", "1"}
    new = np.array([["never seen", None], [None, "1"]], dtype=object)
    made = imputer.transform(new)
    assert made[0, 0] == "never seen" and made[0, 1] in ("0", "1") and made[1, 0] in odd


def test_classifier_with_missing_features():
    X, y = load_wine(return_X_y=True)
    names = np.array(["barolo", "grignolino", "barbera"])[y]
    given, _ = holes(X, 0.2)
    random = np.random.RandomState(0).permutation(len(X))
    learn, test = random[:120], random[120:]
    model = MonoboltClassifier(random_state=0, steps=250).fit(given[learn], names[learn])
    assert list(model.classes_) == sorted(set(names))
    assert model.score(X[test], names[test]) > 0.9 and model.score(given[test], names[test]) > 0.85
    p = model.predict_proba(given[test])
    assert np.allclose(p.sum(axis=1), 1) and (model.classes_[p.argmax(axis=1)] == model.predict(given[test])).all()
    nothing = model.predict_proba(np.full((1, X.shape[1]), np.nan))
    shares = [np.mean(names[learn] == c) for c in model.classes_]  # with nothing known that is the answer
    assert np.abs(nothing[0] - shares).max() < 0.1
    assert (model.certificate(given[test]) >= 0).all()
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(given), model.predict_proba(given))


def test_pipelines_and_searches():
    X, y = load_iris(return_X_y=True)
    given, _ = holes(X, 0.2)
    line = make_pipeline(MonoboltImputer(random_state=0, steps=80), LogisticRegression(max_iter=500))
    assert cross_val_score(line, given, y, cv=3).mean() > 0.8
    search = GridSearchCV(MonoboltClassifier(random_state=0, steps=60), {"bins": [4, 6]}, cv=2).fit(given, y)
    assert search.best_params_["bins"] in (4, 6)
