// What either kernel takes: whatever else it is given, it refuses in one line.
#pragma once

#include <ATen/core/Tensor.h>

// Returns the pixels of an image.
inline int64_t checked_area(const at::Tensor& pixels, const at::Tensor& grey, bool planar, at::DeviceType device) {
  TORCH_CHECK(pixels.scalar_type() == at::kByte, "pixels are ", pixels.scalar_type(), "; give uint8, levels 0 to 255");
  TORCH_CHECK(grey.scalar_type() == at::kByte, "grey is ", grey.scalar_type(), "; give uint8");
  TORCH_CHECK(pixels.dim() == 4, "pixels have ", pixels.dim(), " dimensions; give 4, the first of them the images");
  TORCH_CHECK(pixels.size(planar ? 1 : 3) == 3, "pixels have ", pixels.size(planar ? 1 : 3), " channels; give 3: red, green and blue");
  TORCH_CHECK(pixels.is_contiguous(), "pixels have the strides ", pixels.strides(), "; give a contiguous tensor");
  TORCH_CHECK(grey.is_contiguous(), "grey has the strides ", grey.strides(), "; give a contiguous tensor");
  const int64_t height = pixels.size(planar ? 2 : 1), width = pixels.size(planar ? 3 : 2);
  TORCH_CHECK(grey.sizes() == at::IntArrayRef({pixels.size(0), height, width}), "grey has the shape ", grey.sizes(), ", and the images ",
              at::IntArrayRef({pixels.size(0), height, width}));
  TORCH_CHECK(pixels.device().type() == device, "pixels are on ", pixels.device(), "; give them on ", device);
  TORCH_CHECK(grey.device() == pixels.device(), "grey is on ", grey.device(), " and pixels on ", pixels.device(), "; give one device");
  return height * width;
}
