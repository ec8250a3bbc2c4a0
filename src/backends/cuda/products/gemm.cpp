#include "backends/cuda/products/gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/cublaslt.h"
#include "backends/cuda/toolkit/events.h"
#include "backends/cuda/toolkit/tuning_file.h"

namespace tracestep::cuda {
namespace {

constexpr int kCandidates = 8;
constexpr int kTimedRuns = 5;  // of each candidate, after one to warm up

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(AlgorithmBits));

void check_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError("cuda", call, fmt::format("cuBLASLt status {}", static_cast<int>(status)));
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    case DType::kF8E4M3: return CUDA_R_8F_E4M3;
    case DType::kF8E5M2: return CUDA_R_8F_E5M2;
    default: return CUDA_R_32F;
  }
}

struct Hash {
  std::size_t operator()(const GemmProblem& p) const {
    std::size_t h = 0;
    const auto mix = [&](std::int64_t x) {
      h = (h ^ static_cast<std::size_t>(x)) * 0x9e3779b97f4a7c15u;
      h ^= h >> 29;
    };
    for (std::int64_t x :
         {p.m, p.n, p.k, p.batch, p.a_leading, p.b_leading, p.a_batch, p.b_batch, p.y_leading})
      mix(x);
    mix(p.a_alignment | p.b_alignment << 9 | p.y_alignment << 18);
    mix(static_cast<int>(p.dtype) * 4 + p.a_transposed * 2 + p.b_transposed);
    mix(p.bias_alignment);
    mix(p.sum_dtype ? 1 + static_cast<int>(*p.sum_dtype) : 0);
    mix(std::bit_cast<std::int32_t>(p.beta));
    mix(p.scaled ? 1 + static_cast<int>(p.scaled->b_dtype) : 0);
    return h;
  }
};

}  // namespace

std::string GemmProblem::str() const {
  std::string out =
      fmt::format("{} m{} n{} k{} batch{} a{}{}+{}/{} b{}{}+{}/{} y/{}", name_of(dtype), m, n, k,
                  batch, a_transposed ? "t" : "n", a_leading, a_batch, a_alignment,
                  b_transposed ? "t" : "n", b_leading, b_batch, b_alignment, y_alignment);
  if (y_leading > 0) out += fmt::format(" in rows of {}", y_leading);
  if (sum_dtype) out += fmt::format(" added to {}", name_of(*sum_dtype));
  if (beta != 1) out += fmt::format(" times {}", beta);
  if (bias_alignment > 0) out += fmt::format(" bias/{}", bias_alignment);
  if (scaled)
    out += fmt::format(" by {} to {}", name_of(scaled->b_dtype), name_of(scaled->y_dtype));
  return out;
}

std::int32_t alignment_of_rows(const OperandSpec& x, std::int64_t leading, std::int64_t batch) {
  const auto bytes = static_cast<std::uint64_t>(size_of(x.dtype));
  const std::uint64_t all = static_cast<std::uint64_t>(x.alignment) |
                            static_cast<std::uint64_t>(leading) * bytes |
                            static_cast<std::uint64_t>(batch) * bytes | 256;
  return std::int32_t{1} << std::countr_zero(all);
}

// The library's description of a problem. Because it is column-major, a row-major matrix is for it
// the transpose, and it computes yᵀ = B'ᵀ · A'ᵀ.
struct Gemm::Product {
  const CublasLt& library;
  const GemmProblem problem;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool is_tuned = false;

  Product(const CublasLt& l, const GemmProblem& p) : library(l), problem(p) {}
  ~Product() {
    if (a != nullptr) library.layout_destroy(a);
    if (b != nullptr) library.layout_destroy(b);
    if (y != nullptr) library.layout_destroy(y);
    if (desc != nullptr) library.desc_destroy(desc);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
};

struct Gemm::Impl {
  const CudaStream& stream;
  const GemmOptions options;
  const std::size_t workspace_bytes;
  const CublasLt& library;
  cublasLtHandle_t handle = nullptr;
  TuningFile tuned;
  int products_tuned = 0;
  std::unordered_map<GemmProblem, std::unique_ptr<Product>, Hash> products;

