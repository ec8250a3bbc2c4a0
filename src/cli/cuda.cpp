#include "cli/cuda.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/env.h"
#include "base/error.h"
#include "base/output_file.h"
#include "base/units.h"
#include "session/gpu_options.h"
#ifdef TRACESTEP_WITH_CUDA
#include "backends/comm/nccl/nccl_group.h"
#include "backends/cuda/ceilings.h"
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/toolkit/device_info.h"
#include "lab/report/known_columns.h"
#endif

namespace tracestep::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kNoSuchIndex = 1 << 20;  // more than any machine has

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

[[noreturn]] void not_there(const Place& place, const std::string& why, const std::string& hint) {
  throw Error(ErrorCode::kDevice, "--device", fmt::format("{} is not there: {}", place.device, why),
              hint);
}

bool has_driver() {
  return is_there("/proc/driver/nvidia/version");
}

}  // namespace

std::optional<int> cuda_index(std::string_view device) {
  if (!device.starts_with("cuda")) return std::nullopt;
  device.remove_prefix(4);
  if (device.empty()) return 0;
  if (device[0] != ':' || device.size() == 1) return std::nullopt;
  int index = 0;
  for (char c : device.substr(1)) {
    if (c < '0' || c > '9') return std::nullopt;
    index = std::min(10 * index + (c - '0'), kNoSuchIndex);
  }
  return index;
}

void check_tuning(const Place& place) {
  if (!place.is_tuned()) return;
  const char* const flag = place.tune ? "--tune" : "--tune-file";
  if (!cuda_index(place.device)) {
    throw Error(
        ErrorCode::kUsage, flag,
        fmt::format("{} has one algorithm per matrix product and nothing to choose", place.device),
        "use --device cuda, or leave it out");
  }
  const fs::path file = place.tuning_path();
  const bool has_file = is_there(file);
  if (place.tune && place.deterministic && !has_file) {
    throw Error(ErrorCode::kUsage, "--deterministic",
                fmt::format("--tune chooses by times, and {} holds no choices yet: another run "
                            "might choose otherwise",
                            file.string()),
                "run once without --deterministic, then with both");
  }
  if (!place.tune && !has_file) {
    throw Error(ErrorCode::kInput, "--tune-file", fmt::format("{} does not exist", file.string()),
                "make it with --tune --tune-file FILE");
  }
  if (place.tune) check_writable(file, "tune_file"_field);
}

#ifdef TRACESTEP_WITH_CUDA

void check_cuda(const Place& place) {
  const CudaProbe probe = probe_cuda();
  if (probe.devices == 0) not_there(place, probe.problem, "see tracestep doctor, or use cpu");
  if (cuda_index(place.device).value_or(kNoSuchIndex) < probe.devices) return;
  not_there(place,
            probe.devices == 1 ? "this machine has one CUDA device"
                               : fmt::format("this machine has {} CUDA devices", probe.devices),
            probe.devices == 1 ? std::string("use cuda:0")
                               : fmt::format("use cuda:0 to cuda:{}", probe.devices - 1));
}

std::unique_ptr<Device> make_cuda(const RunSpec& run) {
  check_cuda(run.place);
  check_tuning(run.place);
  return make_cuda_device(gpu_options<CudaOptions>(run, *cuda_index(run.place.device)));
}

std::optional<std::int64_t> cuda_free_bytes(Device& device) {
  const std::optional<int> index = cuda_index(device.name());
  if (!index) return std::nullopt;
  const std::int64_t all = cuda_device_info(*index).memory_bytes;
  return all > 0 ? std::optional(all - device.resident_bytes()) : std::nullopt;
}

std::unique_ptr<Communicator> make_cuda_group(Processes& processes, Device& device) {
  return make_nccl_group(processes, [&device](int lane) { return native_stream_of(device, lane); });
}

std::vector<Table> cuda_ceiling_tables(const RunSpec& run) {
  RunSpec plain = run;  // without its memory limit, and nothing is written to its tuning file
  plain.place = {.device = run.place.device};
  const CudaCeilings measured = measure_cuda_ceilings(*make_cuda(plain));
  Table memory{
      .name = "bandwidth",
      .title = "Memory, and the host's part",
      .columns = {real_column("copy_gb_s", "copy", "GB/s", 1, "read and written, arrays of 1 GiB"),
                  real_column("launch_ns", "launch", "ns", 0, "of an empty kernel, by the host"),
                  real_column("product_issue_ns", "product", "ns", 0,
                              "a call of the library, by the host")}};
  memory.add_row({measured.copy_gb_s, measured.launch_ns, measured.gemm_issue_ns});
  Table products{.name = "products",
                 .title = "Square matrix products",
                 .columns = {col::precision, int_column("size", "M = N = K"),
                             real_column("tflops", "speed", "TFLOP/s", 1)}};
  for (const CudaProductCeiling& p : measured.products) {
    products.add_row({name_of(p.precision), p.size, p.tflops});
  }
  return {memory, products};
}

