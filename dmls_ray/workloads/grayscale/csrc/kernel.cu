// Colour images to grey on a GPU: a thread a pixel.

#include "kernel.h"

namespace {

constexpr int kThreads = 256;  // a block, as in the report that this is measured beside

template <bool kPlanar>
__global__ void grey_pixel(const uint8_t* __restrict__ pixels, uint8_t* __restrict__ grey, int64_t count, int64_t area) {
  const int64_t pixel = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pixel >= count) return;
  // From one channel of a pixel to the next it is a byte, or a plane.
  const int64_t step = kPlanar ? area : 1;
  const uint8_t* red = pixels + (kPlanar ? pixel / area * 3 * area + pixel % area : 3 * pixel);
  grey[pixel] = static_cast<uint8_t>(__float2uint_rn(0.2989f * red[0] + 0.5870f * red[step] + 0.1140f * red[2 * step]));
}

}  // namespace

cudaError_t launch_grey(const uint8_t* pixels, uint8_t* grey, int64_t count, int64_t area, bool planar, cudaStream_t stream) {
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  if (planar) {
    grey_pixel<true><<<blocks, kThreads, 0, stream>>>(pixels, grey, count, area);
  } else {
    grey_pixel<false><<<blocks, kThreads, 0, stream>>>(pixels, grey, count, area);
  }
  return cudaGetLastError();
}
