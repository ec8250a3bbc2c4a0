// scatter_add without floating-point atomics. One block sorts the indices by row, stably (a radix
// sort, 8 bits a pass); then every row of the result has one writer that sums its members in an
// order that the indices alone decide. Rows without members are zero. scatter_add_to adds an
// element of its base to each sum before that is rounded.
#include <bit>
#include <type_traits>
#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/indices.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/rows/reduce.cuh"
#include "backends/cuda/rows/row_width.cuh"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {
namespace {

constexpr unsigned kEveryLane = 0xffffffffu;
constexpr unsigned kFewMembers = ScatterPlan::kFewMembers;

struct Member {
  unsigned row, position;  // row of y, row of x
};
struct Bounds {
  unsigned begin, end;  // among the sorted members
};
struct Scratch {
  Bounds* bounds;       // [rows]
  Member* members[2];   // [count]
  unsigned* long_rows;  // [0]: how many, then which; in any order
};

// --- sorting, by one block of kSortThreads threads, a digit of kDigitBits bits at a time ------
constexpr int kSortThreads = 1024, kSortWarps = kSortThreads / kWarp;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr int kAhead = 4;  // loads in flight per thread

struct SortShared {
  // Per warp and digit: first how many members of the warp have that digit, then where the next of
  // them goes. One column more keeps threads that scan a digit over all warps in different banks.
  unsigned next[kSortWarps][kDigits + 1];
  unsigned totals[kSortWarps];
};

// Makes member i of index i; the row of an index out of range is `rows`, sorted after all others.
struct FromIndices {
  Indices indices;
  unsigned rows;
  FaultPlace faults;

  __device__ Member at(unsigned i) const {
    const std::int64_t row = checked_index(indices.at(i), rows, faults);
    return {row != kNoIndex ? static_cast<unsigned>(row) : rows, i};
  }
};
struct FromMembers {
  const Member* members;
  __device__ Member at(unsigned i) const { return members[i]; }
};

// Replaces counts by positions: of the first member with each digit in each warp, in that order.
__device__ void place_digits(SortShared& shared) {
  constexpr int kParts = kSortThreads / kDigits, kWarpsPerPart = kSortWarps / kParts;
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned digit = threadIdx.x / kParts, first = threadIdx.x % kParts * kWarpsPerPart;
  unsigned counts[kWarpsPerPart], sum = 0;
#pragma unroll
  for (int k = 0; k < kWarpsPerPart; ++k) {
    counts[k] = shared.next[first + k][digit];
    sum += counts[k];
  }
  unsigned inclusive = sum;
#pragma unroll
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const unsigned lower = __shfl_up_sync(kEveryLane, inclusive, step);
    if (lane >= step) inclusive += lower;
  }
  if (lane == kWarp - 1) shared.totals[warp] = inclusive;
  __syncthreads();  // totals are there
  const unsigned before = __reduce_add_sync(kEveryLane, lane < warp ? shared.totals[lane] : 0u);
  unsigned place = before + inclusive - sum;
#pragma unroll
  for (int k = 0; k < kWarpsPerPart; ++k) {
    shared.next[first + k][digit] = place;
    place += counts[k];
  }
  __syncthreads();  // places are there
}