void add_cuda_environment(const Place& place, Json& environment) {
  const std::optional<int> index = cuda_index(place.device);
  if (!index) return;
  const CudaProbe probe = probe_cuda();
  const CudaDeviceInfo info = cuda_device_info(*index);
  environment["gpu"] = or_null(info.name);
  environment["gpu_compute_capability"] = or_null(info.compute_capability);
  environment["gpu_multiprocessors"] =
      info.multiprocessors > 0 ? Json(info.multiprocessors) : Json();
  environment["gpu_memory_bytes"] = info.memory_bytes > 0 ? Json(info.memory_bytes) : Json();
  environment["gpu_driver"] = or_null(nvidia_driver_version());
  environment["cuda_driver"] = or_null(probe.driver);
  environment["cuda_runtime"] = or_null(probe.runtime);
  environment["gemm_library"] = or_null(probe.gemm_library);
  environment["tuning_file"] =
      place.is_tuned() ? Json(place.tuning_path().filename().string()) : Json();
}

void add_cuda_parts(Table& parts) {
  const CudaProbe probe = probe_cuda();
  parts.add_row(
      {"device cuda", probe.devices > 0 ? "ok" : "missing",
       probe.devices > 0
           ? fmt::format("built with CUDA {}; float32, bfloat16 and float16", probe.runtime)
           : probe.problem});
  for (int i = 0; i < probe.devices; ++i) {
    const CudaDeviceInfo info = cuda_device_info(i);
    parts.add_row({fmt::format("device cuda:{}", i), "ok",
                   fmt::format("{}, {}, compute capability {}", info.name,
                               format_bytes(info.memory_bytes), info.compute_capability)});
  }
  const std::string version = nvidia_driver_version();
  const bool driver_found = !probe.driver.empty() || has_driver();
  parts.add_row({"NVIDIA driver", driver_found ? "ok" : "missing",
                 driver_found
                     ? fmt::format("{}, speaks CUDA {}", version.empty() ? "unknown" : version,
                                   probe.driver.empty() ? "unknown" : probe.driver)
                     : "without it only the other devices work"});
  const bool has_gemm = !probe.gemm_library.empty();
  parts.add_row({"cuBLASLt", has_gemm ? "ok" : "missing",
                 has_gemm ? probe.gemm_library
                          : "matrix products on cuda need it; install the CUDA libraries or set "
                            "LD_LIBRARY_PATH"});
  parts.add_row({"NVRTC", probe.compiler.empty() ? "missing" : "ok",
                 probe.compiler.empty()
                     ? fmt::format("{}; nothing is fused at run time", probe.compiler_problem)
                     : fmt::format("{}: fused kernels", probe.compiler)});
  std::string no_nccl;
  const std::string nccl = nccl_version(no_nccl);
  parts.add_row({"NCCL", nccl.empty() ? "missing" : "ok",
                 nccl.empty() ? fmt::format("{}; nothing connects GPUs", no_nccl)
                              : fmt::format("{}: connects GPUs", nccl)});
  const std::string problem = nvml_problem();
  parts.add_row({"NVML", problem.empty() ? "ok" : "missing",
                 problem.empty()
                     ? "clocks, power and heat of every row"
                     : fmt::format("{}; rows say nothing of clocks and heat", problem)});
}

#else

void check_cuda(const Place& place) {
  not_there(place, "this build has no CUDA back end",
            "build with the CUDA toolkit (make build-cuda), or use cpu");
}

std::unique_ptr<Device> make_cuda(const RunSpec& run) {
  check_cuda(run.place);
  return nullptr;
}

std::optional<std::int64_t> cuda_free_bytes(Device&) {
  return std::nullopt;
}

std::unique_ptr<Communicator> make_cuda_group(Processes&, Device&) {
  return nullptr;
}

std::vector<Table> cuda_ceiling_tables(const RunSpec& run) {
  check_cuda(run.place);
  return {};
}

void add_cuda_environment(const Place&, Json&) {}

void add_cuda_parts(Table& parts) {
  parts.add_row({"device cuda", "missing",
                 has_driver() ? "this build has no CUDA back end; an NVIDIA driver is here"
                              : "this build has no CUDA back end; no NVIDIA driver here either"});
}

#endif

}  // namespace tracestep::cli
