"""What does int8 do to accuracy, to the size of a checkpoint, and to the time of training and of inference?

fp32 is compared with dynamic and static quantization after training, and with quantization-aware training, which is
converted to int8 and tested after every epoch. Inference is timed at --inference-batch samples for fp32 (eager and
compiled) and for int8 (compiled). PyTorch's profiler tables are in runs/<run>/profile_*.txt.
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="quantization",
            question=__doc__,
            has_modules=False,
            axis="quantization",
            axes={
                "quantization": ["off", "dynamic", "static", "qat"],
                "batch_per_rank": [32],
                "world_size": [1],
                "epochs": [3],
                "inference_batch": [32],
                "device": ["cpu"],
            },
        )
    )
