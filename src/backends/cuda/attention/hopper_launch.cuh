// Launching the Hopper kernels for a call.
#pragma once

#include <algorithm>
#include <type_traits>

#include "backends/cuda/attention/hopper_backward.cuh"
#include "backends/cuda/attention/hopper_backward_rows.cuh"
#include "backends/cuda/attention/hopper_forward.cuh"
#include "backends/cuda/attention/hopper_shares.h"
#include "backends/cuda/attention/hopper_wide_keys.cuh"
#include "backends/cuda/attention/hopper_wide_queries.cuh"
#include "backends/cuda/attention/tensor_map.h"

namespace tracestep::cuda {

// Makes the tensor maps of a call's operands; `status` keeps the first error.
struct MapEncoder {
  const AttentionShape& shape;
  cudaError_t status = cudaSuccess;

  // Make the map of a tensor with the rows of q, or of k, whose boxes have box_rows rows and the
  // columns of one panel (Tile::kColumns).
  void queries(CUtensorMap& map, const void* data, const AttentionStrides& strides, int box_rows) {
    encode(map, data, strides, shape.heads, shape.queries, box_rows);
  }
  void keys(CUtensorMap& map, const void* data, const AttentionStrides& strides, int box_rows) {
    encode(map, data, strides, shape.heads_of_keys(), shape.keys, box_rows);
  }

