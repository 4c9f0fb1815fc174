// Colour images to grey on the processor: pixel by pixel, and 32 at once where it has AVX2.
//
// 16 bits are enough: a level times 256 times its weight, of which the multiplication keeps the upper half, is off by less than 1/256 of
// a level, three of them by less than 1/85. The vector units are told what to do rather than left to the compiler: what GCC 11, GCC 12 and
// clang 14 make of the plain loop for AVX2 takes 2 to 4 times as long. AVX-512 would gain nothing from memory, where this goes at the speed
// of a copy, nor for pixels from the cache; for planes from the cache, a tenth or two.

#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>

#include "checks.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace {

constexpr uint32_t kRed = 0.2989 * 65536 + 0.5, kGreen = 0.5870 * 65536 + 0.5, kBlue = 0.1140 * 65536 + 0.5;
constexpr int64_t kGrain = 16384;  // pixels worth a thread
constexpr int64_t kBlock = 512, kAhead = 4, kLine = 64;  // pixels between two looks ahead, blocks, and bytes

inline uint16_t part(uint8_t level, uint32_t weight) {
  return static_cast<uint16_t>((static_cast<uint32_t>(level) << 8) * weight >> 16);
}

inline uint8_t grey_of(uint8_t red, uint8_t green, uint8_t blue) {
  return static_cast<uint16_t>(part(red, kRed) + part(green, kGreen) + part(blue, kBlue) + 128) >> 8;
}

#ifdef __x86_64__

#define WITH_AVX2 __attribute__((target("avx2")))

const bool kIsWide = __builtin_cpu_supports("avx2");

// As above, of 16 pixels: levels times 256 in, grey levels in the lower halves out.
WITH_AVX2 inline __m256i part(__m256i levels, uint32_t weight) {
  return _mm256_mulhi_epu16(levels, _mm256_set1_epi16(static_cast<int16_t>(weight)));
}

WITH_AVX2 inline __m256i grey_of(__m256i red, __m256i green, __m256i blue) {
  const __m256i pair = _mm256_add_epi16(part(red, kRed), part(green, kGreen));
  return _mm256_srli_epi16(_mm256_add_epi16(pair, _mm256_add_epi16(part(blue, kBlue), _mm256_set1_epi16(128))), 8);
}

// Where the levels of a channel of 8 pixels lie in the 16 bytes from `from` on: each goes to the upper half of its pixel's 16 bits, and
// all else is zero (-1). The bytes from 8 on have what those from 0 on have not.
struct Places {
  alignas(16) int8_t of[16];
};

constexpr Places places(int channel, int from) {
  Places made{};
  for (int half = 0; half < 16; ++half) {
    const int byte = 3 * (half / 2) + channel - from;
    made.of[half] = half % 2 == 1 && byte >= from && byte < 16 ? byte : -1;
  }
  return made;
}

constexpr Places kPlaces[3][2] = {{places(0, 0), places(0, 8)}, {places(1, 0), places(1, 8)}, {places(2, 0), places(2, 8)}};

WITH_AVX2 inline __m256i picked(__m256i bytes, const Places& places) {
  const __m128i each = _mm_load_si128(reinterpret_cast<const __m128i*>(places.of));
  return _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(each));
}

// 16 bytes, and 16 of the 8 pixels after.
WITH_AVX2 inline __m256i load_both(const uint8_t* bytes) {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(first), _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 24)), 1);
}

WITH_AVX2 inline __m256i grey_of_16(const uint8_t* pixels) {
  const __m256i first = load_both(pixels), last = load_both(pixels + 8);
  __m256i channels[3];
  for (int c = 0; c < 3; ++c) channels[c] = _mm256_or_si256(picked(first, kPlaces[c][0]), picked(last, kPlaces[c][1]));
  return grey_of(channels[0], channels[1], channels[2]);
}

