"""What do more machines, and more ranks on each, do to the time and accuracy of training?

Weak scaling: batch_per_rank is fixed, so global_batch grows with the ranks; pass --global-batch for strong scaling.
Start Ray on each machine first (ray start --head here, ray start --address=... there) and pass --address auto. Where
there are too few machines, a row is skipped, and says so. What a byte takes from machine to machine is measured before
each run: the round trip and the bandwidth of the link stand next to the communication that training could not hide.
"""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main(
        name="machines",
        question=__doc__,
        axis="machines",
        defaults={"machines": [1, 2], "ranks_per_machine": [1, 2], "batch_per_rank": [32]},
        layout="machines",
    )
