// Prepares calls of the portable attention kernels: their memory and their arguments.
#include "backends/cuda/attention/portable.h"

#include <algorithm>
#include <atomic>

#include "backends/cuda/attention/portable_kernels.h"

namespace tracestep::cuda {
namespace {

using namespace portable;

std::int64_t batch_heads(const AttentionShape& shape) {
  return std::int64_t{shape.batch} * shape.heads;
}

// The sizes of a tensor of queries (q, o, dO, dQ) or of keys (k, v, dK, dV).
struct Extents {
  AttentionDType dtype;
  int batch, heads, rows;
};
Extents of_queries(const AttentionShape& s) {
  return {s.dtype, s.batch, s.heads, s.queries};
}
Extents of_keys(const AttentionShape& s) {
  return {s.dtype, s.batch, s.heads_of_keys(), s.keys};
}

// True if every row of a tensor starts at a multiple of 16 bytes. The stride of an axis of one
// element does not matter.
bool rows_are_aligned(const void* data, const AttentionStrides& strides, const Extents& x) {
  const std::int64_t item = x.dtype == AttentionDType::kF32 ? 4 : 2;
  std::int64_t all = reinterpret_cast<std::intptr_t>(data);
  if (x.batch > 1) all |= strides.batch * item;
  if (x.heads > 1) all |= strides.head * item;
  if (x.rows > 1) all |= strides.row * item;
  return all % 16 == 0;
}

TileView view_of(const void* data, const AttentionStrides& strides, const Extents& x) {
  return {.data = data,
          .strides = strides,
          .plane = 0,
          .rows = x.rows,
          .is_aligned = rows_are_aligned(data, strides, x)};
}

ResultView result_of(void* data, const AttentionStrides& strides, const Extents& x) {
  return {.data = data,
          .strides = strides,
          .is_float = x.dtype == AttentionDType::kF32,
          .is_aligned = rows_are_aligned(data, strides, x)};
}

// The addresses of the parts of a call's workspace, whose layout is in planning/cuda_attention.h.
class Pieces {
 public:
  template <class Call>
  Pieces(const Call& call, bool is_backward)
      : layout(attention_workspace(call.shape.extent(), AttentionFamily::kPortable, is_backward)),
        start_(static_cast<char*>(call.workspace)) {}
  template <class T>
  T* at(std::int64_t offset) const {
    return reinterpret_cast<T*>(start_ + offset);
  }

  const AttentionWorkspace layout;

