// Matrix products through cuBLASLt. Each problem (shape, strides, dtype, alignment) is prepared
// once: with the library's first choice without atomic reductions, or, when tuning, the fastest of
// its first candidates, timed on this device and kept in a file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backends/cuda/toolkit/stream.h"
#include "base/dtype.h"

namespace tracestep::cuda {

// A product y[b] = A'[b] · B'[b] (+ beta·c[b], or a bias to each row), all row by row: A' is [m,k],
// B' is [k,n], y and c are dense (a single matrix y may have longer rows).
struct GemmProblem {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  // The distance in elements from row to row of A and B as they are stored.
  std::int64_t a_leading = 0, b_leading = 0;
  std::int64_t a_batch = 0, b_batch = 0;  // The distance in elements from matrix to matrix.
  std::int64_t y_leading = 0;  // The distance from row to row of y, for a single matrix; 0: dense.
  bool a_transposed = false;   // True: stored as [k,m].
  bool b_transposed = false;   // True: stored as [n,k].
  DType dtype = DType::kF32;
  // The dtype of y and c; nullopt: there is no c, and y has `dtype`.
  std::optional<DType> sum_dtype = {};
  float beta = 1;  // the factor of c
  // Set if operands are 8-bit codes with a scale each; A's codes have `dtype`, these members are
  // the dtypes of B's codes and of y.
  struct Scaled {
    DType b_dtype, y_dtype;
    friend bool operator==(const Scaled&, const Scaled&) = default;
  };
  std::optional<Scaled> scaled = {};
  // The alignment in bytes of the addresses of all matrices, at most 256.
  std::int32_t a_alignment = 256, b_alignment = 256, y_alignment = 256;
  // The alignment of a bias [n], whose dtype is y's, for a single matrix; 0: there is no bias.
  std::int32_t bias_alignment = 0;

  friend bool operator==(const GemmProblem&, const GemmProblem&) = default;
  // Returns a problem with an added matrix c, each of whose rows is the bias, in place of the bias.
  GemmProblem with_rows_of_bias() const {
    GemmProblem out = *this;
    out.sum_dtype = dtype;
    out.bias_alignment = 0;
    return out;
  }
  // Returns the problem as text, "m512 n768 k768 …", which is its key in the tuning file.
  std::string str() const;
};

// Returns the largest power of two, up to 256, that divides the address at which each row of x
// starts: rows are `leading` elements apart, and matrices `batch` elements.
std::int32_t alignment_of_rows(const OperandSpec& x, std::int64_t leading, std::int64_t batch);

// The least compute capability (10 * major + minor) that has products of 8-bit codes.
inline constexpr int kLeastWithFloat8 = 89;

struct GemmOptions {
  bool tf32 = false;
  bool tune = false;
  std::string tune_file;
};

class Gemm {
 public:
  // `workspace_bytes`: the workspace that each product has. Throws Error{kDevice} if the library is
  // missing, and Error{kInput} for a malformed tuning file.
  Gemm(const CudaStream& stream, GemmOptions options, std::int64_t workspace_bytes,
       const std::string& device_name);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // A prepared problem: the library's descriptors and the algorithm.
  struct Product;
  // Returns the product of a problem; equal problems share one, which lives as long as this Gemm.
  Product& prepare(const GemmProblem& problem);
  // True if the library has an algorithm for the problem.
  bool takes(const GemmProblem& problem) const;
  // True if tuning is on and has not chosen this product's algorithm yet.
  bool wants_tuning(const Product& product) const;
  // Times the candidates and keeps the fastest; overwrites `y` and `workspace`. Throws DeviceError,
  // Error{kOutput}.
  void tune(Product& product, const void* a, const void* b, void* y, void* workspace);
  // Queues the product. `c`, which may be `y`, is the matrix to add or the bias, for problems that
  // have either. Throws DeviceError.
  void multiply(const Product& product, const void* a, const void* b, void* y, void* workspace,
                const void* c = nullptr) const;
  // The scales of A's and B's codes, on the device.
  struct Scales {
    const float *a = nullptr, *b = nullptr;
  };
  // Queues a product of codes with these scales; see multiply() for `c`.
  void multiply_scaled(const Product& product, const void* a, const void* b, Scales scales, void* y,
                       void* workspace, const void* c = nullptr) const;
  // Returns how algorithms were chosen: "first heuristic", "tuned 12 of 14 products".
  std::string describe() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tracestep::cuda
