#include "backends/cuda/toolkit/nvrtc.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "base/shared_library.h"

namespace tracestep::cuda {
namespace {

constexpr int kMajor = CUDART_VERSION / 1000;

// Loads the library that holds NVRTC's own headers, from the folder that NVRTC was loaded from.
// NVRTC asks the loader for it by name, which finds libraries that are loaded, and otherwise looks
// only in the loader's own folders, where packages of pip are not.
void load_builtins(const Nvrtc& nvrtc) {
  int major = 0, minor = 0;
  Dl_info info{};
  if (!nvrtc.problem.empty() || nvrtc.version(&major, &minor) != NVRTC_SUCCESS) return;
  if (dladdr(reinterpret_cast<void*>(nvrtc.version), &info) == 0) return;
  const auto folder = std::filesystem::path(info.dli_fname).parent_path();
  const std::string name = fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
  // The library stays loaded. If it is missing, the first compilation says so.
  ::dlopen((folder / name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

Nvrtc load() {
  Nvrtc out;
  // Only the major version this was compiled with: the driver may not load code of a later one.
  void* library =
      open_shared_library(fmt::format("libnvrtc.so.{}", kMajor), toolkit_library_folders(kMajor));
  if (library == nullptr) {
    out.problem = fmt::format(
        "libnvrtc.so.{} is not there; install the CUDA {} libraries (with a wheel: its "
        "extra [cuda]) or set LD_LIBRARY_PATH",
        kMajor, kMajor);
    return out;
  }
  const auto get = [&]<class F>(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library, name));
    if (function == nullptr && out.problem.empty()) {
      out.problem = fmt::format("libnvrtc has no {}", name);
    }
  };
  get(out.version, "nvrtcVersion");
  get(out.arch_count, "nvrtcGetNumSupportedArchs");
  get(out.archs, "nvrtcGetSupportedArchs");
  get(out.create, "nvrtcCreateProgram");
  get(out.destroy, "nvrtcDestroyProgram");
  get(out.compile, "nvrtcCompileProgram");
  get(out.log_size, "nvrtcGetProgramLogSize");
  get(out.log, "nvrtcGetProgramLog");
  get(out.cubin_size, "nvrtcGetCUBINSize");
  get(out.cubin, "nvrtcGetCUBIN");
  get(out.error_text, "nvrtcGetErrorString");
  load_builtins(out);
  return out;
}

[[noreturn]] void fail_compile(const std::string& what, const std::string& words) {
  throw Error(ErrorCode::kDevice, "NVRTC", fmt::format("{}: {}", what, words),
              "the executor eager compiles nothing");
}

}  // namespace

bool Nvrtc::knows(int compute_capability) const {
  int count = 0;
  if (arch_count(&count) != NVRTC_SUCCESS) return false;
  std::vector<int> all(static_cast<std::size_t>(count));
  if (archs(all.data()) != NVRTC_SUCCESS) return false;
  return std::ranges::find(all, compute_capability) != all.end();
}

std::string Nvrtc::compiled(const std::string& text, int compute_capability) const {
  nvrtcProgram program = nullptr;
  const nvrtcResult made = create(&program, text.c_str(), "fused.cu", 0, nullptr, nullptr);
  if (made != NVRTC_SUCCESS) fail_compile("no program can be made", error_text(made));
  const std::string architecture = fmt::format("--gpu-architecture=sm_{}", compute_capability);
  const char* options[] = {architecture.c_str(), "--std=c++20"};
  nvrtcResult status = compile(program, 2, options);
  std::string out;
  std::size_t bytes = 0;
  if (status == NVRTC_SUCCESS) status = cubin_size(program, &bytes);
  if (status == NVRTC_SUCCESS) {
    out.resize(bytes);
    status = cubin(program, out.data());
  }
  std::string words;
  if (status != NVRTC_SUCCESS && log_size(program, &bytes) == NVRTC_SUCCESS && bytes > 1) {
    words.resize(bytes - 1);
    log(program, words.data());
  }
  destroy(&program);
  if (status != NVRTC_SUCCESS) fail_compile(error_text(status), words);
  return out;
}

const Nvrtc& nvrtc() {
  static const Nvrtc loaded = load();
  return loaded;
}

std::string nvrtc_name() {
  int major = 0, minor = 0;
  if (!nvrtc().problem.empty() || nvrtc().version(&major, &minor) != NVRTC_SUCCESS) return {};
  return fmt::format("NVRTC {}.{}", major, minor);
}

}  // namespace tracestep::cuda
