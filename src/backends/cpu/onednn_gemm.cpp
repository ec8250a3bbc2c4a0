#include "backends/cpu/onednn_gemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include "base/error.h"

namespace tracestep::cpu {
namespace {

// Outside a parallel region oneDNN would start its own team.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  const int before_ = omp_get_max_threads();
};

}  // namespace

void onednn_multiply(std::int64_t m, std::int64_t n, std::int64_t k, const FloatMatrix& a,
                     const FloatMatrix& b, float* c, std::int64_t ldc) {
  const OneThread guard;
  const bool a_by_rows = a.k_stride == 1, b_by_rows = b.k_stride == 1;
  const dnnl_status_t status =
      dnnl_sgemm(a_by_rows ? 'N' : 'T', b_by_rows ? 'T' : 'N', m, n, k, 1.0f, a.data,
                 a_by_rows ? a.outer_stride : a.k_stride, b.data,
                 b_by_rows ? b.outer_stride : b.k_stride, 0.0f, c, ldc);
  if (status != dnnl_success) {
    throw DeviceError("cpu", "dnnl_sgemm", fmt::format("status {}", static_cast<int>(status)));
  }
}

}  // namespace tracestep::cpu
