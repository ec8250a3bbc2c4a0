#include "backends/cuda/toolkit/cublaslt.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include "base/shared_library.h"

namespace tracestep::cuda {
namespace {

CublasLt load() {
  CublasLt out;
  // Only the major version this was compiled with: structures of another one may differ.
  void* library = open_shared_library(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR),
                                      toolkit_library_folders(CUBLAS_VER_MAJOR));
  if (library == nullptr) {
    out.problem = fmt::format(
        "libcublasLt.so.{} is not there; install the CUDA {} libraries (with a wheel: its "
        "extra [cuda]) or set LD_LIBRARY_PATH",
        CUBLAS_VER_MAJOR, CUBLAS_VER_MAJOR);
    return out;
  }
  const auto get = [&]<class F>(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library, name));
    if (function == nullptr && out.problem.empty()) {
      out.problem = fmt::format("libcublasLt has no {}", name);
    }
  };
  get(out.create, "cublasLtCreate");
  get(out.destroy, "cublasLtDestroy");
  get(out.version, "cublasLtGetVersion");
  get(out.matmul, "cublasLtMatmul");
  get(out.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  get(out.check, "cublasLtMatmulAlgoCheck");
  get(out.desc_create, "cublasLtMatmulDescCreate");
  get(out.desc_destroy, "cublasLtMatmulDescDestroy");
  get(out.desc_set, "cublasLtMatmulDescSetAttribute");
  get(out.layout_create, "cublasLtMatrixLayoutCreate");
  get(out.layout_destroy, "cublasLtMatrixLayoutDestroy");
  get(out.layout_set, "cublasLtMatrixLayoutSetAttribute");
  get(out.preference_create, "cublasLtMatmulPreferenceCreate");
  get(out.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  get(out.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  return out;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt loaded = load();
  return loaded;
}

std::string cublaslt_name() {
  if (!cublaslt().problem.empty()) return {};
  const std::size_t v = cublaslt().version();  // major * 10000 + minor * 100 + patch
  return fmt::format("cuBLASLt {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

}  // namespace tracestep::cuda
