"""`dmls-ray kubernetes`: a sweep as a RayJob for KubeRay."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence

from dmls_ray.cli.call import Call
from dmls_ray.cli.console import EXIT_OK, Parser
from dmls_ray.cli.largest import field_of_largest
from dmls_ray.cli.request import Request, parse_request
from dmls_ray.cli.sweep_command import asked_by, parser_of
from dmls_ray.cli.sweep_flags import add_flag, flag_of, value_of_flag
from dmls_ray.cluster.rayjob import RayJobOptions, rayjob
from dmls_ray.config.fields import field_specs
from dmls_ray.config.grid import configs_of
from dmls_ray.execution.planning import plan_sweep
from dmls_ray.util.errors import ConfigError

SPECS = field_specs(RayJobOptions)
"""The flags besides those of a sweep."""


def kubernetes(call: Call) -> int:
    """Print a RayJob that runs a sweep on Kubernetes with KubeRay 1.5.1 or newer, and start nothing. WHAT and all
    other flags are those of dmls-ray sweep. --out is a URI, or a folder of a --volume.

    Example: dmls-ray kubernetes train.py --batch-size 16 32 --image IMAGE --out s3://BUCKET/NAME > job.yaml
    """
    usage = "%(prog)s WHAT --image IMAGE --out URI [flags of it and of dmls-ray sweep] [-- arguments of the script]"
    parser = Parser(prog=call.name, usage=usage, description=inspect.getdoc(kubernetes))
    after_what = Parser(prog=call.name, add_help=False)
    for spec in SPECS.values():
        add_flag(parser, spec, spec.default, ())
        # A flag of this name may be meant for the script, which takes several.
        add_flag(after_what, spec, spec.default, (), nargs="+")
    what_at = _place_of_what(call.words)
    end = call.words.index("--") if "--" in call.words else len(call.words)
    before = parser.parse_args(call.words[:what_at])
    parser.parse_known_args(call.words[what_at:end])  # answers --help
    after, words = after_what.parse_known_args(call.words[what_at:end])
    if not words:
        raise ConfigError("It names nothing to run; give what dmls-ray sweep takes, a script for example: train.py.")
    for word in words:
        if word.partition("=")[0] == "--address":
            raise ConfigError(f"{word}: the cluster is that which KubeRay makes; leave it out.")

    call.words = [*words, "--address", "auto", *call.words[end:]]
    command = ["dmls-ray", "sweep", *call.words]
    preset, what = asked_by(call)
    request = parse_request(parser_of(preset, call), preset, call.words, what)
    schema = request.workload.schema()
    for name in vars(after).keys() & schema.specs.keys():
        raise ConfigError(
            f"{flag_of(name)} is a flag of {schema.title}, too; give that of this command before {words[0]}, and the "
            "other one after --, or in a sweep.toml."
        )
    # Each has one value, in which a space is refused.
    given = vars(before) | {name: " ".join(values) for name, values in vars(after).items()}
    options = RayJobOptions(**{name: value_of_flag(SPECS[name], text) for name, text in given.items()})
    _check(request, options)
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes also what only YAML of Go takes for a number or a truth value: 1e3, 0o17, y."""

    of_go = re.compile(r"([0-9.]+[eE][-+]?[0-9]+|0o[0-7]+|[yYnN])\Z")
    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", of_go, list("0123456789.yYnN"))
    manifest = rayjob(options, request.options.name, command)
    print(yaml.dump(manifest, Dumper=Dumper, sort_keys=False, width=float("inf")), end="")
    return EXIT_OK


def _place_of_what(words: Sequence[str]) -> int:
    """How many words stand before that which names what is run: flags of this command, with a value each."""
    place = 0
    while place < len(words):
        flag, equals, _ = words[place].partition("=")
        if flag not in map(flag_of, SPECS):
            break
        place += 1 if equals else 2
    return place


def _check(request: Request, options: RayJobOptions) -> None:
    """Refuse what would fail, or be lost, on the cluster of a RayJob.

    Raises:
        InputError: that is the case, or the sweep itself would be refused.
    """
    out = request.options.out
    if out is None or not options.outlives_pods(out):
        given = f"--out {out} is lost with its pod" if out else "--out is missing: results in a pod are lost with it"
        raise ConfigError(f"{given}; give --out s3://BUCKET/NAME, or a folder of a --volume.")
    if request.dry_run:
        raise ConfigError("--dry-run would run nothing on the cluster; leave it out: nothing is started here, either.")
    if request.options.fresh:
        raise ConfigError("--fresh would begin anew on each new cluster; leave it out, and give another --out.")
    largest = field_of_largest(request.axes)
    axes = {name: values for name, values in request.axes.items() if name != largest}
    plan, _ = plan_sweep(axes, request.options, request.workload, variants=request.variants)
    configs = configs_of(plan.runs)
    request.workload.check(configs)
    for config in configs:
        if config.launcher != "ray":
            raise ConfigError(f"--launcher {config.launcher} would start ranks on the head; leave it out.")
        reason = options.resources.infeasible_reason(config, oversubscribe=request.options.oversubscribe)
        if reason:
            sizes = f"--worker-replicas {options.worker_replicas}, --worker-cpu {options.worker_cpu}"
            raise ConfigError(f"The pods ({sizes}, --worker-gpu {options.worker_gpu}) are too few or small: {reason}")
