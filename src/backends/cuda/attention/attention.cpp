// Chooses the family of kernels that runs a call, where that was not done before.
#include "backends/cuda/attention/attention.h"

#include "backends/cuda/attention/hopper.h"
#include "backends/cuda/attention/portable.h"

namespace tracestep::cuda {
namespace {

// Checks that addresses and strides are multiples of 16 bytes, as the copy engine requires. The
// stride of an axis of one element is not checked; a null result (unread) counts as aligned.
class Alignment {
 public:
  explicit Alignment(const AttentionShape& shape) : shape_(shape) {}
  bool of_queries(const void* data, const AttentionStrides& strides) const {
    return fits(data, strides, shape_.heads, shape_.queries);
  }
  bool of_keys(const void* data, const AttentionStrides& strides) const {
    return fits(data, strides, shape_.heads_of_keys(), shape_.keys);
  }

 private:
  static bool fits(std::int64_t stride, int extent) {
    return extent <= 1 || (stride > 0 && stride % 8 == 0);
  }
  bool fits(const void* data, const AttentionStrides& strides, int heads, int rows) const {
    return data == nullptr ||
           (reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && fits(strides.batch, shape_.batch) &&
            fits(strides.head, heads) && fits(strides.row, rows));
  }

  const AttentionShape& shape_;
};

bool is_aligned(const AttentionForward& c) {
  const Alignment is(c.shape);
  return is.of_queries(c.q, c.q_strides) && is.of_keys(c.k, c.k_strides) &&
         is.of_keys(c.v, c.v_strides) && is.of_queries(c.o, c.o_strides);
}

bool is_aligned(const AttentionBackward& c) {
  const Alignment is(c.shape);
  return is.of_queries(c.q, c.q_strides) && is.of_keys(c.k, c.k_strides) &&
         is.of_keys(c.v, c.v_strides) && is.of_queries(c.o, c.o_strides) &&
         is.of_queries(c.d_o, c.do_strides) && is.of_queries(c.dq, c.dq_strides) &&
         is.of_keys(c.dk, c.dk_strides) && is.of_keys(c.dv, c.dv_strides);
}

}  // namespace

AttentionFamily choose_family(const AttentionShape& shape, bool is_hopper, bool is_aligned) {
  const bool readable = is_aligned || hopper_row_width(shape.width) != shape.width;
  const bool possible = is_hopper && readable && hopper_supports(shape);
  return possible && shape.family != AttentionFamily::kPortable ? AttentionFamily::kHopper
                                                                : AttentionFamily::kPortable;
}

namespace {

// Returns the bytes of workspace, enough for either family: alignment is known only at the call.
std::int64_t workspace_bytes(const AttentionShape& shape, bool is_hopper, bool is_backward) {
  return attention_workspace(shape.extent(), choose_family(shape, is_hopper, true), is_backward)
      .bytes;
}

template <class Call>
bool runs_on_hopper(const Call& call, bool is_hopper) {
  return call.shape.family == AttentionFamily::kHopper ||
         choose_family(call.shape, is_hopper, is_aligned(call)) == AttentionFamily::kHopper;
}

}  // namespace

std::int64_t attention_forward_workspace(const AttentionShape& shape, bool is_hopper) {
  return workspace_bytes(shape, is_hopper, false);
}

std::int64_t attention_backward_workspace(const AttentionShape& shape, bool is_hopper) {
  return workspace_bytes(shape, is_hopper, true);
}

cudaError_t attention_forward(const AttentionForward& call, bool is_hopper,
                              const LaunchStream& stream) {
  if (call.shape.dtype == AttentionDType::kF32) return float32_forward(call, stream);
  return runs_on_hopper(call, is_hopper) ? hopper_forward(call, stream)
                                         : portable_forward(call, stream);
}

cudaError_t attention_backward(const AttentionBackward& call, bool is_hopper,
                               const LaunchStream& stream) {
  if (call.shape.dtype == AttentionDType::kF32) return float32_backward(call, stream);
  return runs_on_hopper(call, is_hopper) ? hopper_backward(call, stream)
                                         : portable_backward(call, stream);
}

}  // namespace tracestep::cuda