// Sorts the members to `to` by one digit of their rows. Members with equal digits stay in order,
// since each warp takes a range of members, 32 neighbours at a time.
template <class From>
__device__ void sort_by_digit(const From& from, unsigned count, int shift, unsigned mask,
                              SortShared& shared, Member* to) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned per_warp = (count + kSortThreads - 1) / kSortThreads * kWarp;
  const unsigned begin = ::min(warp * per_warp, count), end = ::min(begin + per_warp, count);
  unsigned* next = shared.next[warp];
  for (unsigned d = lane; d < kDigits; d += kWarp) next[d] = 0;
  __syncwarp();
  for (unsigned tile = begin; tile < end; tile += kAhead * kWarp) {
    unsigned digits[kAhead];
#pragma unroll
    for (unsigned k = 0; k < kAhead; ++k) {
      const unsigned i = tile + k * kWarp + lane;
      digits[k] = i < end ? from.at(i).row >> shift & mask : kDigits;
    }
#pragma unroll
    for (unsigned k = 0; k < kAhead; ++k) {
      if (digits[k] < kDigits) atomicAdd(&next[digits[k]], 1u);
    }
  }
  __syncthreads();  // counts are there
  place_digits(shared);
  for (unsigned tile = begin; tile < end; tile += kAhead * kWarp) {
    Member members[kAhead];
#pragma unroll
    for (unsigned k = 0; k < kAhead; ++k) {
      const unsigned i = tile + k * kWarp + lane;
      members[k] = i < end ? from.at(i) : Member{0, 0};
    }
#pragma unroll
    for (unsigned k = 0; k < kAhead; ++k) {
      const bool is_member = tile + k * kWarp + lane < end;
      const unsigned digit = is_member ? members[k].row >> shift & mask : kDigits;
      const unsigned same = __match_any_sync(kEveryLane, digit);
      const unsigned rank = __popc(same & ((1u << lane) - 1));
      const unsigned place = is_member ? next[digit] : 0;
      __syncwarp();  // all have read `next`
      if (is_member && rank == 0) next[digit] = place + __popc(same);
      __syncwarp();  // before the next 32 read it
      if (is_member) to[place + rank] = members[k];
    }
  }
  __syncthreads();  // `to` is whole, `shared` free
}

// Finds where the members of each row lie, and which rows have many.
__device__ void find_rows(const Member* sorted, unsigned count, unsigned rows,
                          const Scratch& scratch) {
  for (unsigned i = threadIdx.x; i < count; i += kSortThreads) {
    const unsigned row = sorted[i].row;
    if (row == rows) continue;  // a bad index
    if (i == 0 || sorted[i - 1].row != row) scratch.bounds[row].begin = i;
    if (i + 1 < count && sorted[i + 1].row == row) continue;
    scratch.bounds[row].end = i + 1;
    if (i >= kFewMembers && sorted[i - kFewMembers].row == row) {
      scratch.long_rows[1 + atomicAdd(scratch.long_rows, 1u)] = row;
    }
  }
}

__global__ void __launch_bounds__(kSortThreads)
    sort_by_row_kernel(Predecessors before, FromIndices indices, unsigned count, int passes,
                       int bits, Scratch scratch) {
  before.wait();
  __shared__ SortShared shared;
  const unsigned mask = (1u << bits) - 1;
  for (unsigned r = threadIdx.x; r < indices.rows; r += kSortThreads) scratch.bounds[r] = {0, 0};
  if (threadIdx.x == 0) *scratch.long_rows = 0;
  sort_by_digit(indices, count, 0, mask, shared, scratch.members[0]);
  Member *sorted = scratch.members[0], *other = scratch.members[1];
  for (int pass = 1; pass < passes; ++pass) {
    sort_by_digit(FromMembers{sorted}, count, pass * bits, mask, shared, other);
    Member* const filled = other;
    other = sorted;
    sorted = filled;
  }
  find_rows(sorted, count, indices.rows, scratch);
}

// --- what a sum is added to: NoBase is nothing, Onto an element of the operand `base` ---------
struct NoBase {
  template <class T, int N>
  __device__ Pack<T, N> added(const float (&sums)[N], std::int64_t) const {
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from_float<T>(sums[j]);
    return out;
  }
};

// Adds elements of `base`, whose storage y may share: a thread reads one before it writes there.
template <class B>
struct Onto {
  const B* base;

  template <class T, int N>
  __device__ Pack<T, N> added(const float (&sums)[N], std::int64_t at) const {
    const Pack<B, N> from = load_pack<N>(base + at);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from_float<T>(sums[j] + to_float(from.at[j]));
    return out;
  }
};

// --- sums: kThreads, kWarps: threads and warps of a block that sums rows ------------------------
constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kResident = 8;             // blocks of kThreads threads per multiprocessor
constexpr unsigned kMembersPerSum = 32;  // long sums add up sums of this many

