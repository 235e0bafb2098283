"""The pages on dissociation: their means, differences and correlations follow from the values of single trainings."""

from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def csv(name: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / name, comment="#")


def page(name: str) -> str:
    """A page's text on one line."""
    return " ".join((RESULTS / name).read_text(encoding="utf-8").split())


def learnt() -> pd.DataFrame:
    """Every training of mpnet-base but the two that guess, whose corrected D is missing."""
    table = csv("pairs/mpnet-pairs-all.csv")
    guess = table["D_corrected"].isna()
    assert table.loc[guess, ["pair", "seed"]].to_numpy().tolist() == [["mnli – qqp", 1], ["qqp – qnli", 2]]
    assert table.loc[guess, "note"].str.contains("not above chance when intact").all()
    assert len(table) == 14 * 3
    return table[~guess]


def test_pairs_of_mpnet_follow_from_their_trainings() -> None:
    trainings, table, seeds = (
        learnt(),
        csv("pairs/mpnet-pairs.csv"),
        csv("pairs/mpnet-seeds.csv").set_index("pair"),
    )
    assert list(table["pair"]) == list(trainings["pair"].unique())
    for row in table.itertuples():
        own = trainings[trainings["pair"] == row.pair].set_index("seed")
        for name in ("D_A", "D_B", "D", "D_corrected", "overlap"):
            assert getattr(row, name) == pytest.approx(own[name].mean(), abs=2e-4), (row.pair, name)
        both = row.D_A > 0 and row.D_B > 0
        said = (
            ("distinct" if row.D >= 10 else "double")
            if both
            else "wrong ranking"
            if max(row.D_A, row.D_B) < 0
            else "none"
        )
        assert row.verdict == said
        assert [row.seeds_agreeing, row.seeds] == [(own["verdict"] == said).sum(), len(own)]
        for seed, value in seeds.loc[row.pair].items():
            assert value == own["D"].get(int(seed[-1])) or pd.isna(value)
        assert seeds.loc[row.pair].count() == row.seeds


def test_pairs_of_e5_follow_from_their_trainings() -> None:
    trainings, table, seeds = (csv(f"pairs/e5-{name}.csv") for name in ("pairs-all", "pairs", "seeds"))
    assert len(trainings) == 10 * 3
    assert trainings["D_corrected"].notna().all()  # every task above chance
    assert list(table["pair"]) == list(seeds["pair"]) == list(trainings["pair"].unique())
    accuracy = csv("pairs/e5-performance.csv").set_index(["group", "lesion", "task"])["mean"]
    published = csv("pairs/mpnet-pairs.csv").set_index("pair")["published"]
    for row, each in zip(table.itertuples(), seeds.set_index("pair").to_numpy(), strict=True):
        own = trainings[trainings["pair"] == row.pair].sort_values("seed")
        assert own["D"].tolist() == each.tolist()
        for name in ("D_A", "D_B", "D", "D_corrected", "overlap"):
            assert getattr(row, name) == pytest.approx(own[name].mean(), abs=2e-4), (row.pair, name)
        low, high = sorted((row.D_A, row.D_B))
        said = ("distinct" if row.D >= 10 else "double") if low > 0 else "single" if high > 10 else "none"
        assert high > 0
        assert [row.verdict, row.seeds_agreeing] == [said, (own["verdict"] == said).sum()]
        assert row.published == published[row.pair]
        for task, other, d in ((row.A, row.B, row.D_A), (row.B, row.A, row.D_B)):
            intact, without, beside = (
                accuracy[row.group, lesion, task] for lesion in ("intact", task, other)
            )
            assert d == pytest.approx(
                100 * (beside - without) / intact, abs=0.1
            )  # ours: means of the seeds' ratios


