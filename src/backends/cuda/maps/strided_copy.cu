// Three ways to copy: chunks of up to 16 bytes where source and destination are dense along the
// same dimension; tiles through shared memory where they are dense along different dimensions, so
// that both sides are read and written in whole lines; single elements otherwise.
#include "backends/cuda/maps/strided_copy.h"

#include "backends/cuda/maps/indices.cuh"
#include "backends/cuda/maps/strided.cuh"
#include "backends/cuda/numbers.cuh"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;  // chunks in flight per thread

// Sets `offset`, in elements, to where `position` puts the first element (0 for position 0). False,
// after a report to `position.faults`, if the position is out of range.
__device__ bool find_position(const Position& position, std::int64_t& offset) {
  offset = 0;
  if (position.data == nullptr) return true;
  std::int64_t at = 0;
  switch (position.dtype) {
    case DType::kI64: at = *static_cast<const std::int64_t*>(position.data); break;
    case DType::kI32: at = *static_cast<const std::int32_t*>(position.data); break;
    default: at = *static_cast<const std::uint8_t*>(position.data); break;
  }
  offset = at * position.step;
  if (at >= 0 && at <= position.most) return true;
  report(position.faults, FaultKind::kPosition, at, position.most);
  return false;
}

// --- chunks -----------------------------------------------------------------------------------
// Returns a chunk in which one element is repeated.
template <class Chunk>
__device__ Chunk repeated(const std::byte* element, int element_bytes) {
  std::uint64_t word;
  switch (element_bytes) {
    case 1: word = *reinterpret_cast<const std::uint8_t*>(element) * 0x0101010101010101u; break;
    case 2: word = *reinterpret_cast<const std::uint16_t*>(element) * 0x0001000100010001u; break;
    case 4: word = *reinterpret_cast<const std::uint32_t*>(element) * 0x0000000100000001u; break;
    default: word = *reinterpret_cast<const std::uint64_t*>(element); break;
  }
  if constexpr (sizeof(Chunk) == 16) {
    const auto low = static_cast<std::uint32_t>(word),
               high = static_cast<std::uint32_t>(word >> 32);
    return {low, high, low, high};
  } else {
    return static_cast<Chunk>(word);
  }
}

// Copies the chunks of `walk`, whose strides are in bytes: of the source, then of the destination.
// `y` is the destination's address for position 0.
template <class Chunk>
__global__ void __launch_bounds__(kThreads, 4)
    copy_chunks_kernel(Predecessors before, const std::byte* x, std::byte* y, Walk<2> walk,
                       int element_bytes, Position position) {
  before.wait();
  std::int64_t start;
  if (!find_position(position, start)) return;
  y += start * element_bytes;
  const auto count = static_cast<std::uint32_t>(walk.count);
  const std::uint32_t first = blockIdx.x * (kThreads * kAhead) + threadIdx.x;
  std::int64_t offsets[kAhead][2];
  Chunk chunks[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {  // past the end: read the last chunk again
    walk.offsets(::min(first + k * kThreads, count - 1), offsets[k]);
  }
#pragma unroll
  for (int k = 0; k < kAhead; ++k) chunks[k] = *reinterpret_cast<const Chunk*>(x + offsets[k][0]);
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    if (first + k * kThreads < count) *reinterpret_cast<Chunk*>(y + offsets[k][1]) = chunks[k];
  }
}

// Fills each chunk of the destination with one element of the source; x = nullptr: with zeros.
template <class Chunk>
__global__ void __launch_bounds__(kThreads)
    repeat_elements_kernel(Predecessors before, const std::byte* x, std::byte* y, Walk<2> walk,
                           int element_bytes, Position position) {
  before.wait();
  std::int64_t start;
  if (!find_position(position, start)) return;
  y += start * element_bytes;
  const auto count = static_cast<std::uint32_t>(walk.count);
  const std::uint32_t begin = blockIdx.x * (kThreads * kAhead) + threadIdx.x;
  for (std::uint32_t i = begin; i < ::min(begin + kThreads * kAhead, count); i += kThreads) {
    std::int64_t offsets[2];
    walk.offsets(i, offsets);
    *reinterpret_cast<Chunk*>(y + offsets[1]) =
        x == nullptr ? Chunk{} : repeated<Chunk>(x + offsets[0], element_bytes);
  }
}

