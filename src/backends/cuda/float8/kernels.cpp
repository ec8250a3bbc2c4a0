// Adds the ops that quantize to the table; scaled_matmul is among the products
// (backends/cuda/products/matmul.cpp).
#include "backends/cuda/kernels.h"
#include "backends/cuda/float8/part_codes.h"
#include "backends/cuda/float8/quantize.h"
#include "backends/cuda/float8/swiglu.h"
#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/stream.h"

namespace tracestep::cuda {
namespace {

float room_of(const KernelCall& call) {
  return static_cast<float>(call.attrs.real("room"));
}

// Runs quantize, or quantize_delayed, which has one operand and one result more.
void quantize_kernel(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  const bool is_delayed = call.inputs.size() > 1;
  const Quantization q{.x = x.data,
                       .dtype = x.dtype,
                       .rows = rows,
                       .columns = columns,
                       .leading = rows <= 1 ? columns : x.strides[0],
                       .code_dtype = call.attrs.dtype("dtype"),
                       .limit = static_cast<float>(call.attrs.real("largest")),
                       .codes = call.outputs[0].as<std::uint8_t>(),
                       .transposed = call.outputs[1].as<std::uint8_t>(),
                       .scale = call.outputs[2].as<float>(),
                       .last = is_delayed ? call.inputs[1].as<float>() : nullptr,
                       .largest = is_delayed ? call.outputs[3].as<float>() : nullptr,
                       .room = is_delayed ? room_of(call) : 1.0f,
                       .maxima = reinterpret_cast<std::uint32_t*>(call.workspace.data())};
  const cudaError_t status = quantize(q, stream_of(call).launch_stream());
  if (status != cudaSuccess) [[unlikely]]
    fail_launch(call, status);
}

Rows rows_of(const TensorRef& x) {
  return {x.data, x.shape[0] <= 1 ? x.shape[1] : x.strides[0]};
}

// Runs swiglu_quantized, or swiglu_grad_quantized, whose first operand is dy.
void swiglu_kernel(const KernelCall& call) {
  const bool is_gradient = call.inputs.size() > 3;
  const std::size_t gate = is_gradient ? 1 : 0;
  const TensorRef& x = call.inputs[gate];
  const QuantizedSwiglu q{.dy = is_gradient ? rows_of(call.inputs[0]) : Rows(),
                          .gate = rows_of(x),
                          .up = rows_of(call.inputs[gate + 1]),
                          .is_gradient = is_gradient,
                          .dtype = x.dtype,
                          .rows = x.shape[0],
                          .columns = x.shape[1],
                          .code_dtype = call.attrs.dtype("dtype"),
                          .limit = static_cast<float>(call.attrs.real("largest")),
                          .codes = call.outputs[0].as<std::uint8_t>(),
                          .transposed = call.outputs[1].as<std::uint8_t>(),
                          .scale = call.outputs[2].as<float>(),
                          .last = call.inputs[gate + 2].as<float>(),
                          .largest = call.outputs[3].as<float>(),
                          .room = room_of(call),
                          .maxima = reinterpret_cast<std::uint32_t*>(call.workspace.data())};
  const cudaError_t status = quantize_swiglu(q, stream_of(call).launch_stream());
  if (status != cudaSuccess) [[unlikely]]
    fail_launch(call, status);
}

}  // namespace

void add_float8_kernels(KernelTable& table) {
  table.add("quantize", quantize_kernel);
  table.add("quantize_delayed", quantize_kernel);
  table.add("swiglu_quantized", swiglu_kernel);
  table.add("swiglu_grad_quantized", swiglu_kernel);
  add_part_codes_kernels(table);
}

}  // namespace tracestep::cuda