def test_the_resplit_test_of_e5_is_corrected_over_the_pairs_that_were_tested() -> None:
    text, table = page("pairs.md"), csv("pairs/e5-test.csv").set_index("pair")
    assert (table["resplits"] == 199).all()
    assert table["p"].to_numpy() == pytest.approx((1 + table["at_or_above"]) / 200, abs=1e-9)
    assert table["p_fdr"].to_numpy() == pytest.approx(stats.false_discovery_control(table["p"]), abs=1e-4)
    assert table["D"].to_numpy() == pytest.approx(table[["D_A", "D_B"]].mean(axis=1), abs=2e-4)
    assert ((table["D"] > table["resplit_95"]) == (table["p"] <= 0.05)).all()
    assert ((table["D"] > table["resplit_highest"]) == (table["at_or_above"] == 0)).all()
    first = csv("pairs/e5-seeds.csv").set_index("pair")["seed 0"]
    assert table["D_first_run"].to_dict() == first[table.index].to_dict()
    moved = (table["D"] - table["D_first_run"]).abs()
    assert f"by {moved.min():.1f} to {moved.max():.1f} points" in text
    ends = [f"{value:.3f}" for name in ("p", "p_fdr") for value in (table[name].min(), table[name].max())]
    assert "p is {} to {}, and {} to {} corrected over these five".format(*ends) in text
    assert f"at least {199 - table['at_or_above'].max()} of the 199 re-splits" in text
    assert sum("mnli" in pair for pair in table.index) == 4
    ten = pd.Series(stats.false_discovery_control([*table["p"], *[1.0] * 5])[:5], table.index)
    others = ten.drop("mnli – ag_news")
    assert others.nunique() == 1
    assert (
        f"{ten['mnli – ag_news']:.2f} for MNLI with AG's News and {others.iloc[0]:.2f} for the other four"
        in text
    )


def test_the_paper_s_table_4_beside_ours_follows_from_accuracies() -> None:
    table, pairs = csv("pairs/mpnet-table-4.csv"), csv("pairs/mpnet-pairs.csv").set_index("group")
    accuracy = csv("pairs/mpnet-performance.csv").set_index(["group", "lesion", "task"])["mean"]
    for row in table.to_dict("records"):
        a, b = row["A"], row["B"]
        if row["model"] == "mpnet-base":
            (group,) = [name for name in pairs.index if set(name.split("+")) == {a, b}]
            for letter, task in (("A", a), ("B", b)):
                lesions = {
                    f"{letter} intact": "intact",
                    f"{letter} without A's heads": a,
                    f"{letter} without B's heads": b,
                }
                assert [row[name] for name in lesions] == [
                    accuracy[group, lesion, task] for lesion in lesions.values()
                ]
            assert row["D"] == pairs.loc[group, "D"]
        kept = [100 * (row["A without B's heads"] - row["A without A's heads"]) / row["A intact"]]
        kept.append(100 * (row["B without A's heads"] - row["B without B's heads"]) / row["B intact"])
        assert [row["D_A"], row["D_B"]] == pytest.approx(kept, abs=0.1)  # ours: means of the seeds' ratios
        assert row["D"] == pytest.approx((row["D_A"] + row["D_B"]) / 2, abs=1e-3)


def test_pairs_by_kind_of_input_follow_from_their_trainings() -> None:
    one_text = ["ag_news", "sst2"]
    for trainings, name in (
        (learnt(), "mpnet-paradigms"),
        (csv("pairs/pairs-all.csv"), "paradigms"),
        (csv("pairs/e5-pairs-all.csv"), "e5-paradigms"),
    ):
        same = trainings["A"].isin(one_text) == trainings["B"].isin(one_text)
        topic = trainings["pair"].str.contains("ag_pair")
        for row in csv(f"pairs/{name}.csv").itertuples():
            own = trainings.loc[
                (topic == row.pairs.startswith("AG-Pair")) & (same == (row.paradigm == "same")), "D"
            ]
            assert [row.D, row.rows] == pytest.approx([own.mean(), len(own)], abs=1e-4)