struct RowSums {
  const Bounds* bounds;
  const Member* sorted;
  const unsigned* long_rows;
  std::int64_t width;    // elements of a row
  RowWidth packs;        // and in packs
  unsigned long_blocks;  // the first blocks, which sum the rows with many members
};

// Adds members first, first + step, … before `end` to `sum`, in order: N columns from `column` on.
template <int N, class T>
__device__ void add_members(const T* x, const RowSums& sums, unsigned first, unsigned end,
                            unsigned step, std::int64_t column, float (&sum)[N]) {
  for (unsigned i = first; i < end; i += kAhead * step) {
    Pack<T, N> parts[kAhead] = {};
#pragma unroll
    for (unsigned k = 0; k < kAhead; ++k) {
      if (i + k * step >= end) continue;
      const std::int64_t from = sums.sorted[i + k * step].position;
      parts[k] = load_pack<N>(x + from * sums.width + column);
    }
#pragma unroll
    for (unsigned k = 0; k < kAhead; ++k) {
      if (i + k * step >= end) continue;
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += to_float(parts[k].at[j]);
    }
  }
}

// Sums rows of many members. A block's job is 32 packs of a row; a warp adds every eighth member.
template <class T, int N, class Base>
__device__ void sum_long_rows(const T* x, T* y, const RowSums& sums, const Base& base) {
  __shared__ float of_warps[kWarps][kWarp * N];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const std::int64_t tiles = (sums.packs.value + kWarp - 1) / kWarp;
  const std::int64_t jobs = *sums.long_rows * tiles;
  for (std::int64_t job = blockIdx.x; job < jobs; job += sums.long_blocks) {
    const std::int64_t row = sums.long_rows[1 + job / tiles], tile = job % tiles;
    const auto [begin, end] = sums.bounds[row];
    const std::int64_t pack = tile * kWarp + lane;
    float total[N] = {};
    constexpr unsigned kStep = kWarps * kMembersPerSum;
    for (unsigned first = begin; first < end && pack < sums.packs.value; first += kStep) {
      float sum[N] = {};
      add_members(x, sums, first + warp, ::min(first + kStep, end), kWarps, pack * N, sum);
#pragma unroll
      for (int j = 0; j < N; ++j) total[j] += sum[j];
    }
#pragma unroll
    for (int j = 0; j < N; ++j) of_warps[warp][lane * N + j] = total[j];
    __syncthreads();  // all sums are there
    const std::int64_t column = tile * kWarp * N + threadIdx.x;
    if (threadIdx.x < kWarp * N && column < sums.width) {
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += of_warps[w][threadIdx.x];
      const std::int64_t at = row * sums.width + column;
      y[at] = base.template added<T, 1>({sum}, at).at[0];
    }
    __syncthreads();  // all sums are read
  }
}

// Sets y[row,:] to the sum of the row's members, added to the row of the base.
template <class T, int N, class Index, class Base>
__global__ void __launch_bounds__(kThreads)
    sum_rows_kernel(Predecessors before, const T* x, T* y, RowSums sums, Index count, Base base) {
  before.wait();
  static_assert(kWarp * N <= kThreads, "a thread per column of a tile");
  if (blockIdx.x < sums.long_blocks) return sum_long_rows<T, N>(x, y, sums, base);
  const Index stride = static_cast<Index>(gridDim.x - sums.long_blocks) * kThreads;
  Index pack = static_cast<Index>(blockIdx.x - sums.long_blocks) * kThreads + threadIdx.x;
  for (; pack < count; pack += kAhead * stride) {
    Bounds bounds[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const Index i = pack + k * stride;
      bounds[k] = i < count ? sums.bounds[sums.packs.row_of(i)] : Bounds{0, 0};
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const Index i = pack + k * stride;
      if (i >= count || bounds[k].end - bounds[k].begin > kFewMembers) continue;
      const Index in_row = i - sums.packs.row_of(i) * static_cast<Index>(sums.packs.value);
      float sum[N] = {};
      add_members(x, sums, bounds[k].begin, bounds[k].end, 1, static_cast<std::int64_t>(in_row) * N,
                  sum);
      const std::int64_t at = static_cast<std::int64_t>(i) * N;
      store_pack(y + at, base.template added<T, N>(sum, at));
    }
  }
}

