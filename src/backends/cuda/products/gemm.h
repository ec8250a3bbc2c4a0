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

// y[b] = A'[b] · B'[b] (+ c[b], or a bias to each row), all row by row: A' is [m,k], B' is [k,n], y
// and c are dense (a single matrix y may have longer rows).
struct GemmProblem {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::int64_t a_leading = 0, b_leading = 0;  // elements from row to row as stored
  std::int64_t a_batch = 0, b_batch = 0;      // elements from matrix to matrix
  std::int64_t y_leading = 0;                 // of y, of one matrix; 0: dense
  bool a_transposed = false;                  // stored as [k,m]
  bool b_transposed = false;                  // stored as [n,k]
  DType dtype = DType::kF32;
  std::optional<DType> sum_dtype = {};  // of y and c; none: there is no c, and y has `dtype`
  // Operands may be 8-bit codes of `dtype` with a scale each; these are then the dtypes of the
  // codes of B and of y.
  struct Scaled {
    DType b_dtype, y_dtype;
    friend bool operator==(const Scaled&, const Scaled&) = default;
  };
  std::optional<Scaled> scaled = {};
  // Bytes that the addresses of all matrices are multiples of, 256 at most.
  std::int32_t a_alignment = 256, b_alignment = 256, y_alignment = 256;
  std::int32_t bias_alignment = 0;  // of a bias [n] of y's dtype, of one matrix; 0: there is none

  friend bool operator==(const GemmProblem&, const GemmProblem&) = default;
  // The problem with the bias in each row of a c.
  GemmProblem with_rows_of_bias() const {
    GemmProblem out = *this;
    out.sum_dtype = dtype;
    out.bias_alignment = 0;
    return out;
  }
  // "m512 n768 k768 …": the key of the tuning file.
  std::string str() const;
};

// The largest power of two, 256 at most, that divides the address of every row's and every
// matrix's start, with so many elements from row to row and from matrix to matrix.
std::int32_t alignment_of_rows(const OperandSpec& x, std::int64_t leading, std::int64_t batch);

// Compute capability from which products of 8-bit codes are there, 10 * major + minor.
inline constexpr int kLeastWithFloat8 = 89;

struct GemmOptions {
  bool tf32 = false;
  bool tune = false;
  std::string tune_file;
};

class Gemm {
 public:
  // `workspace_bytes`: of every product. Throws Error{kDevice} without the library,
  // Error{kInput} for a tuning file that is malformed.
  Gemm(const CudaStream& stream, GemmOptions options, std::int64_t workspace_bytes,
       const std::string& device_name);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // A prepared problem: the library's descriptors and the algorithm.
  struct Product;
  // Equal problems share one product, which lives as long as this Gemm. Throws DeviceError.
  Product& prepare(const GemmProblem& problem);
  // False: the library has no algorithm for the problem.
  bool takes(const GemmProblem& problem) const;
  // True if tuning is on and has not chosen this product's algorithm yet.
  bool wants_tuning(const Product& product) const;
  // Times the candidates and keeps the fastest; overwrites `y` and `workspace`. Throws DeviceError,
  // Error{kOutput}.
  void tune(Product& product, const void* a, const void* b, void* y, void* workspace);
  // Queues the product; `c`, which may be `y`, is for problems that have one or have a bias, which
  // it is then. Throws DeviceError.
  void multiply(const Product& product, const void* a, const void* b, void* y, void* workspace,
                const void* c = nullptr) const;
  // The scales of A's and B's codes, on the device.
  struct Scales {
    const float *a = nullptr, *b = nullptr;
  };
  // Queues a scaled product in the same way.
  void multiply_scaled(const Product& product, const void* a, const void* b, Scales scales, void* y,
                       void* workspace) const;
  // How choices were made: "first heuristic", "tuned 12 of 14 products".
  std::string describe() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tracestep::cuda
