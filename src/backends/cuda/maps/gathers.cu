// gather, take_along and its transpose put_along. They only move bytes: elements are treated as
// integers of their size. An index out of range gives zeros.
#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/indices.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/rows/row_width.cuh"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kResident = 8;  // blocks of kThreads threads per multiprocessor
constexpr int kAhead = 4;     // loads in flight per thread

// --- gather -----------------------------------------------------------------------------------
// Copies row indices[i] of `table` to row i of y, in chunks; a warp reads neighbouring chunks.
template <class Chunk, class Index>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(Predecessors before, const Chunk* table, Indices indices, Chunk* y,
                       RowWidth row_chunks, std::int64_t table_rows, Index count,
                       FaultPlace faults) {
  before.wait();
  const Index stride = static_cast<Index>(gridDim.x) * kThreads;
  Index first = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  for (; first < count; first += kAhead * stride) {
    std::int64_t from[kAhead];
    Chunk chunk[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const Index i = first + k * stride;
      from[k] = kNoIndex;
      if (i >= count) continue;
      const Index row = row_chunks.row_of(i);
      const std::int64_t index = checked_index(indices.at(row), table_rows, faults);
      const auto column = static_cast<std::int64_t>(i - row * static_cast<Index>(row_chunks.value));
      if (index != kNoIndex) from[k] = index * row_chunks.value + column;
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) chunk[k] = from[k] != kNoIndex ? table[from[k]] : Chunk{};
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const Index i = first + k * stride;
      if (i < count) y[i] = chunk[k];
    }
  }
}

// Returns the bytes of the largest chunk that divides a row and to which `a` and `b` are aligned.
std::int64_t chunk_bytes(std::int64_t row_bytes, const void* a, const void* b) {
  std::int64_t bytes = 16;
  while (row_bytes % bytes != 0 || !is_aligned(a, static_cast<std::size_t>(bytes)) ||
         !is_aligned(b, static_cast<std::size_t>(bytes))) {
    bytes /= 2;
  }
  return bytes;
}

void gather_rows(const KernelCall& call) {
  const TensorRef &table = call.inputs[0], &y = call.outputs[0];
  if (y.count() == 0) return;
  const std::int64_t row_bytes = y.shape.back() * static_cast<std::int64_t>(size_of(y.dtype));
  const std::int64_t bytes = chunk_bytes(row_bytes, table.data, y.data);
  const std::int64_t rows = call.inputs[1].count(), chunks = rows * (row_bytes / bytes);
  const Grid grid{.blocks = blocks_for(call, chunks, kThreads * kAhead, kResident),
                  .threads = kThreads};
  with_bytes(bytes, [&]<class Chunk>(Chunk) {
    with_index(chunks, [&]<class Index>(Index) {
      launch(call, grid, gather_rows_kernel<Chunk, Index>, table.as<const Chunk>(),
             Indices(call.inputs[1]), y.as<Chunk>(), RowWidth(row_bytes / bytes), table.shape[0],
             static_cast<Index>(chunks), faults_of(call));
    });
  });
}

// --- take_elements_kernel() takes one element of each row: y[i] = x[i, indices[i]] ------------
template <class Element>
__global__ void __launch_bounds__(kThreads)
    take_elements_kernel(Predecessors before, const Element* x, Indices indices, Element* y,
                         std::int64_t width, std::int64_t count, FaultPlace faults) {
  before.wait();
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    const std::int64_t column = checked_index(indices.at(i), width, faults);
    y[i] = column != kNoIndex ? x[i * width + column] : Element{};
  }
}

void take_elements(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t count = y.count();
  if (count == 0) return;
  const Grid grid{.blocks = blocks_for(call, count, kThreads, kResident), .threads = kThreads};
  with_bytes(static_cast<std::int64_t>(size_of(x.dtype)), [&]<class Element>(Element) {
    launch(call, grid, take_elements_kernel<Element>, x.as<const Element>(),
           Indices(call.inputs[1]), y.as<Element>(), x.shape.back(), count, faults_of(call));
  });
}

// Sets y[row, indices[row]] = x[row] and all else to zero. A thread writes whole packs, which may
// begin in one row and end in another; the last is shorter if `count` is no multiple of a pack.
template <class Element, int kElements, class Index>
__global__ void __launch_bounds__(kThreads)
    put_elements_kernel(Predecessors before, const Element* x, Indices indices, Element* y,
                        RowWidth width, Index count, FaultPlace faults) {
  before.wait();
  const auto columns = static_cast<Index>(width.value);
  const Index stride = static_cast<Index>(gridDim.x) * kThreads * kElements;
  Index first = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) * kElements;
  for (; first < count; first += stride) {
    const Index end = ::min(first + kElements, count);
    Pack<Element, kElements> pack = {};
    Index row = width.row_of(first);
    for (Index begin = row * columns; begin < end; begin += columns, ++row) {
      const std::int64_t column = checked_index(indices.at(row), width.value, faults);
      const Index hot = begin + static_cast<Index>(column);
      if (column == kNoIndex || hot < first || hot >= end) continue;
      const Element value = x[row];
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        if (first + j == hot) pack.at[j] = value;
      }
    }
    if (first + kElements <= count) {
      store_pack(y + first, pack);
    } else {
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        if (first + j < count) y[first + j] = pack.at[j];
      }
    }
  }
}

void put_elements(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t count = y.count();
  if (count == 0) return;
  with_bytes(static_cast<std::int64_t>(size_of(x.dtype)), [&]<class Element>(Element) {
    if constexpr (sizeof(Element) < 16) {
      constexpr int kElements = 16 / sizeof(Element);
      const Grid grid{.blocks = blocks_for(call, count, kThreads * kElements, kResident),
                      .threads = kThreads};
      with_index(count, [&]<class Index>(Index) {
        launch(call, grid, put_elements_kernel<Element, kElements, Index>, x.as<const Element>(),
               Indices(call.inputs[1]), y.as<Element>(), RowWidth(y.shape.back()),
               static_cast<Index>(count), faults_of(call));
      });
    }
  });
}

}  // namespace

void add_gather_kernels(KernelTable& table) {
  table.add("gather", gather_rows);
  table.add("scatter_add", scatter_add);
  table.add("scatter_add_to", scatter_add);
  table.add("take_along", take_elements);
  table.add("put_along", put_elements);
}

}  // namespace tracestep::cuda