// Returns the bytes of the largest chunk that both sides allow; an element's if one is not dense.
std::int64_t chunk_bytes(const Walk<2>& walk, const void* from, const void* to,
                         std::int64_t element_bytes, std::int64_t position_step) {
  if (walk.rank == 0 || walk.strides[0][1] != 1 || walk.strides[0][0] > 1 ||
      walk.strides[0][0] < 0) {
    return element_bytes;
  }
  const bool repeats = walk.strides[0][0] == 0;
  const auto fits = [&](std::int64_t bytes) {
    const auto whole = [&](std::int64_t elements) { return elements * element_bytes % bytes == 0; };
    const auto width = static_cast<std::size_t>(bytes);
    if (!whole(walk.sizes[0]) || !whole(position_step) || !is_aligned(to, width)) return false;
    if (!repeats && !is_aligned(from, width)) return false;
    for (int d = 1; d < walk.rank; ++d) {
      if (!whole(walk.strides[d][1]) || (!repeats && !whole(walk.strides[d][0]))) return false;
    }
    return true;
  };
  std::int64_t bytes = 16;
  while (bytes > element_bytes && !fits(bytes)) bytes /= 2;
  return bytes;
}

template <class Chunk>
void copy_chunks(const KernelCall& call, const TensorRef& from, const TensorRef& to,
                 const Walk<2>& walk, const Position& position) {
  const auto element_bytes = static_cast<int>(size_of(to.dtype));
  const bool repeats = from.data == nullptr || (walk.rank > 0 && walk.strides[0][0] == 0);
  const auto kernel = repeats ? repeat_elements_kernel<Chunk> : copy_chunks_kernel<Chunk>;
  for_parts(walk, [&](const Walk<2>& part, std::int64_t, const std::array<std::int64_t, 2>& at) {
    const Grid grid{.blocks = static_cast<unsigned>(ceil_div(part.count, kThreads * kAhead)),
                    .threads = kThreads};
    launch(call, grid, kernel, from.data == nullptr ? nullptr : from.as<const std::byte>() + at[0],
           to.as<std::byte>() + at[1], part, element_bytes, position);
  });
}

// Turns a walk over elements into a walk over chunks of `bytes` bytes, with strides in bytes.
void count_chunks(Walk<2>& walk, std::int64_t bytes, std::int64_t element_bytes) {
  for (int d = 0; d < walk.rank; ++d) {
    for (std::int64_t& stride : walk.strides[d]) stride *= element_bytes;
  }
  const std::int64_t elements = bytes / element_bytes;
  if (elements == 1) return;
  for (std::int64_t& stride : walk.strides[0]) stride *= elements;
  walk.sizes[0] /= elements;
  walk.count /= elements;
  if (walk.fits_32_bits()) walk.set_divisors();
}

// --- tiles of kTile by kTile elements, of which a block copies kRows rows at a time ------------
constexpr int kTile = 64;
constexpr int kLeastTiled = 16;  // shorter dimensions would leave most of a tile empty
constexpr int kRows = kThreads / 32;

// How a copy is cut into tiles: dimension `a` is dense in the destination, `b` in the source.
struct Tiles {
  std::int64_t size_a, size_b;
  std::int64_t source_a, destination_b;  // the other strides
  Divisor tiles_a, tiles_b;              // how many
  Walk<2> outer;                         // all other dimensions
};

// The distance between rows of a tile in shared memory: an odd number of words, for column reads.
template <class Element>
constexpr int kPitch = kTile + (sizeof(Element) < 4 ? 4 / static_cast<int>(sizeof(Element)) : 1);

template <class Element>
__global__ void __launch_bounds__(kThreads)
    transpose_tiles_kernel(Predecessors before, const Element* x, Element* y, Tiles t,
                           Position position) {
  before.wait();
  __shared__ Element tile[kTile][kPitch<Element>];
  std::int64_t start;
  if (!find_position(position, start)) return;
  const std::uint32_t rest = t.tiles_b.divide(blockIdx.x);
  const std::uint32_t batch = t.tiles_a.divide(rest);
  const std::int64_t b = std::int64_t{blockIdx.x - rest * t.tiles_b.value} * kTile;
  const std::int64_t a = std::int64_t{rest - batch * t.tiles_a.value} * kTile;
  std::int64_t offsets[2];
  t.outer.offsets(batch, offsets);
  x += offsets[0] + a * t.source_a + b;
  y += start + offsets[1] + b * t.destination_b + a;
  const auto rows_a = static_cast<int>(::min(t.size_a - a, std::int64_t{kTile}));
  const auto rows_b = static_cast<int>(::min(t.size_b - b, std::int64_t{kTile}));
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32;

  Element held[kTile / kRows][2];  // all loads are in flight before the first is stored
#pragma unroll
  for (int i = 0; i < kTile / kRows; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + i * kRows, c = lane + half * 32;
      if (r < rows_a && c < rows_b) held[i][half] = x[r * t.source_a + c];
    }
  }