// --- the op: launch_sums() gives rows with many members blocks of their own, before all others ---
template <class T, int N, class Base>
void launch_sums(const KernelCall& call, RowSums sums, std::int64_t members, Base base) {
  const TensorRef& y = call.outputs[0];
  const std::int64_t packs = sums.packs.value, count = y.shape[0] * packs;
  const std::int64_t jobs = members / (kFewMembers + 1) * ceil_div(packs, kWarp);
  if (jobs > 0) sums.long_blocks = blocks_for(call, jobs, 1, 2, 1);
  const unsigned others = blocks_for(call, count, kThreads * kAhead, kResident);
  with_index(count, [&]<class Index>(Index) {
    launch(call, {.blocks = sums.long_blocks + others, .threads = kThreads},
           sum_rows_kernel<T, N, Index, Base>, call.inputs[0].as<const T>(), y.as<T>(), sums,
           static_cast<Index>(count), base);
  });
}

// Calls f(base): NoBase, or the base operand, whose dtype is y's or, for float32 y, one of 16 bits.
template <class T, class F>
void with_base(const KernelCall& call, F&& f) {
  if (call.inputs.size() < 3) return f(NoBase{});
  const TensorRef& base = call.inputs[2];
  with_floating(base.dtype, [&]<class B>(B) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, B>) f(Onto<B>{base.as<const B>()});
  });
}

}  // namespace

void scatter_add(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &indices = call.inputs[1], &y = call.outputs[0];
  const std::int64_t rows = y.shape[0], width = y.shape[1], count = indices.count();
  if (!fits_32_bits(rows) || !fits_32_bits(count)) {
    fail_usage("scatter_add", "{} indices into {} rows; below 2^31 of each", count, rows);
  }
  const ScatterPlan plan = plan_scatter(rows, count);
  std::byte* const at = call.workspace.data();
  const auto members = [&](int i) { return reinterpret_cast<Member*>(at + plan.members[i]); };
  const Scratch scratch{.bounds = reinterpret_cast<Bounds*>(at + plan.bounds),
                        .members = {members(0), members(1)},
                        .long_rows = reinterpret_cast<unsigned*>(at + plan.long_rows)};
  // Row numbers, of which `rows` is for bad indices, are cut into digits of about equal width.
  const int width_of_row = std::bit_width(static_cast<std::uint64_t>(rows));
  const int passes = std::max(1, (width_of_row + kDigitBits - 1) / kDigitBits);
  const int bits = (width_of_row + passes - 1) / passes;
  launch(call, {.blocks = 1, .threads = kSortThreads}, sort_by_row_kernel,
         FromIndices{Indices(indices), static_cast<unsigned>(rows), faults_of(call)},
         static_cast<unsigned>(count), passes, bits, scratch);
  if (y.count() == 0) return;
  with_floating(y.dtype, [&]<class T>(T) {
    const bool packed = width % kPack<T> == 0 && is_aligned(x.data, 16) && is_aligned(y.data, 16) &&
                        (call.inputs.size() < 3 || is_aligned(call.inputs[2].data, 16));
    const RowSums sums{.bounds = scratch.bounds,
                       .sorted = scratch.members[(passes - 1) % 2],
                       .long_rows = scratch.long_rows,
                       .width = width,
                       .packs = RowWidth(packed ? width / kPack<T> : width),
                       .long_blocks = 0};
    with_base<T>(call, [&]<class Base>(Base base) {
      if (packed) {
        launch_sums<T, kPack<T>>(call, sums, count, base);
      } else {
        launch_sums<T, 1>(call, sums, count, base);
      }
    });
  });
}

}  // namespace tracestep::cuda
