// quantize as an op of the table; scaled_matmul is among the products (backends/cuda/matmul.cpp).
#include "backends/cuda/kernels.h"
#include "backends/cuda/check.h"
#include "backends/cuda/float8/quantize.h"
#include "backends/cuda/stream.h"

namespace tracestep::cuda {
namespace {

void quantize_kernel(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  const Quantization q{.x = x.data,
                       .dtype = x.dtype,
                       .rows = rows,
                       .columns = columns,
                       .leading = rows <= 1 ? columns : x.strides[0],
                       .code_dtype = call.attrs.dtype("dtype"),
                       .largest = static_cast<float>(call.attrs.real("largest")),
                       .codes = call.outputs[0].as<std::uint8_t>(),
                       .transposed = call.outputs[1].as<std::uint8_t>(),
                       .scale = call.outputs[2].as<float>(),
                       .maxima = reinterpret_cast<std::uint32_t*>(call.workspace.data())};
  const cudaError_t status = quantize(q, stream_of(call).launch_stream());
  if (status != cudaSuccess) [[unlikely]]
    fail_launch(call, status);
}

}  // namespace

void add_float8_kernels(KernelTable& table) {
  table.add("quantize", quantize_kernel);
}

}  // namespace tracestep::cuda