 private:
  void encode(CUtensorMap& map, const void* data, const AttentionStrides& strides, int heads,
              int rows, int box_rows) {
    if (status != cudaSuccess) return;
    status =
        encode_tensor_map({.data = data,
                           .strides = strides,
                           .dtype = shape.dtype,
                           .batch = shape.batch,
                           .heads = heads,
                           .rows = rows,
                           .width = shape.width,
                           .box_rows = box_rows,
                           .box_columns = swizzle_bytes(hopper_attention_width(shape.width)) / 2},
                          map);
  }
};

// Lets the kernel use `bytes` of dynamic shared memory; needed once per kernel.
template <class... P>
cudaError_t allow_shared(void (*kernel)(P...), int bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

// Return the factor from products q k to arguments of tanh (0 without a cap), and the factor to
// exponents of two: from products q k, or from tangents where scores are capped.
inline float to_tangent(const AttentionShape& shape) {
  return shape.cap > 0 ? shape.scale / shape.cap : 0.0F;
}
inline float scale_log2(const AttentionShape& shape) {
  return (shape.cap > 0 ? shape.cap : shape.scale) * 1.44269504F;
}

// Sets the sizes of a call, how many tiles of `rows` queries it has, and their order, in `p`.
inline void tile_forward(const AttentionShape& shape, int rows, int heads_of_section,
                         ForwardParameters& p) {
  p.queries = shape.queries;
  p.keys = shape.keys;
  p.heads = shape.heads;
  p.group = shape.group();
  p.row_tiles = (shape.queries + rows - 1) / rows;
  p.tiles = p.row_tiles * shape.heads * shape.batch;
  p.offset = shape.offset;
  p.to_tangent = to_tangent(shape);
  p.scale_log2 = scale_log2(shape);
  p.window = shape.window > 0 ? shape.window : kEveryKey;
  p.all_heads = shape.heads * shape.batch;
  p.section_heads = heads_of_section;
}

// Launches forward. `counter`: 4 bytes of scratch to hand out tiles as blocks come free, or null.
template <class Traits>
cudaError_t launch_hopper_forward(const AttentionForward& call, int* counter,
                                  const LaunchStream& stream) {
  using Layout = ForwardLayout<Traits>;
  const AttentionShape& shape = call.shape;
  ForwardParameters p{};
  MapEncoder map{shape};
  map.queries(p.q, call.q, call.q_strides, Layout::kM);
  map.keys(p.k, call.k, call.k_strides, Traits::kN);
  map.keys(p.v, call.v, call.v_strides, Traits::kN);
  // Unread results have no tensor map; has_o tells the kernel.
  p.has_o = call.o != nullptr;
  if (p.has_o) map.queries(p.o, call.o, call.o_strides, 64);
  if (map.status != cudaSuccess) return map.status;
  p.lse = call.lse;
  p.documents = call.documents;
  tile_forward(shape, Layout::kM, Traits::kSections ? section_heads(shape) : 1, p);
  if constexpr (Traits::kDivided) {
    p.parts = forward_parts(shape);
    p.width = shape.width;
    p.o_data = call.o;
    p.o_strides = call.o_strides;
  }
  const int blocks =
      Traits::kDivided ? p.tiles * p.parts : std::min(p.tiles, multiprocessor_count());
  if (!Traits::kDivided && counter != nullptr && p.tiles > blocks * Traits::kTeams) {
    const cudaError_t status = cudaMemsetAsync(counter, 0, sizeof(int), stream);
    if (status != cudaSuccess) return status;
    p.counter = counter;
  }
  auto* kernel = hopper_attention_forward_kernel<Traits>;
  static const cudaError_t allowed = allow_shared(kernel, Layout::kBytes);
  if (allowed != cudaSuccess) return allowed;
  const auto cluster = Traits::kDivided ? static_cast<unsigned>(p.parts) : 1U;
  return launch_kernel(stream,
                       {static_cast<unsigned>(blocks), Layout::kThreads, Layout::kBytes, cluster},
                       kernel, p);
}

inline BackwardRows backward_rows(const AttentionBackward& call) {
  const AttentionWorkspace layout =
      attention_workspace(call.shape.extent(), AttentionFamily::kHopper, true);
  char* workspace = static_cast<char*>(call.workspace);
  const auto floats = [&](std::int64_t at) { return reinterpret_cast<float*>(workspace + at); };
  BackwardRows rows{};
  rows.o = call.o;
  rows.d_o = call.d_o;
  rows.dq = call.dq;
  rows.lse = call.lse;
  rows.o_strides = call.o_strides;
  rows.do_strides = call.do_strides;
  rows.dq_strides = call.dq_strides;
  rows.lse2 = floats(layout.lse2);
  rows.delta = floats(layout.delta);
  rows.dq_sums = floats(layout.dq_sums);
  if (call.shape.deterministic) rows.turns = reinterpret_cast<int*>(workspace + layout.turns);
  rows.queries = call.shape.queries;
  rows.heads = call.shape.heads;
  rows.width = call.shape.width;
  rows.padded_width = hopper_attention_width(call.shape.width);
  rows.row_blocks = static_cast<int>(layout.padded_queries / 64);
  rows.scale = call.shape.scale;
  return rows;
}

// Sets parameters that all backward kernels share; `parts` thread blocks divide a block of keys.
template <class Traits>
cudaError_t backward_parameters(const AttentionBackward& call, const BackwardRows& rows, int parts,
                                BackwardParameters& p) {
  const AttentionShape& shape = call.shape;
  MapEncoder map{shape};
  map.queries(p.q, call.q, call.q_strides, Traits::kM);
  map.queries(p.d_o, call.d_o, call.do_strides, Traits::kM);
  map.keys(p.k, call.k, call.k_strides, Traits::kN);
  map.keys(p.v, call.v, call.v_strides, Traits::kN);
  p.has_dk = call.dk != nullptr;
  p.has_dv = call.dv != nullptr;
  if (p.has_dk) map.keys(p.dk, call.dk, call.dk_strides, 64);
  if (p.has_dv) map.keys(p.dv, call.dv, call.dv_strides, 64);
  p.lse2 = rows.lse2;
  p.delta = rows.delta;
  p.dq_sums = rows.dq_sums;
  p.turns = rows.turns;
  p.queries = shape.queries;
  p.keys = shape.keys;
  p.key_heads = shape.heads_of_keys();
  p.group = shape.group();
  p.padded_queries = 64 * rows.row_blocks;
  p.key_blocks = (shape.keys + Traits::kN - 1) / Traits::kN;
  p.all_key_heads = shape.batch * p.key_heads;
  p.parts = parts;
  const BackwardOrder order = backward_order(shape, p.key_blocks);
  p.section_heads = order.section_heads;
  p.round = parts == 1 ? order.round : 0;
  p.window = shape.window > 0 ? shape.window : kEveryKey;
  p.offset = shape.offset;
  p.scale = shape.scale;
  p.to_tangent = to_tangent(shape);
  p.scale_log2 = scale_log2(shape);
  p.documents = call.documents;
  return map.status;
}

template <class Traits>
cudaError_t launch_hopper_backward(const AttentionBackward& call, int parts,
                                   const LaunchStream& stream) {
  using Layout = BackwardLayout<Traits>;
  using T = typename Traits::T;
  const BackwardRows rows = backward_rows(call);
  BackwardParameters p{};
  cudaError_t status = backward_parameters<Traits>(call, rows, parts, p);
  if (status != cudaSuccess) return status;
  auto* kernel = hopper_attention_backward_kernel<Traits>;
  static const cudaError_t allowed = allow_shared(kernel, Layout::kBytes);
  if (allowed != cudaSuccess) return allowed;
  const auto row_blocks =
      static_cast<unsigned>(call.shape.batch * call.shape.heads * rows.row_blocks);
  status = launch_kernel(stream, {row_blocks, 256}, prepare_attention_backward_kernel<T>, rows);
  if (status != cudaSuccess) return status;
  const auto blocks = static_cast<unsigned>(p.all_key_heads * p.key_blocks * parts);
  const auto cluster = static_cast<unsigned>(parts);
  status = launch_kernel(stream, {blocks, 384, Layout::kBytes, cluster}, kernel, p);
  if (status != cudaSuccess || call.dq == nullptr) return status;
  return launch_kernel(stream, {row_blocks, 128}, finish_attention_backward_kernel<T, Traits::kD>,
                       rows);
}

template <class Traits>
cudaError_t launch_wide_keys(const AttentionBackward& call, const BackwardRows& rows,
                             const LaunchStream& stream) {
  using Layout = WideKeysLayout<Traits>;
  BackwardParameters p{};
  const cudaError_t status = backward_parameters<Traits>(call, rows, 1, p);
  if (status != cudaSuccess) return status;
  auto* kernel = hopper_wide_keys_kernel<Traits>;
  static const cudaError_t allowed = allow_shared(kernel, Layout::kBytes);
  if (allowed != cudaSuccess) return allowed;
  const auto blocks = static_cast<unsigned>(p.all_key_heads * p.key_blocks);
  return launch_kernel(stream, {blocks, Layout::kThreads, Layout::kBytes}, kernel, p);
}

template <class Traits>
cudaError_t launch_wide_queries(const AttentionBackward& call, const BackwardRows& rows,
                                const LaunchStream& stream) {
  using Layout = WideQueriesLayout<Traits>;
  const AttentionShape& shape = call.shape;
  WideQueriesParameters p{};
  MapEncoder map{shape};
  map.queries(p.q, call.q, call.q_strides, Layout::kRows);
  map.queries(p.d_o, call.d_o, call.do_strides, Layout::kRows);
  map.keys(p.k, call.k, call.k_strides, Traits::kN);
  map.keys(p.v, call.v, call.v_strides, Traits::kN);
  map.queries(p.o, call.dq, call.dq_strides, 64);
  if (map.status != cudaSuccess) return map.status;
  p.lse2 = rows.lse2;
  p.delta = rows.delta;
  p.padded_queries = 64 * rows.row_blocks;
  p.scale = shape.scale;
  p.documents = call.documents;
  tile_forward(shape, Layout::kRows, section_heads(shape), p);
  auto* kernel = hopper_wide_queries_kernel<Traits>;
  static const cudaError_t allowed = allow_shared(kernel, Layout::kBytes);
  if (allowed != cudaSuccess) return allowed;
  return launch_kernel(stream, {static_cast<unsigned>(p.tiles), 384, Layout::kBytes}, kernel, p);
}

// Launches backward for heads wider than 128; `OfQueries` are the traits of the kernel for dQ.
template <class Traits, class OfQueries = Traits>
cudaError_t launch_hopper_wide_backward(const AttentionBackward& call, const LaunchStream& stream) {
  BackwardRows rows = backward_rows(call);
  rows.dq_sums = nullptr;
  rows.turns = nullptr;
  const auto row_blocks =
      static_cast<unsigned>(call.shape.batch * call.shape.heads * rows.row_blocks);
  cudaError_t status = launch_kernel(stream, {row_blocks, 256},
                                     prepare_attention_backward_kernel<typename Traits::T>, rows);
  if (status == cudaSuccess && (call.dk != nullptr || call.dv != nullptr))
    status = launch_wide_keys<Traits>(call, rows, stream);
  if (status == cudaSuccess && call.dq != nullptr)
    status = launch_wide_queries<OfQueries>(call, rows, stream);
  return status;
}

}  // namespace tracestep::cuda