  Impl(const CudaStream& s, GemmOptions o, std::int64_t bytes, const std::string& device)
      : stream(s),
        options(std::move(o)),
        workspace_bytes(static_cast<std::size_t>(bytes)),
        library(cublaslt()),
        tuned(options.tune_file, device, cublaslt_name()) {
    if (!library.problem.empty()) throw Error(ErrorCode::kDevice, "cuda", library.problem);
    check_blas(library.create(&handle), "cublasLtCreate");
  }

  ~Impl() {
    products.clear();
    if (handle != nullptr) library.destroy(handle);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  template <class T>
  void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value) const {
    check_blas(library.desc_set(desc, attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
  }

  cublasLtMatrixLayout_t layout(DType dtype, std::int64_t rows, std::int64_t columns,
                                std::int64_t leading, std::int64_t batch,
                                std::int64_t stride) const {
    cublasLtMatrixLayout_t out = nullptr;
    check_blas(library.layout_create(&out, data_type(dtype), static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), leading),
               "cublasLtMatrixLayoutCreate");
    const auto count = static_cast<std::int32_t>(batch);
    check_blas(library.layout_set(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
               "cublasLtMatrixLayoutSetAttribute");
    check_blas(library.layout_set(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                  sizeof stride),
               "cublasLtMatrixLayoutSetAttribute");
    return out;
  }

  std::unique_ptr<Product> describe_problem(const GemmProblem& p) const {
    auto out = std::make_unique<Product>(library, p);
    const bool tf32 = options.tf32 && p.dtype == DType::kF32;
    check_blas(
        library.desc_create(&out->desc, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                            CUDA_R_32F),
        "cublasLtMatmulDescCreate");
    set(out->desc, CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(out->desc, CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.bias_alignment > 0) {
      set(out->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      // Algorithms are chosen by the address, which is not known yet: any with its alignment.
      point_at_bias(*out, reinterpret_cast<const void*>(std::intptr_t{p.bias_alignment}));
    }
    const DType b_dtype = p.scaled ? p.scaled->b_dtype : p.dtype;
    out->b = p.b_transposed ? layout(b_dtype, p.k, p.n, p.b_leading, p.batch, p.b_batch)
                            : layout(b_dtype, p.n, p.k, p.b_leading, p.batch, p.b_batch);
    out->a = p.a_transposed ? layout(p.dtype, p.m, p.k, p.a_leading, p.batch, p.a_batch)
                            : layout(p.dtype, p.k, p.m, p.a_leading, p.batch, p.a_batch);
    const DType y_dtype = p.scaled ? p.scaled->y_dtype : p.sum_dtype.value_or(p.dtype);
    out->y = layout(y_dtype, p.n, p.m, p.y_leading > 0 ? p.y_leading : p.n, p.batch, p.m * p.n);
    return out;
  }

  // Returns the library's candidates, best first. Reductions over parts of k go through the
  // workspace in float32 and in a fixed order, or not at all.
  std::vector<cublasLtMatmulAlgo_t> candidates(const Product& product, int wanted) const {
    const GemmProblem& p = product.problem;
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(library.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check_blas(library.preference_set(preference, attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(p.b_alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(p.a_alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(p.y_alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(p.y_alignment));
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
    int found = 0;
    const cublasStatus_t status =
        library.heuristic(handle, product.desc, product.b, product.a, product.y, product.y,
                          preference, wanted, results.data(), &found);
    library.preference_destroy(preference);
    std::vector<cublasLtMatmulAlgo_t> out;
    for (int i = 0; i < found && status == CUBLAS_STATUS_SUCCESS; ++i) {
      const auto& result = results[static_cast<std::size_t>(i)];
      if (result.state == CUBLAS_STATUS_SUCCESS) out.push_back(result.algo);
    }
    return out;
  }

  std::vector<cublasLtMatmulAlgo_t> some_candidates(const Product& product, int wanted) const {
    std::vector<cublasLtMatmulAlgo_t> out = candidates(product, wanted);
    if (!out.empty()) return out;
    throw DeviceError("cuda", "matmul",
                      fmt::format("cuBLASLt has no algorithm for {}", product.problem.str()));
  }

  // Sets the address of the bias. The library adds it to each of its columns, which are y's rows.
  void point_at_bias(const Product& p, const void* bias) const {
    set(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }

  void point_at(const Product& p, Scales scales) const {
    set(p.desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.b);
    set(p.desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.a);
  }

  cublasStatus_t run(const Product& p, const cublasLtMatmulAlgo_t& algorithm, const void* a,
                     const void* b, void* y, void* workspace, const void* c) const {
    const float alpha = 1.0f, beta = p.problem.sum_dtype ? p.problem.beta : 0.0f;
    if (p.problem.bias_alignment > 0) point_at_bias(p, std::exchange(c, nullptr));
    return library.matmul(handle, p.desc, &alpha, b, p.b, a, p.a, &beta, c != nullptr ? c : y, p.y,
                          y, p.y, &algorithm, workspace, workspace_bytes, stream.handle);
  }

  // Returns the microseconds of the fastest of a few runs; infinity if the algorithm does not run.
  double time(const Product& product, const cublasLtMatmulAlgo_t& algorithm, const void* a,
              const void* b, void* y, void* workspace) const {
    double best = std::numeric_limits<double>::infinity();
    EventMarks marks(stream.handle, 2);
    for (int i = 0; i <= kTimedRuns; ++i) {
      marks.set(0);
      if (run(product, algorithm, a, b, y, workspace, y) != CUBLAS_STATUS_SUCCESS) return best;
      marks.set(1);
      const double us = static_cast<double>(marks.between_ns(0, 1)) * 1e-3;
      if (i > 0) best = std::min(best, us);
    }
    return best;
  }

  bool restore(Product& product) const {
    const auto bits = tuned.find(product.problem.str());
    if (!bits) return false;
    cublasLtMatmulAlgo_t algorithm{};
    std::memcpy(&algorithm, bits->data(), sizeof algorithm);
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status = library.check(handle, product.desc, product.b, product.a,
                                                product.y, product.y, &algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_bytes) return false;
    product.algorithm = algorithm;
    return true;
  }
};

Gemm::Gemm(const CudaStream& stream, GemmOptions options, std::int64_t workspace_bytes,
           const std::string& device_name)
    : impl_(std::make_unique<Impl>(stream, std::move(options), workspace_bytes, device_name)) {}

Gemm::~Gemm() = default;

Gemm::Product& Gemm::prepare(const GemmProblem& problem) {
  const auto found = impl_->products.find(problem);
  if (found != impl_->products.end()) return *found->second;
  std::unique_ptr<Product> product = impl_->describe_problem(problem);
  product->is_tuned = impl_->restore(*product);
  if (product->is_tuned) {
    ++impl_->products_tuned;
  } else {
    product->algorithm = impl_->some_candidates(*product, 1).front();
  }
  return *impl_->products.emplace(problem, std::move(product)).first->second;
}

bool Gemm::takes(const GemmProblem& problem) const {
  return impl_->products.contains(problem) ||
         !impl_->candidates(*impl_->describe_problem(problem), 1).empty();
}

bool Gemm::wants_tuning(const Product& product) const {
  return impl_->options.tune && !product.is_tuned;
}

void Gemm::tune(Product& product, const void* a, const void* b, void* y, void* workspace) {
  double best_us = std::numeric_limits<double>::infinity();
  for (const cublasLtMatmulAlgo_t& algorithm : impl_->some_candidates(product, kCandidates)) {
    const double us = impl_->time(product, algorithm, a, b, y, workspace);
    if (us >= best_us) continue;
    product.algorithm = algorithm;
    best_us = us;
  }
  AlgorithmBits bits{};
  std::memcpy(bits.data(), &product.algorithm, sizeof product.algorithm);
  impl_->tuned.add(product.problem.str(), bits, best_us);
  product.is_tuned = true;
  ++impl_->products_tuned;
}

void Gemm::multiply(const Product& product, const void* a, const void* b, void* y, void* workspace,
                    const void* c) const {
  const cublasStatus_t status = impl_->run(product, product.algorithm, a, b, y, workspace, c);
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw DeviceError(
      "cuda", "cublasLtMatmul",
      fmt::format("status {} for {}, operands at {}, {}, {}, workspace at {}",
                  static_cast<int>(status), product.problem.str(), a, b, y, workspace));
}

void Gemm::multiply_scaled(const Product& product, const void* a, const void* b, Scales scales,
                           void* y, void* workspace, const void* c) const {
  impl_->point_at(product, scales);
  multiply(product, a, b, y, workspace, c);
}

std::string Gemm::describe() const {
  if (impl_->products_tuned == 0) return "first heuristic";
  return fmt::format("tuned {} of {} products", impl_->products_tuned, impl_->products.size());
}

}  // namespace tracestep::cuda
