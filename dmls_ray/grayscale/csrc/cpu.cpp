// Colour images to grey on the processor.
//
// The loops are plain; the compiler makes use of vector units in them, in several versions of which the processor picks one when the
// library is loaded (so that it may lie on a disk that unlike machines share). 16 bits are enough: a level times 256 times its weight, of
// which the multiplication keeps the upper half, is off by less than 1/256 of a level, three of them by less than 1/85.

#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>

#include "checks.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=icelake-server", "arch=x86-64-v4", "arch=x86-64-v3", "default")))
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)  // has no names for levels of x86-64
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=icelake-server", "arch=skylake-avx512", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

namespace {

constexpr uint32_t kRed = 0.2989 * 65536 + 0.5, kGreen = 0.5870 * 65536 + 0.5, kBlue = 0.1140 * 65536 + 0.5;
constexpr int64_t kGrain = 16384;  // pixels worth a thread
constexpr int64_t kBlock = 1024, kAhead = 2, kLine = 64;  // pixels between two looks ahead, blocks, and bytes

inline uint16_t part(uint8_t level, uint32_t weight) {
  return static_cast<uint16_t>((static_cast<uint32_t>(level) << 8) * weight >> 16);
}

inline uint8_t grey_of(uint8_t red, uint8_t green, uint8_t blue) {
  return static_cast<uint16_t>(part(red, kRed) + part(green, kGreen) + part(blue, kBlue) + 128) >> 8;
}

FOR_EACH_PROCESSOR
void interleaved(const uint8_t* __restrict pixels, uint8_t* __restrict grey, int64_t count) {
  for (int64_t i = 0; i < count; ++i) grey[i] = grey_of(pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2]);
}

// Pixels from memory are asked for two blocks before their turn: the processor's own guess runs dry where a thread reads three bytes for
// each that it writes (1.1 times as fast on one thread of an AMD EPYC, and no slower from the cache).
void interleaved_ahead(const uint8_t* pixels, uint8_t* grey, int64_t count) {
  for (int64_t block = 0; block < count; block += kBlock) {
    const int64_t soon = block + kAhead * kBlock, end = std::min(soon + kBlock, count);
    for (int64_t byte = 3 * soon; byte < 3 * end; byte += kLine) __builtin_prefetch(pixels + byte);
    interleaved(pixels + 3 * block, grey + block, std::min(kBlock, count - block));
  }
}

FOR_EACH_PROCESSOR
void planar(const uint8_t* __restrict red, const uint8_t* __restrict green, const uint8_t* __restrict blue,
            uint8_t* __restrict grey, int64_t count) {
  for (int64_t i = 0; i < count; ++i) grey[i] = grey_of(red[i], green[i], blue[i]);
}

void turn_grey(const at::Tensor& pixels, at::Tensor& grey, bool is_planar) {
  const int64_t area = checked_area(pixels, grey, is_planar, at::kCPU);
  const uint8_t* in = pixels.const_data_ptr<uint8_t>();
  uint8_t* out = grey.mutable_data_ptr<uint8_t>();
  at::parallel_for(0, grey.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (!is_planar) return interleaved_ahead(in + 3 * begin, out + begin, end - begin);
    while (begin < end) {  // up to the end of an image, where the planes of the next one begin
      const int64_t image = begin / area, place = begin % area, count = std::min(area - place, end - begin);
      const uint8_t* red = in + 3 * area * image + place;
      planar(red, red + area, red + 2 * area, out + begin, count);
      begin += count;
    }
  });
}

}  // namespace

TORCH_LIBRARY(dmls_ray_grey_cpu, library) {
  library.def("grey(Tensor pixels, Tensor(a!) grey, bool planar) -> ()", &turn_grey);
}
