#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// Turns `count` pixels grey, `area` of them an image; pixels and grey lie on the stream's device.
cudaError_t launch_grey(const uint8_t* pixels, uint8_t* grey, int64_t count, int64_t area, bool planar, cudaStream_t stream);
