#include <algorithm>
#include <cstdint>

#include "backends/cuda/attention/padded_rows.h"
#include "backends/cuda/predecessors.cuh"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256, kRows = 32, kWordsInFlight = 4;

// Returns the offset in elements of row `index`. Rows are counted in the order in which they lie in
// the source: head after head in each token, or token after token in each head.
__device__ __forceinline__ std::int64_t row_start(const RowCopy& copy,
                                                  const AttentionStrides& strides, int index) {
  const bool is_token_major = copy.source_strides.head < copy.source_strides.row;
  const int inner = is_token_major ? copy.heads : copy.rows;
  const int outer = is_token_major ? copy.rows : copy.heads;
  const int x = index % inner, y = index / inner % outer, batch = index / inner / outer;
  return batch * strides.batch + (is_token_major ? x : y) * strides.head +
         (is_token_major ? y : x) * strides.row;
}

// Copies rows word by word, kRows of them per block; blockIdx.y is the number of the copy.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    copy_rows_kernel(Predecessors before, const __grid_constant__ RowCopies all) {
  before.wait();
  __shared__ const Word* sources[kRows];
  __shared__ Word* targets[kRows];
  const RowCopy& copy = all.copies[blockIdx.y];
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x) * kRows;
  const int rows = min(kRows, all.batch * copy.heads * copy.rows - first);
  if (thread < rows) {
    const auto* source = static_cast<const std::uint16_t*>(copy.source);
    auto* target = static_cast<std::uint16_t*>(copy.target);
    sources[thread] = reinterpret_cast<const Word*>(
        source + row_start(copy, copy.source_strides, first + thread));
    targets[thread] =
        reinterpret_cast<Word*>(target + row_start(copy, copy.target_strides, first + thread));
  }
  __syncthreads();
  constexpr int kItems = sizeof(Word) / 2;
  const int width = all.source_width / kItems, target_width = all.target_width / kItems;
  for (int begin = thread; begin < rows * target_width; begin += kThreads * kWordsInFlight) {
    Word words[kWordsInFlight] = {};
#pragma unroll
    for (int i = 0; i < kWordsInFlight; ++i) {
      const int row = (begin + i * kThreads) / target_width;
      const int column = (begin + i * kThreads) % target_width;
      if (row < rows && column < width) words[i] = sources[row][column];
    }
#pragma unroll
    for (int i = 0; i < kWordsInFlight; ++i) {
      const int row = (begin + i * kThreads) / target_width;
      const int column = (begin + i * kThreads) % target_width;
      if (row < rows) targets[row][column] = words[i];
    }
  }
}

// Returns the largest word, 8, 4 or 2 bytes, in which all rows can be copied.
int word_bytes(const RowCopies& all) {
  std::int64_t bits = 8 | 2 * (all.source_width | all.target_width);
  const auto look_at = [&](const void* data, const AttentionStrides& s, const RowCopy& copy) {
    bits |= reinterpret_cast<std::intptr_t>(data);
    if (all.batch > 1) bits |= 2 * s.batch;
    if (copy.heads > 1) bits |= 2 * s.head;
    if (copy.rows > 1) bits |= 2 * s.row;
  };
  for (int i = 0; i < all.count; ++i) {
    const RowCopy& copy = all.copies[i];
    look_at(copy.source, copy.source_strides, copy);
    look_at(copy.target, copy.target_strides, copy);
  }
  return static_cast<int>(bits & -bits);
}

}  // namespace

cudaError_t copy_rows(const RowCopies& copies, const LaunchStream& stream) {
  int rows = 0;
  for (int i = 0; i < copies.count; ++i)
    rows = std::max(rows, copies.batch * copies.copies[i].heads * copies.copies[i].rows);
  if (rows == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((rows + kRows - 1) / kRows);
  const LaunchSize size{dim3(blocks, static_cast<unsigned>(copies.count)), kThreads};
  switch (word_bytes(copies)) {
    case 8: return launch_kernel(stream, size, copy_rows_kernel<std::uint64_t>, copies);
    case 4: return launch_kernel(stream, size, copy_rows_kernel<std::uint32_t>, copies);
    default: return launch_kernel(stream, size, copy_rows_kernel<std::uint16_t>, copies);
  }
}

}  // namespace tracestep::cuda