 private:
  char* const start_;
};

struct StatsPieces {
  float *lse2, *delta, *exponent, *correction;
  int pitch;
};

StatsPieces stats_in(const Pieces& pieces, const AttentionShape& shape) {
  const AttentionWorkspace& at = pieces.layout;
  StatsPieces stats{};
  stats.pitch = static_cast<int>(at.padded_queries);
  stats.lse2 = pieces.at<float>(at.lse2);
  stats.delta = pieces.at<float>(at.delta);
  if (shape.dtype == AttentionDType::kF32) {
    stats.exponent = pieces.at<float>(at.exponent);
    stats.correction = pieces.at<float>(at.correction);
  }
  return stats;
}

// How float32 operands become float16 parts: split_operands()' arguments, and views of the parts.
struct SplitPieces {
  SplitOperands operands;
  TileView view[kOperands];
};

SplitPieces parts_in(const Pieces& pieces, const AttentionShape& shape, bool has_gradient) {
  SplitPieces result;
  SplitOperands& operands = result.operands;
  operands.batch = shape.batch;
  operands.key_heads = shape.heads_of_keys();
  operands.width = shape.width;
  operands.padded = portable_attention_width(shape.width);
  operands.parts = shape.extent().parts;
  static_assert(sizeof(HeadRange) == 32);
  operands.ranges = pieces.at<HeadRange>(pieces.layout.ranges);
  for (int which = kQ; which < (has_gradient ? kOperands : kDO); ++which) {
    const Extents x = which == kQ || which == kDO ? of_queries(shape) : of_keys(shape);
    const std::int64_t plane = std::int64_t{x.rows} * operands.padded;
    const std::int64_t head = plane * operands.parts, all = head * x.heads;
    SplitOperand& operand = operands.operand[which];
    operand.heads = x.heads;
    operand.rows = x.rows;
    operand.parts = pieces.at<std::uint16_t>(pieces.layout.split[which]);
    result.view[which] = {.data = operand.parts,
                          .strides = {all, head, operands.padded},
                          .plane = plane,
                          .rows = x.rows,
                          .is_aligned = true};
  }
  return result;
}

void set_operand(SplitPieces& pieces, Operand which, const void* data,
                 const AttentionStrides& strides) {
  pieces.operands.operand[which].data = static_cast<const float*>(data);
  pieces.operands.operand[which].strides = strides;
}

ForwardParams forward_params(const AttentionForward& call) {
  const AttentionShape& shape = call.shape;
  ForwardParams params;
  params.o = result_of(call.o, call.o_strides, of_queries(shape));
  params.lse = call.lse;
  params.heads = shape.heads;
  params.batch_heads = static_cast<int>(batch_heads(shape));
  params.group = shape.group();
  params.width = shape.width;
  params.scale = shape.scale;
  params.causal = shape.causal;
  params.offset = shape.offset;
  if (shape.window > 0) params.window = shape.window;
  params.documents = call.documents;
  params.cap = shape.cap;
  return params;
}

bool is_empty(const AttentionShape& shape) {
  return batch_heads(shape) == 0 || shape.width == 0 || (shape.queries == 0 && shape.keys == 0);
}

// Sets all but operands and results. `heads`: heads of the rows that blocks keep, queries or keys.
void set_backward_params(BackwardParams& params, const AttentionShape& shape, int heads,
                         const StatsPieces& stats) {
  params.lse2 = stats.lse2;
  params.delta = stats.delta;
  params.exponent = stats.exponent;
  params.correction = stats.correction;
  params.query_pitch = stats.pitch;
  params.heads = heads;
  params.batch_heads = shape.batch * heads;
  params.group = shape.group();
  params.width = shape.width;
  params.scale = shape.scale;
  params.causal = shape.causal;
  params.offset = shape.offset;
  if (shape.window > 0) params.window = shape.window;
  params.cap = shape.cap;
}

cudaError_t prepare_stats(const AttentionBackward& call, const StatsPieces& pieces,
                          cudaStream_t stream) {
  const AttentionShape& shape = call.shape;
  QueryStats stats;
  stats.o = call.o;
  stats.d_o = call.d_o;
  stats.o_strides = call.o_strides;
  stats.do_strides = call.do_strides;
  stats.lse = call.lse;
  stats.lse2 = pieces.lse2;
  stats.delta = pieces.delta;
  stats.exponent = pieces.exponent;
  stats.dtype = shape.dtype;
  stats.batch = shape.batch;
  stats.heads = shape.heads;
  stats.rows = shape.queries;
  stats.pitch = pieces.pitch;
  stats.width = shape.width;
  stats.is_aligned = rows_are_aligned(call.o, call.o_strides, of_queries(shape)) &&
                     rows_are_aligned(call.d_o, call.do_strides, of_queries(shape));
  return find_query_stats(stats, stream);
}

// The arguments of the two backward kernels: that for dK and dV, and that for dQ.
struct BothParams {
  BackwardParams keys, queries;
};

BothParams backward_params(const AttentionBackward& call, const StatsPieces& stats,
                           const TileView (&view)[kOperands]) {
  const Extents keys = of_keys(call.shape), queries = of_queries(call.shape);
  BothParams both;
  set_backward_params(both.keys, call.shape, keys.heads, stats);
  set_backward_params(both.queries, call.shape, queries.heads, stats);
  both.keys.x = both.queries.y = view[kK];
  both.keys.x_pair = both.queries.y_pair = view[kV];
  both.keys.y = both.queries.x = view[kQ];
  both.keys.y_pair = both.queries.x_pair = view[kDO];
  both.keys.gradient = result_of(call.dk, call.dk_strides, keys);
  both.keys.value_gradient = result_of(call.dv, call.dv_strides, keys);
  both.queries.gradient = result_of(call.dq, call.dq_strides, queries);
  both.keys.documents = both.queries.documents = call.documents;
  return both;
}

}  // namespace

namespace {
std::atomic<int> shared_memory_bound{0};
}  // namespace

void limit_portable_shared_memory(int bytes) {
  shared_memory_bound = bytes;
}

int portable::shared_memory_limit() {
  int device = 0, bytes = kLeastSharedMemory;
  if (cudaGetDevice(&device) == cudaSuccess) {
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  const int bound = shared_memory_bound;
  return bound == 0 ? bytes : std::min(bytes, bound);
}

cudaError_t portable_forward(const AttentionForward& call, cudaStream_t stream) {
  const AttentionShape& shape = call.shape;
  if (is_empty(shape)) return cudaSuccess;
  ForwardParams params = forward_params(call);
  params.q = view_of(call.q, call.q_strides, of_queries(shape));
  params.k = view_of(call.k, call.k_strides, of_keys(shape));
  params.v = view_of(call.v, call.v_strides, of_keys(shape));
  const int width = portable_attention_width(shape.width);
  return shape.dtype == AttentionDType::kBF16 ? forward_bf16(width, params, stream)
                                              : forward_f16(width, params, stream);
}

cudaError_t portable_backward(const AttentionBackward& call, cudaStream_t stream) {
  const AttentionShape& shape = call.shape;
  if (is_empty(shape)) return cudaSuccess;
  const StatsPieces stats = stats_in(Pieces(call, true), shape);
  if (const cudaError_t status = prepare_stats(call, stats, stream); status != cudaSuccess) {
    return status;
  }
  const Extents queries = of_queries(shape), keys = of_keys(shape);
  const TileView view[kOperands] = {
      view_of(call.q, call.q_strides, queries), view_of(call.k, call.k_strides, keys),
      view_of(call.v, call.v_strides, keys), view_of(call.d_o, call.do_strides, queries)};
  const BothParams both = backward_params(call, stats, view);
  const int width = portable_attention_width(shape.width);
  return shape.dtype == AttentionDType::kBF16
             ? backward_bf16(width, both.keys, both.queries, stream)
             : backward_f16(width, both.keys, both.queries, stream);
}

cudaError_t float32_forward(const AttentionForward& call, cudaStream_t stream) {
  const AttentionShape& shape = call.shape;
  if (is_empty(shape)) return cudaSuccess;
  SplitPieces split = parts_in(Pieces(call, false), shape, /*has_gradient=*/false);
  set_operand(split, kQ, call.q, call.q_strides);
  set_operand(split, kK, call.k, call.k_strides);
  set_operand(split, kV, call.v, call.v_strides);
  if (const cudaError_t status = split_operands(split.operands, stream); status != cudaSuccess) {
    return status;
  }
  ForwardParams params = forward_params(call);
  params.q = split.view[kQ];
  params.k = split.view[kK];
  params.v = split.view[kV];
  params.ranges = split.operands.ranges;
  const int width = split.operands.padded;
  return split.operands.parts == 2 ? forward_split(width, params, stream)
                                   : forward_f16(width, params, stream);
}

cudaError_t float32_backward(const AttentionBackward& call, cudaStream_t stream) {
  const AttentionShape& shape = call.shape;
  if (is_empty(shape)) return cudaSuccess;
  const Pieces pieces(call, true);
  const StatsPieces stats = stats_in(pieces, shape);
  SplitPieces split = parts_in(pieces, shape, /*has_gradient=*/true);
  set_operand(split, kQ, call.q, call.q_strides);
  set_operand(split, kK, call.k, call.k_strides);
  set_operand(split, kV, call.v, call.v_strides);
  set_operand(split, kDO, call.d_o, call.do_strides);
  if (const cudaError_t status = prepare_stats(call, stats, stream); status != cudaSuccess) {
    return status;
  }
  if (const cudaError_t status = split_operands(split.operands, stream); status != cudaSuccess) {
    return status;
  }
  BothParams both = backward_params(call, stats, split.view);
  both.keys.ranges = both.queries.ranges = split.operands.ranges;
  const int width = split.operands.padded;
  return split.operands.parts == 2 ? backward_split(width, both.keys, both.queries, stream)
                                   : backward_f16(width, both.keys, both.queries, stream);
}

}  // namespace tracestep::cuda
