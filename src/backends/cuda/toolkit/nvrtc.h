// NVRTC, CUDA's run-time compiler, which is itself loaded at run time: it turns source text into
// machine code.
#pragma once

#include <nvrtc.h>

#include <string>

namespace tracestep::cuda {

struct Nvrtc {
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetNumSupportedArchs) arch_count = nullptr;
  decltype(&nvrtcGetSupportedArchs) archs = nullptr;
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetCUBINSize) cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) cubin = nullptr;
  decltype(&nvrtcGetErrorString) error_text = nullptr;
  std::string problem;  // Why the library cannot be used; empty: it can.

  // True if NVRTC can compile for this compute capability (10 * major + minor).
  bool knows(int compute_capability) const;
  // Compiles the text for this compute capability. Throws Error{kDevice} with the compiler's log.
  // Thread-safe.
  std::string compiled(const std::string& text, int compute_capability) const;
};

// Returns the compiler; loads its library at the first call.
const Nvrtc& nvrtc();
// Returns the library's name and version, "NVRTC 13.0"; empty: it is missing.
std::string nvrtc_name();

}  // namespace tracestep::cuda
