#include "lab/compile/run.h"

#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "analysis/cost.h"
#include "session/session.h"
#include "train/step_inputs.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

// A new temporary folder, which its destructor removes.
class ScratchFolder {
 public:
  ScratchFolder()
      : path_(fs::temp_directory_path() /
              fmt::format("tracestep-start-{}-{}", getpid(), now_ns())) {}
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

double start_ms(const DeviceFactory& make_device, const RunSpec& run) {
  const std::unique_ptr<Device> device = make_device(run);
  const std::int64_t start = now_ns();
  Session session(*device, run);
  const std::int64_t bound = now_ns();
  fill_for_timing(session);
  device->synchronize();
  Measurement measurement(session.executor(), *device);
  return static_cast<double>(bound - start) * 1e-6 + measurement.step().wall_ms();
}

}  // namespace

StartTimes measure_starts(const DeviceFactory& make_device, const RunSpec& run) {
  const ScratchFolder kernels;
  RunSpec fresh = run;
  fresh.place.kernel_cache = kernels.path();
  const double first = start_ms(make_device, fresh);
  return {first, start_ms(make_device, fresh)};
}

void add_start(const DeviceFactory& make_device, CompileCell& cell) {
  if (cell.result.status != Status::kOk) return;
  const Outcome outcome =
      attempt([&] { cell.start = measure_starts(make_device, cell.result.spec.step); });
  if (outcome.status != Status::kOk) cell.start.reset();
}

std::int64_t moved_bytes(const Program& program) {
  const Cost cost = total_cost(program);
  return cost.bytes_read + cost.bytes_written;
}

}  // namespace tracestep
