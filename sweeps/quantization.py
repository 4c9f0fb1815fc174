"""What does int8 do to accuracy, to the size of a checkpoint, and to the time of training and of inference?

fp32 against dynamic and static quantization after training, and against quantization-aware training, which is converted
to int8 after every epoch and tested as int8. Inference is timed for fp32, eager and compiled, and for int8 compiled, at
--inference-batch samples; PyTorch's profiler tables lie in runs/<run>/profile_*.txt.
"""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main(
        name="quantization",
        question=__doc__,
        axis="quantization",
        defaults={
            "quantization": ["off", "dynamic", "static", "qat"],
            "batch_per_rank": [32],
            "world_size": [1],
            "epochs": [3],
            "inference_batch": [32],
            "device": ["cpu"],
        },
    )
