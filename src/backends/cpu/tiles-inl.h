// Tiles: parts of a tensor that fit into L1, as float32 for every stored dtype. Dense
// float32 operands are used in place; others are converted or gathered into a buffer on the stack.
#if defined(TRACESTEP_BACKENDS_CPU_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRACESTEP_BACKENDS_CPU_TILES_INL_H
#undef TRACESTEP_BACKENDS_CPU_TILES_INL_H
#else
#define TRACESTEP_BACKENDS_CPU_TILES_INL_H
#endif

#include "backends/cpu/operand.h"
#include "backends/cpu/simd-inl.h"
#include "backends/cpu/threads.h"
#include "base/integers.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {

// Elements of a tile: five tiles of float32 take 20 of the 32 KiB that L1 has at least.
constexpr std::int64_t kTile = 1024;
// Elements of a chunk, the unit that threads share; for_tiles() takes up to four times as many.
constexpr std::int64_t kChunk = 16 * kTile;

struct Tile {
  alignas(64) float data[kTile];
};

// Reads elements begin <= i < begin + n as floats: in place, or into `buffer`.
HWY_NOINLINE inline const float* read(const Operand& x, std::int64_t begin, std::int64_t n,
                                      Tile& buffer) {
  if (x.is_dense && x.dtype == DType::kF32) {
    return reinterpret_cast<const float*>(x.data) + begin;
  }
  float* dst = buffer.data;
  if (x.is_dense) {
    to_floats(x.at(begin), x.dtype, 1, n, dst);
  } else {
    for_runs(x, begin, n, [&](const std::byte* p, std::int64_t stride, std::int64_t count) {
      to_floats(p, x.dtype, stride, count, dst);
      dst += count;
    });
  }
  return buffer.data;
}

// Returns where a result's elements from `begin` on are computed; finish() stores them.
HWY_INLINE float* destination(const TensorRef& y, std::int64_t begin, Tile& buffer) {
  return y.dtype == DType::kF32 ? y.as<float>() + begin : buffer.data;
}
HWY_NOINLINE inline void finish(const TensorRef& y, std::int64_t begin, std::int64_t n,
                                const Tile& buffer) {
  if (y.dtype == DType::kF32) return;
  const auto bytes = begin * static_cast<std::int64_t>(size_of(y.dtype));
  from_floats(buffer.data, n, y.dtype, y.as<std::byte>() + bytes);
}

// A result of any strides, with its own destination() and finish().
class StridedResult {
 public:
  explicit StridedResult(const TensorRef& y) : y_(y), walk_(y) {}
  explicit operator bool() const { return y_.data != nullptr; }

  float* destination(std::int64_t begin, Tile& buffer) const {
    return walk_.is_dense ? HWY_NAMESPACE::destination(y_, begin, buffer) : buffer.data;
  }
  void finish(std::int64_t begin, std::int64_t n, const Tile& buffer) const {
    if (walk_.is_dense) return HWY_NAMESPACE::finish(y_, begin, n, buffer);
    const float* src = buffer.data;
    for_runs(walk_, begin, n, [&](const std::byte* p, std::int64_t stride, std::int64_t count) {
      auto* dst = y_.as<std::byte>() + (p - walk_.data);
      const std::int64_t together = stride == 1 ? count : 1;
      for (std::int64_t i = 0; i < count; i += together) {
        from_floats(src + i, together, y_.dtype, dst + i * stride * walk_.element_bytes);
      }
      src += count;
    });
  }

 private:
  const TensorRef& y_;
  const Operand walk_;
};

// Calls f(chunk, thread) for all chunks, on this call's threads.
template <class F>
void for_chunks(const KernelCall& call, std::int64_t chunks, const F& f) {
  run_chunks(
      threads_of(call), chunks,
      [](const void* context, std::int64_t chunk, int thread) {
        (*static_cast<const F*>(context))(chunk, thread);
      },
      &f);
}

// Returns how many elements a chunk of an elementwise kernel has: kChunk to 4 · kChunk, as streams
// from memory begin slowly, but more than kChunk only if each thread gets sixteen chunks.
inline std::int64_t chunk_of_tiles(std::int64_t count, int threads) {
  constexpr std::int64_t kMost = 4 * kChunk;
  return std::clamp(count / (std::int64_t{16} * threads) / kTile * kTile, kChunk, kMost);
}

// Calls f(begin, n) for tiles of n <= kTile elements that cover 0 <= i < count. The tiles are the
// same for any number of threads.
template <class F>
void for_tiles(const KernelCall& call, std::int64_t count, const F& f) {
  const std::int64_t size = chunk_of_tiles(count, threads_of(call));
  for_chunks(call, ceil_div(count, size), [&](std::int64_t chunk, int) {
    const std::int64_t end = std::min(count, (chunk + 1) * size);
    for (std::int64_t i = chunk * size; i < end; i += kTile) f(i, std::min(kTile, end - i));
  });
}

// Calls f(row) for all rows, several to a chunk when they are short.
template <class F>
void for_rows(const KernelCall& call, std::int64_t rows, std::int64_t width, const F& f) {
  const std::int64_t per_chunk =
      std::max<std::int64_t>(1, kChunk / std::max<std::int64_t>(1, width));
  for_chunks(call, ceil_div(rows, per_chunk), [&](std::int64_t chunk, int) {
    const std::int64_t end = std::min(rows, (chunk + 1) * per_chunk);
    for (std::int64_t row = chunk * per_chunk; row < end; ++row) f(row);
  });
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRACESTEP_BACKENDS_CPU_TILES_INL_H
