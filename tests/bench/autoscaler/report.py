"""Tables of the benchmark in plain text. Owns layout alone; every number comes from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.bench.autoscaler.goals import Goal
from tests.bench.autoscaler.learning import Learnt
from tests.bench.autoscaler.loads import Kind, Traffic
from tests.bench.autoscaler.steady import Steadied
from tests.bench.autoscaler.step import Stepped
from tests.bench.autoscaler.sweep import Compared, Pair, summed

FAMILIES = ("hpa", "kpa", "databricks", "ray", "dynamo", "static", "prompt", "clairvoyant")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    all_rows = [list(head), *map(list, rows)]
    widths = [max(len(row[i]) for row in all_rows) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in all_rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def traffics(found: Iterable[Traffic]) -> str:
    head = ("traffic", "kind", "growth", "service s", "slots", "replicas mean", "peak", "requests", "late above s")
    return table(head, map(_traffic, found))


def _traffic(one: Traffic) -> tuple[str, ...]:
    need = one.needed
    return (
        one.name,
        one.kind,
        f"{one.growth:.2f}",
        f"{one.service_s:g}",
        str(one.slots),
        f"{sum(need) / len(need):.1f}",
        str(max(need)),
        f"{sum(one.rates_rps):.0f}",
        f"{one.objective_s:g}",
    )


def equal_cost(cases: Sequence[Compared]) -> str:
    """Bad % of each. `~`: a curve does not reach the cost, its nearest end is shown. `a/b`: the rival can't be had as
    cheaply, so at its least cost ours has a %."""
    families = [family for family in FAMILIES if any(family in case.bad for case in cases)]
    head = ("traffic", "start-up", "replica-s", "peak", "changes/h", "ours", *families)
    return table(head, (_case(case, families) for case in cases))


def _case(case: Compared, families: Sequence[str]) -> list[str]:
    us = case.ours
    of_us = [f"{us.cost:.0f}", str(us.peak), f"{us.changes_per_hour:.1f}", f"{100 * us.bad / us.requests:.3f}"]
    of_them = [_shares(case, case.bad.get(family)) for family in families]
    return [case.case[0], f"{case.case[1]:.0f}", *of_us, *of_them]


def _shares(case: Compared, pair: Pair | None) -> str:
    if pair is None:
        return "-"
    percent = 100 / case.ours.requests
    ours = f"{pair.ours * percent:.3f}/" if pair.cost > case.ours.cost else ""
    return f"{'~' if pair.beyond else ''}{ours}{pair.rival * percent:.3f}"


def sums(cases: Sequence[Compared]) -> str:
    """Over the traffic of one kind: bad requests and cost, ours against each rival at equal cost and at equal bad."""
    head = (
        "kind",
        "start-up",
        "rival",
        "bad ours",
        "bad rival",
        "ours/rival",
        "worse in",
        "beyond",
        "cost ours/rival",
        "beyond",
    )
    rows = []
    for kind in Kind:
        for start_up_s in dict.fromkeys(case.case[1] for case in cases):
            those = [case for case in cases if case.kind is kind and case.case[1] == start_up_s]
            rows += [_sum(those, family) for family in FAMILIES if any(family in case.bad for case in those)]
    return table(head, rows)


def _sum(cases: Sequence[Compared], family: str) -> tuple[str, ...]:
    total = summed(cases, family)
    return (
        cases[0].kind,
        f"{cases[0].case[1]:.0f}",
        family,
        f"{total.bad:.0f}",
        f"{total.rival_bad:.0f}",
        f"{total.bad_ratio:.3f}",
        f"{total.worse} of {len(cases)}",
        str(total.beyond),
        f"{total.cost_ratio:.3f}",
        str(total.cost_beyond),
    )


def steps(found: Sequence[Stepped]) -> str:
    head = ("policy", "start-up", "clients", "lost s", "over start-up", "peak", "peak/ideal", "replica-s")
    return table(
        head,
        (
            (
                one.contender,
                f"{one.start_up_s:.0f}",
                one.clients,
                f"{one.lost_s:.1f}",
                f"{one.lost_s - one.start_up_s:+.1f}",
                f"{one.peak:.1f}",
                f"{one.peak_ratio:.2f}",
                f"{one.replica_seconds:.0f}",
            )
            for one in found
        ),
    )


def steadiness(found: Sequence[Steadied]) -> str:
    head = ("policy", "replicas due", "changes/h", "most", "bad %", "replicas")
    return table(
        head,
        (
            (
                s.contender,
                str(s.size),
                f"{s.changes:.2f}",
                f"{s.most:.1f}",
                f"{100 * s.bad_share:.3f}",
                f"{s.replicas:.2f}",
            )
            for s in found
        ),
    )


def learning(found: Sequence[Learnt]) -> str:
    head = ("case", "knee", "error", "worst later", "limit", "steps while slow", "bad %")
    return table(
        head,
        (
            (
                one.case,
                _or_dash(one.knee),
                _or_dash(one.error, 2),
                _or_dash(one.worst, 2),
                _or_dash(one.limit),
                f"{one.steps:.0f}",
                f"{100 * one.bad_share:.3f}",
            )
            for one in found
        ),
    )


def _or_dash(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def goals(found: Iterable[Goal]) -> str:
    rows = ((g.text, f"{g.measured:.2f}", f"{g.most:.2f}", g.verdict, g.note) for g in found)
    return table(("goal", "measured", "at most", "", ""), rows)
