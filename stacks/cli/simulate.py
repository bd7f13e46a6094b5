"""`simulate`: policies on a load, without a cluster. The work is in `simulator`; here are options and words.

Owns what a person may say and what is printed. What is heavy to import is imported when it is needed, so that no other
command waits for it.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stacks.cli.console import table
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.outcome import command

if TYPE_CHECKING:
    from simulator.compare import Compared
    from simulator.loads import Load
    from simulator.policy import NewPolicy
    from simulator.scenario import Scenario, Service

ABOVE_ZERO = click.FloatRange(min=0, min_open=True)
FROM_ZERO = click.FloatRange(min=0)
SHARE = click.FloatRange(0, 1)
_ENGINES = click.Choice(["auto", "exact", "coarse"])
_EPILOG = (
    "LOAD is a file (.csv with the columns at_s or at_s,rate_rps or at_s,count; .log or .jsonl from the gateway; each "
    "also with .gz) or a shape: constant:rps=100, step:from=10,to=200,at=300, ramp:from=10,to=200,at=300,over=600, "
    "sine:mean=100,swing=80,period=900, crowd:base=20,peak=400,at=300,rise=20,half=180. "
    "A policy may be given at another setting, hpa=0.5 or static=12, or as FILE.py:CLASS."
)


@click.command(epilog=_EPILOG)
@click.argument("load", default="step")
@click.option("--policy", "policies", default="ours,hpa,kpa", show_default=True, help="Names, with commas between.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed, the same numbers.")
@click.option("--runs", type=click.IntRange(1, 1000), default=1, show_default=True, help="Seeds from --seed on.")
@click.option("--start-up", type=ABOVE_ZERO, default=30.0, show_default=True, help="Seconds until a replica is ready.")
@click.option("--failing", type=SHARE, default=0.0, help="Share of starts that fail.")
@click.option("--service", type=ABOVE_ZERO, help="Seconds that a request takes  [default: the log's, else 0.2]")
@click.option("--service-cv", type=FROM_ZERO, help="Its coefficient of variation  [default: the log's, else 0.5]")
@click.option("--slots", type=click.IntRange(1), default=10, show_default=True, help="Requests at once, as declared.")
@click.option("--knee", type=ABOVE_ZERO, help="Requests at once that a replica really can  [default: as declared]")
@click.option("--min", "least", type=click.IntRange(0), default=1, show_default=True, help="Replicas at least.")
@click.option("--max", "most", type=click.IntRange(1), default=100, show_default=True, help="Replicas at most.")
@click.option("--objective", type=ABOVE_ZERO, help="Seconds; above is late  [default: five service times]")
@click.option("--warm-up", type=FROM_ZERO, default=120.0, show_default=True, help="Seconds that do not count.")
@click.option("--duration", type=click.IntRange(1), default=1800, show_default=True, help="Seconds of a shape.")
@click.option("--scale", type=ABOVE_ZERO, default=1.0, show_default=True, help="Times the rates of a file.")
@click.option(
    "--burstiness", type=FROM_ZERO, default=1.0, show_default=True, help="Of rates: 0 even, 1 Poisson, 3 bursty."
)
@click.option("--attempts", type=click.IntRange(1, 10), default=1, show_default=True, help="How often clients try.")
@click.option("--lost", type=SHARE, default=0.0, show_default=True, help="Share of samples that are lost.")
@click.option("--late", type=FROM_ZERO, default=0.0, show_default=True, help="Seconds that samples come too late.")
@click.option(
    "--slow", type=(FROM_ZERO, FROM_ZERO, ABOVE_ZERO), multiple=True, help="From, to, times as slow a service."
)
@click.option("--rollout", type=FROM_ZERO, multiple=True, help="Second at which a successor starts.")
@click.option("--restart", type=FROM_ZERO, multiple=True, help="Second at which the controller restarts.")
@click.option("--endpoint", help="Whose requests of a log.")
@click.option("--engine", type=_ENGINES, default="auto", show_default=True, help="By request, or by bins of time.")
@click.option("--json", "as_json", is_flag=True, help="The same, for programs.")
@click.option("--series", is_flag=True, help="With --json: by second too.")
@click.option("--plot/--no-plot", default=None, help="Rates and replicas over time  [default: on a terminal]")
@command
def simulate(load: str, policies: str, as_json: bool, series: bool, plot: bool | None, **options: Any) -> None:
    """Compare autoscaling policies on a LOAD, without a cluster."""
    from simulator.compare import as_json as told
    from simulator.compare import compared, engine_for
    from simulator.simulate import Engine

    found, service = _load(load, options)
    scenario = _scenario(found, service, options)
    made = {name: _policy(name, scenario) for name in policies.split(",")}
    requests = _mean_requests(scenario)
    engine = engine_for(scenario, requests) if options["engine"] == "auto" else Engine(options["engine"])
    seeds = range(options["seed"], options["seed"] + options["runs"])
    results = [compared(name, scenario, new_policy, seeds, engine) for name, new_policy in made.items()]
    facts = _facts(load, scenario, engine, seeds)
    if as_json:
        click.echo(json.dumps(told(results, facts, series=series), indent=2))
        return
    _show(facts, results)
    if plot if plot is not None else sys.stdout.isatty():
        _plot(results)


def _load(text: str, options: dict[str, Any]) -> tuple[Load, Service | None]:
    from simulator.loads import scaled
    from simulator.reading import LoadFileError, read_load
    from simulator.shapes import SHAPES, ShapeError, is_shape, read_shape

    path = Path(text)
    try:
        if is_shape(text) and not path.exists():
            return read_shape(text, options["duration"], options["burstiness"]), None
        found = read_load(path, options["endpoint"], options["burstiness"])
        return scaled(found.load, options["scale"]), found.service
    except ShapeError as error:
        raise CliError(f"LOAD: {error}", code=ExitCode.USAGE) from None
    except LoadFileError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from None
    except FileNotFoundError:
        raise CliError(
            f"LOAD: {text!r} is no file, and no shape either",
            hint=f"shapes: {', '.join(SHAPES)}",
            code=ExitCode.USAGE,
        ) from None


def _scenario(load: Load, logged: Service | None, options: dict[str, Any]) -> Scenario:
    from simulator.scenario import Clients, Metrics, Restart, Scenario, Service, Slow, Span, StartUp

    service = logged or Service()
    if options["service"] is not None:
        service = replace(service, mean_s=options["service"])
    if options["service_cv"] is not None:
        service = replace(service, cv=options["service_cv"])
    if options["least"] > options["most"]:
        raise CliError(f"--min {options['least']} is above --max {options['most']}", code=ExitCode.USAGE)
    if options["warm_up"] >= load.duration_s:
        raise CliError(f"--warm-up {options['warm_up']:g} leaves nothing of {load.duration_s:g} s", code=ExitCode.USAGE)
    return Scenario(
        load=load,
        service=replace(service, knee=options["knee"]),
        start_up=StartUp(options["start_up"], failing=options["failing"]),
        slots=options["slots"],
        min_replicas=options["least"],
        max_replicas=options["most"],
        objective_s=options["objective"] or 5 * service.mean_s,
        warm_up_s=options["warm_up"],
        clients=Clients(options["attempts"]),
        metrics=Metrics(options["lost"], late_s=options["late"]),
        slow=tuple(Slow(Span(from_s, to_s), factor) for from_s, to_s, factor in options["slow"]),
        rollouts_s=options["rollout"],
        restarts=tuple(Restart(at_s) for at_s in options["restart"]),
    )


def _policy(text: str, scenario: Scenario) -> NewPolicy:
    from simulator.policies import PolicyError, named

    file, colon, name = text.rpartition(":")
    if colon and file.endswith(".py"):
        return _from_file(Path(file), name)
    try:
        return named(text, scenario)
    except PolicyError as error:
        raise CliError(f"--policy: {error}", code=ExitCode.USAGE) from None


def _from_file(path: Path, name: str) -> NewPolicy:
    """The class of that name, made without arguments."""
    if not path.is_file():
        raise CliError(f"--policy: {path} is no file", code=ExitCode.USAGE)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise CliError(f"--policy: {path} is no Python file", code=ExitCode.USAGE)
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
        made: NewPolicy = getattr(module, name)
        made()
    except Exception as error:
        raise CliError(f"--policy: {path}:{name}: {type(error).__name__}: {error}", code=ExitCode.USAGE) from error
    return made


def _mean_requests(scenario: Scenario) -> float:
    import numpy as np

    from simulator.loads import Rates

    load = scenario.load
    if isinstance(load, Rates):
        return float(load.mean_counts(1.0).sum())
    return float(load.counts(np.random.default_rng(0), 1.0).sum())


def _facts(load: str, scenario: Scenario, engine: str, seeds: range) -> dict[str, Any]:
    return {
        "load": load,
        "duration_s": scenario.duration_s,
        "start_up_s": scenario.start_up.median_s,
        "service_s": scenario.service.mean_s,
        "slots": scenario.slots,
        "objective_s": scenario.objective_s,
        "warm_up_s": scenario.warm_up_s,
        "engine": str(engine),
        "seeds": list(seeds),
    }


def _show(facts: dict[str, Any], results: list[Compared]) -> None:
    from simulator.compare import HEADER, row

    seeds = facts["seeds"]
    counted = "by request" if facts["engine"] == "exact" else "by bins of time"
    click.echo(
        f"{facts['load']}, {facts['duration_s']} s: {results[0].requests:,} requests after {facts['warm_up_s']:g} s. "
        f"Start-up {facts['start_up_s']:g} s, service {facts['service_s']:g} s, {facts['slots']} at once; "
        f"late above {facts['objective_s']:g} s.\n"
        f"Seed {seeds[0]}{f' to {seeds[-1]}' if len(seeds) > 1 else ''}, counted {counted}.\n"
    )
    click.echo(table([row(one) for one in results], list(HEADER)))


def _plot(results: list[Compared]) -> None:
    from simulator.compare import plotted
    from stacks.cli.plot import drawn

    columns = min(shutil.get_terminal_size((100, 30)).columns, 160)
    first = results[0].first
    colour = sys.stdout.isatty()
    for title, lines in (
        ("requests a second", {"": plotted(first.series.arrived)}),
        ("replicas issued", {one.policy: plotted(one.first.series.issued) for one in results}),
        ("bad requests a second", {one.policy: plotted(_bad(one)) for one in results}),
    ):
        click.echo()
        click.echo(drawn(title, lines, float(len(first.series.arrived)), (columns, 12), colour))


def _bad(one: Compared) -> list[int]:
    return [refused + late for refused, late in zip(one.first.series.refused, one.first.series.late, strict=True)]


COMMANDS: tuple[click.Command, ...] = (simulate,)