def test_the_page_of_pairs_names_the_correlations_and_counts_of_its_files() -> None:
    text = page("pairs.md")
    large, small, e5 = (
        csv(f"pairs/{name}.csv").set_index("pair") for name in ("mpnet-pairs", "pairs", "e5-pairs")
    )
    five = csv("specialization/grid.csv").set_index("label").T
    ten = [name for name in large.index if "ag_pair" not in name]
    assert [len(small), len(large), len(ten)] == [14, 14, 10]
    assert list(e5.index) == ten

    def order(one: pd.Series, other: pd.Series, pairs: list[str]) -> str:
        return f"{stats.spearmanr(one[pairs].astype(float), other[pairs].astype(float)).statistic:.2f}"

    assert f"a similar order (Spearman {order(large['D'], small['D'], list(small.index))})" in text
    assert f"over the paper's ten {order(large['D'], small['D'], ten)}" in text
    agree = [order(e5["D"], table["D"], ten) for table in (small, large)]
    assert "e5-small agrees with MiniLM-L6 by {} and with mpnet-base by {}".format(*agree) in text
    own = [
        order(table["D"], five[name], ten) for name, table in (("mpnet-base", large), ("MiniLM-L6", small))
    ]
    assert "Spearman over ten pairs {} in mpnet-base and {} in MiniLM-L6".format(*own) in text
    together = csv("specialization/e5-pairs.csv").set_index("pair")["D"]
    assert (
        f"{order(e5['D'], together, ten)} in e5-small, where AG's News with SST-2 has {together['ag_news – sst2']:.1f} %"
        in text
    )
    much = [order(table["D"], table["published"], ten) for table in (e5, small)]
    assert (
        "e5-small and MiniLM-L6 order the ten pairs much as BERT-base does (Spearman {} and {})".format(*much)
        in text
    )
    means = [f"{table.loc[ten, 'D'].mean():.1f}" for table in (e5, small)]
    assert "{} % in e5-small and {} % in MiniLM-L6 (BERT-base".format(*means) in text
    assert f"mpnet-base does not ({order(large['D'], large['published'], ten)})" in text
    assert f"D averages {large.loc[ten, 'D'].mean():.1f} % over the paper's ten pairs" in text
    assert f"(BERT-base: {large.loc[ten, 'published'].mean():.1f} %)" in text
    every = csv("pairs/mpnet-pairs-all.csv").groupby("pair")["D"].mean()
    told = [f"{table[name]:.1f}" for name in ("mnli – qqp", "qqp – qnli") for table in (large["D"], every)]
    assert "from {} to {} % and from {} to {} % (the verdicts stay)".format(*told) in text
    assert f"from {large.loc[ten, 'D'].mean():.1f} to {every[ten].mean():.1f} %, and" in text
    orders = [order(table, large["published"], ten) for table in (every, large["D"])]
    assert "by {} in place of {} (Spearman)".format(*orders) in text


def test_the_page_of_pairs_counts_the_trainings_of_three_models() -> None:
    text = page("pairs.md")
    every = {
        "MiniLM-L6": csv("pairs/pairs-all.csv"),
        "mpnet-base": learnt(),
        "e5-small": csv("pairs/e5-pairs-all.csv"),
    }
    both = {name: (table[["D_A", "D_B"]] > 0).all(axis=1) for name, table in every.items()}
    said = "in {} of {} trainings of MiniLM-L6, in {} of {} of mpnet-base and in {} of {} of e5-small"
    assert said.format(*(count for table in both.values() for count in (table.sum(), len(table)))) in text
    said = "{} of {} trainings of mpnet-base, {} of {} of MiniLM-L6 and {} of {} of e5-small have a D_A or D_B of zero or less"
    names = ("mpnet-base", "MiniLM-L6", "e5-small")
    assert said.format(*(count for name in names for count in ((~both[name]).sum(), len(both[name])))) in text
    less = pd.concat([every[name].loc[~both[name], "pair"] for name in names])
    topic, sst2 = (less.str.contains(task) for task in ("ag_pair", "sst2"))
    assert [(~topic & ~sst2 & ~less.str.contains("ag_news")).sum(), (~topic & sst2).sum(), topic.sum()] == [
        14,
        9,
        5,
    ]
    assert (
        "14 of the 28 are of pairs among MNLI, QQP and QNLI, nine of pairs with SST-2 and five of pairs with AG-Pair"
        in text
    )
    news = {name: table["pair"].str.contains("ag_news") for name, table in every.items()}
    near = {name: table["pair"] == "ag_news – sst2" for name, table in every.items()}
    assert "from MNLI, QQP and QNLI in all 27 trainings of the three models" in text
    far = pd.concat([both[name][news[name] & ~near[name]] for name in names])
    assert [len(far), far.sum()] == [27, 27]
    assert [both[name][near[name]].sum() for name in names] == [3, 3, 0]
    one_text = ["ag_news", "sst2"]
    trainings, means = every["e5-small"], csv("pairs/e5-pairs.csv")
    same, alike = (table["A"].isin(one_text) == table["B"].isin(one_text) for table in (trainings, means))
    d = trainings["D"]
    assert (
        f"the first kind ({d[same].max():.1f} %) is below the lowest of the second ({d[~same].min():.1f} %)"
        in text
    )
    told = [
        f"{value:.1f}"
        for kind in (alike, ~alike)
        for value in (means.loc[kind, "D"].min(), means.loc[kind, "D"].max())
    ]
    assert (
        "D is {} to {} % where both tasks read one text or both read two, and {} to {} % where".format(*told)
        in text
    )
    apart = csv("pairs/e5-seeds.csv").set_index("pair")
    assert (
        f"three seeds of a pair lie at most {(apart.max(axis=1) - apart.min(axis=1)).max():.1f} points apart"
        in text
    )