#pragma unroll
  for (int i = 0; i < kTile / kRows; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) tile[row + i * kRows][lane + half * 32] = held[i][half];
  }
  __syncthreads();  // the tile is whole
#pragma unroll
  for (int i = 0; i < kTile / kRows; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + i * kRows, c = lane + half * 32;
      if (r < rows_b && c < rows_a) y[r * t.destination_b + c] = tile[c][r];
    }
  }
}

// Returns the dimension along which the source is dense but the destination is not; 0: none.
int tiled_dimension(const Walk<2>& walk) {
  if (walk.rank < 2 || walk.strides[0][1] != 1 || walk.strides[0][0] <= 1) return 0;
  if (walk.sizes[0] < kLeastTiled) return 0;
  for (int d = 1; d < walk.rank; ++d) {
    if (walk.strides[d][0] == 1 && walk.sizes[d] >= kLeastTiled) return d;
  }
  return 0;
}

template <class Element>
void transpose_tiles(const KernelCall& call, const TensorRef& from, const TensorRef& to,
                     const Walk<2>& walk, const Position& position) {
  for_parts(walk, [&](const Walk<2>& part, std::int64_t, const std::array<std::int64_t, 2>& at) {
    const int b = tiled_dimension(part);
    Tiles t{.size_a = part.sizes[0],
            .size_b = 1,
            .source_a = part.strides[0][0],
            .destination_b = 0,
            .tiles_a = {},
            .tiles_b = {},
            .outer = {}};
    for (int d = 1; d < part.rank; ++d) {
      if (d == b) {
        t.size_b = part.sizes[d];
        t.destination_b = part.strides[d][1];
        continue;
      }
      t.outer.sizes[t.outer.rank] = part.sizes[d];
      std::copy_n(part.strides[d], 2, t.outer.strides[t.outer.rank]);
      t.outer.count *= part.sizes[d];
      ++t.outer.rank;
    }
    t.outer.set_divisors();
    t.tiles_a = Divisor(static_cast<std::uint32_t>(ceil_div(t.size_a, kTile)));
    t.tiles_b = Divisor(static_cast<std::uint32_t>(ceil_div(t.size_b, kTile)));
    const Grid grid{
        .blocks = static_cast<unsigned>(t.outer.count * t.tiles_a.value * t.tiles_b.value),
        .threads = kThreads};
    launch(call, grid, transpose_tiles_kernel<Element>, from.as<const Element>() + at[0],
           to.as<Element>() + at[1], t, position);
  });
}

}  // namespace

void place(const KernelCall& call, const TensorRef& from, const TensorRef& to,
           const Position& position) {
  if (to.count() == 0) return;
  const auto element_bytes = static_cast<std::int64_t>(size_of(to.dtype));
  Walk<2> walk = make_walk<2>(to.shape, {from.strides, to.strides});
  if (tiled_dimension(walk) != 0) {
    return with_bytes(element_bytes, [&]<class Element>(Element) {
      if constexpr (sizeof(Element) < 16) {
        transpose_tiles<Element>(call, from, to, walk, position);
      }
    });
  }
  const std::int64_t bytes = chunk_bytes(walk, from.data, to.data, element_bytes, position.step);
  count_chunks(walk, bytes, element_bytes);
  with_bytes(bytes,
             [&]<class Chunk>(Chunk) { copy_chunks<Chunk>(call, from, to, walk, position); });
}

void clear(const KernelCall& call, const TensorRef& y) {
  TensorRef zeros = y;
  zeros.data = nullptr;
  zeros.strides = Strides::filled(y.shape.rank(), 0);
  place(call, zeros, y);
}

}  // namespace tracestep::cuda