// Both return how many pixels they have done, all but less than 32.
WITH_AVX2 int64_t by_32(const uint8_t* pixels, uint8_t* grey, int64_t count) {
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i mixed = _mm256_packus_epi16(grey_of_16(pixels + 3 * i), grey_of_16(pixels + 3 * i + 48));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(grey + i), _mm256_permute4x64_epi64(mixed, 0b11'01'10'00));
  }
  return i;
}

WITH_AVX2 int64_t by_32(const uint8_t* red, const uint8_t* green, const uint8_t* blue, uint8_t* grey, int64_t count) {
  const uint8_t* planes[3] = {red, green, blue};
  const __m256i zero = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    __m256i low[3], high[3];
    for (int c = 0; c < 3; ++c) {
      const __m256i levels = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(planes[c] + i));
      low[c] = _mm256_unpacklo_epi8(zero, levels);
      high[c] = _mm256_unpackhi_epi8(zero, levels);
    }
    const __m256i both = _mm256_packus_epi16(grey_of(low[0], low[1], low[2]), grey_of(high[0], high[1], high[2]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(grey + i), both);
  }
  return i;
}

#else

constexpr bool kIsWide = false;

int64_t by_32(const uint8_t*, uint8_t*, int64_t) { return 0; }
int64_t by_32(const uint8_t*, const uint8_t*, const uint8_t*, uint8_t*, int64_t) { return 0; }

#endif

void interleaved(const uint8_t* pixels, uint8_t* grey, int64_t count) {
  for (int64_t i = kIsWide ? by_32(pixels, grey, count) : 0; i < count; ++i) {
    grey[i] = grey_of(pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2]);
  }
}

void planar(const uint8_t* red, const uint8_t* green, const uint8_t* blue, uint8_t* grey, int64_t count) {
  for (int64_t i = kIsWide ? by_32(red, green, blue, grey, count) : 0; i < count; ++i) grey[i] = grey_of(red[i], green[i], blue[i]);
}

// What is in memory is asked for some blocks before its turn: the processor's own guess runs dry where a thread reads three bytes for each
// that it writes (1.2 times as fast on one thread of an AMD EPYC; from the cache pixels take as long as without, and planes 1.2 times).
template <typename Ask, typename Turn>
void look_ahead(int64_t count, Ask ask, Turn turn) {
  for (int64_t block = 0; block < count; block += kBlock) {
    const int64_t soon = block + kAhead * kBlock;
    if (soon < count) ask(soon, std::min(soon + kBlock, count));
    turn(block, std::min(kBlock, count - block));
  }
}

inline void ask_for(const uint8_t* from, const uint8_t* to) {
  for (; from < to; from += kLine) __builtin_prefetch(from);
}

void turn_grey(const at::Tensor& pixels, at::Tensor& grey, bool is_planar) {
  const int64_t area = checked_area(pixels, grey, is_planar, at::kCPU);
  const uint8_t* in = pixels.const_data_ptr<uint8_t>();
  uint8_t* out = grey.mutable_data_ptr<uint8_t>();
  at::parallel_for(0, grey.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (!is_planar) {
      const uint8_t* from = in + 3 * begin;
      look_ahead(
          end - begin, [=](int64_t soon, int64_t until) { ask_for(from + 3 * soon, from + 3 * until); },
          [=](int64_t block, int64_t count) { interleaved(from + 3 * block, out + begin + block, count); });
      return;
    }
    while (begin < end) {  // up to the end of an image, where the planes of the next one begin
      const int64_t image = begin / area, place = begin % area, count = std::min(area - place, end - begin);
      const uint8_t *red = in + 3 * area * image + place, *green = red + area, *blue = green + area;
      look_ahead(
          count,
          [=](int64_t soon, int64_t until) {
            for (const uint8_t* plane : {red, green, blue}) ask_for(plane + soon, plane + until);
          },
          [=](int64_t block, int64_t many) { planar(red + block, green + block, blue + block, out + begin + block, many); });
      begin += count;
    }
  });
}

}  // namespace

TORCH_LIBRARY(dmls_ray_grey_cpu, library) {
  library.def("grey(Tensor pixels, Tensor(a!) grey, bool planar) -> ()", &turn_grey);
}
