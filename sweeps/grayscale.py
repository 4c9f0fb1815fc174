"""How fast can images be turned grey, from two Python loops to a CUDA kernel?

Each implementation computes 0.2989 R + 0.5870 G + 0.1140 B from uint8 to uint8. An implementation that this machine
lacks is a skipped row with the reason. Images are interleaved (height x width x 3), as in files; --layout planar uses
3 x height x width. --images sets the working set: one that is several times as large as the last-level cache is read
from memory. --threads-per-rank limits the threads of an implementation.
"""

from dmls_ray.cli.sweep_script import Preset, main
from dmls_ray.workloads.grayscale.workload import IMPLEMENTATIONS

if __name__ == "__main__":
    main(
        Preset(
            name="grayscale",
            question=__doc__,
            has_modules=False,
            axis="implementation",
            workload="grayscale",
            axes={"implementation": list(IMPLEMENTATIONS)},
        )
    )