def test_what_important_head_training_does_to_d_follows_from_its_seeds() -> None:
    text = page("specialization.md")
    seeds, first, second = (csv(f"specialization/{name}.csv") for name in ("iat-seeds", "d", "iat-d"))
    second = second.pivot(index="seed", columns="method", values="D")
    first = first.query("model == 'MiniLM-L6' and method == 'multi-task'").set_index("seed")["D"]
    gain, moved = second["iat"] - second["multi-task"], second["multi-task"] - first
    want = pd.concat([first, second["multi-task"], moved, second["iat"], gain], axis=1)
    assert seeds.iloc[:5, 1:].to_numpy() == pytest.approx(want.to_numpy(), abs=2e-4)
    assert seeds.iloc[5, 1:].to_numpy(float) == pytest.approx(want.mean().to_numpy(), abs=2e-4)
    said = f"D changes by {gain.min():.2f} to +{gain.max():.2f} points, {gain.mean():.2f} on average".replace(
        "-", "−"
    )
    assert said in text
    assert [(gain > 0).sum(), len(gain)] == [2, 5]
    moves = moved.abs()
    assert (
        f"D of a seed moves by {moves.mean():.1f} points on average and by {moves.max():.1f} at most" in text
    )
    pairs = (
        csv("specialization/iat-pairs-all.csv")
        .query("method == 'multi-task'")
        .set_index(["pair", "seed"])["D"]
    )
    old = csv("specialization/pairs-all.csv").query("model == 'MiniLM-L6' and method == 'multi-task'")
    old = old.assign(pair=old["A"] + " – " + old["B"]).set_index(["pair", "seed"])["D"]
    far = (pairs - old).abs()
    assert far.idxmax() == ("qnli – sst2", 4)
    assert (
        f"moves by {far.mean():.1f} points on average and by up to {far.max():.1f} (QNLI with SST-2 in seed 4)"
        in text
    )
    rank = stats.spearmanr(*(table.groupby("pair").mean().sort_index() for table in (pairs, old))).statistic
    assert f"the order of the ten pairs' means stays (Spearman {rank:.2f})" in text
    for row in csv("specialization/iat-tasks.csv").to_dict("records"):
        each = [row[f"seed {seed}"] for seed in range(5)]
        assert row["difference"] == pytest.approx(sum(each) / 5, abs=2e-4)
        assert row["difference"] == pytest.approx(row["important heads"] - row["multi-task"], abs=2e-4)
    differences = csv("specialization/iat-tasks.csv")
    assert differences["difference"].mean() == pytest.approx(gain.mean(), abs=2e-4)


MODELS, TASKS = ["MiniLM-L6", "mpnet-base", "e5-small"], ["mnli", "qqp", "qnli", "ag_news", "sst2"]


def trained_and_frozen(name: str) -> pd.DataFrame:
    """A table of the three models, trained and frozen, out of the files of three runs."""
    first, e5, frozen = (csv(f"specialization/{prefix}{name}.csv") for prefix in ("", "e5-", "frozen-"))
    return pd.concat(
        [first, e5.assign(model="e5-small", method="multi-task"), frozen.assign(method="frozen")]
    )


def test_the_frozen_controls_stand_beside_the_trained_models() -> None:
    text = page("specialization.md")
    seeds = csv("specialization/frozen-seeds.csv").set_index(["model", "method"])
    want = trained_and_frozen("d").pivot(index=["model", "method"], columns="seed", values="D")
    assert seeds.iloc[:, :5].to_numpy() == pytest.approx(want.loc[seeds.index].to_numpy(), abs=1e-4)
    assert seeds["mean"].to_numpy() == pytest.approx(seeds.iloc[:, :5].mean(axis=1).to_numpy(), abs=1e-4)
    adds = [
        seeds.loc[(model, "multi-task"), "mean"] - seeds.loc[(model, "frozen"), "mean"] for model in MODELS
    ]
    assert "it adds {:.1f}, {:.1f} and {:.1f} points at 30 %".format(*adds) in text

    overlap = csv("specialization/frozen-overlap.csv").set_index("pair")
    each = trained_and_frozen("overlap-mean").set_index(["A", "B", "model", "method"])["overlap"]
    for column in overlap:
        model, method = column.replace("trained", "multi-task").split()
        for pair in overlap.index[:10]:
            assert overlap.loc[pair, column] == pytest.approx(
                each[(*pair.split(" – "), model, method)], abs=1e-4
            )
    assert overlap.loc["mean"].to_numpy() == pytest.approx(overlap.iloc[:10].mean().to_numpy(), abs=1e-4)
    falls = [
        overlap.loc["mean", f"{model} frozen"] - overlap.loc["mean", f"{model} trained"] for model in MODELS
    ]
    assert "by {:.0f}, {:.0f} and {:.0f} points".format(*falls) in text

    pairs = trained_and_frozen("pairs-all")
    both = (pairs[["D_A", "D_B"]] > 0).all(axis=1).groupby([pairs["model"], pairs["method"]]).sum()
    counts = [
        both[(model, method)]
        for model in ("mpnet-base", "MiniLM-L6", "e5-small")
        for method in ("frozen", "multi-task")
    ]
    assert counts == [6, 33, 1, 43, 0, 43]


