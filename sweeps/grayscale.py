"""How fast can images be turned grey, from two Python loops to a CUDA kernel?

0.2989 R + 0.5870 G + 0.1140 B, uint8 in and uint8 out, by each implementation that exists on this machine; what is
missing is skipped, and the row says why. Images are interleaved (height x width x 3, as files hold them); --layout
planar asks the same of planes. --images sets the working set: one that is 4 times as large as the last-level cache is
compared with the bandwidth of memory. --threads-per-rank says how many processor threads an implementation may use.
"""

from dmls_ray.cli.sweep_script import main
from dmls_ray.workloads.grayscale.config import IMPLEMENTATIONS

if __name__ == "__main__":
    main(
        name="grayscale",
        question=__doc__,
        axis="implementation",
        workload="grayscale",
        defaults={"implementation": list(IMPLEMENTATIONS)},
    )
