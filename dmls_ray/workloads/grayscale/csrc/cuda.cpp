// The CUDA kernel as an operator of PyTorch's. The kernel is in a file of its own, which needs no header of PyTorch's: nvcc takes a
// minute for those.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "checks.h"
#include "kernel.h"

namespace {

void turn_grey(const at::Tensor& pixels, at::Tensor& grey, bool planar) {
  const int64_t area = checked_area(pixels, grey, planar, at::kCUDA);
  if (grey.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(pixels.device());
  const auto stream = c10::cuda::getCurrentCUDAStream(pixels.get_device());
  C10_CUDA_CHECK(launch_grey(pixels.const_data_ptr<uint8_t>(), grey.mutable_data_ptr<uint8_t>(), grey.numel(), area, planar, stream));
}

}  // namespace

TORCH_LIBRARY(dmls_ray_grey_cuda, library) {
  library.def("grey(Tensor pixels, Tensor(a!) grey, bool planar) -> ()", &turn_grey);
}