def test_what_frozen_models_lose_follows_from_their_accuracies() -> None:
    text = page("specialization.md")
    accuracies = trained_and_frozen("performance-mean")
    groups = accuracies.groupby(["model", "method"])
    wide = {key: some.pivot(index="lesion", columns="task", values="mean")[TASKS] for key, some in groups}
    for row in csv("specialization/frozen-tasks.csv").to_dict("records"):
        table = wide[row["model"], row["method"]]
        kept = 100 * table / table.loc["intact"]
        names = TASKS if row["fraction"] == 0.3 else [f"{task} at 0.1" for task in TASKS]
        for own, task in zip(names, TASKS, strict=True):
            others = kept.loc[[name for name in names if name != own], task]
            assert row[task] == pytest.approx(others.mean() - kept.loc[own, task], abs=1e-3)
        assert row["D"] == pytest.approx(sum(row[task] for task in TASKS) / 5, abs=1e-3)
    pairs = csv("specialization/frozen-pairs-tenth.csv")
    for row in pairs.to_dict("records"):
        model, method = row["models"].replace("trained", "multi-task").split()
        table = wide[model, method]
        kept = 100 * table / table.loc["intact"]
        a, b = row["pair"].split(" – ")
        assert row["D_A"] == pytest.approx(kept.loc[f"{b} at 0.1", a] - kept.loc[f"{a} at 0.1", a], abs=1e-3)
        assert row["D_B"] == pytest.approx(kept.loc[f"{a} at 0.1", b] - kept.loc[f"{b} at 0.1", b], abs=1e-3)
    both = (pairs[["D_A", "D_B"]] > 0).all(axis=1).groupby(pairs["models"]).sum()
    told = [both[f"{model} {method}"] for method in ("frozen", "trained") for model in MODELS]
    assert (
        "Both are positive in {}, {} and {} of ten pairs before training and in {}, {} and {} after it".format(
            *told
        )
        in text
    )
    tenth = csv("specialization/frozen-tenth.csv").set_index(["model", "silenced"])
    for model in MODELS:
        table = wide[model, "frozen"]
        assert tenth.loc[(model, "none")].to_numpy() == pytest.approx(
            table.loc["intact"].to_numpy(), abs=1e-4
        )
        lesions = table.loc[[f"{task} at 0.1" for task in TASKS]].to_numpy()
        own = lesions.diagonal()
        assert tenth.loc[(model, "own heads")].to_numpy() == pytest.approx(own, abs=1e-4)
        assert tenth.loc[(model, "others' heads")].to_numpy() == pytest.approx(
            (lesions.sum(0) - own) / 4, abs=1e-4
        )
    lesions = csv("specialization/frozen-lesions.csv").set_index(["model", "lesion"])
    for (model, lesion), row in lesions.iterrows():
        table = wide[model, "frozen"]
        rows = [lesion] if lesion in table.index else [f"random {draw}" for draw in range(10)]
        assert row.to_numpy(float) == pytest.approx(table.loc[rows].mean().to_numpy(), abs=1e-4)
    sweep = csv("specialization/frozen-sweep.csv").set_index(["model", "method"])
    seeds = csv("specialization/frozen-sweep-seeds.csv")
    means = seeds.groupby(["model", "fraction"])["D"].mean().unstack()
    assert sweep.xs("frozen", level="method").loc[means.index].to_numpy() == pytest.approx(
        means.to_numpy(), abs=1e-4
    )
    least = seeds[seeds["fraction"] == 0.1].groupby("model")[["D", "D_low"]].min()
    assert (least > 0).all(axis=None)
