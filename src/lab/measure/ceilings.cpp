#include "lab/measure/ceilings.h"

#include <algorithm>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "lab/measure/host_facts.h"
#include "planning/device_traits.h"
#include "session/devices.h"

namespace tracestep {
namespace {

// Makes the run's device without its memory limit, which does not apply to the arrays that ceilings
// are measured with, and without its files.
std::unique_ptr<Device> plain_device(RunSpec run) {
  run.place = {.device = run.place.device, .threads = run.place.threads};
  return make_device(run);
}

double measured_tflops(const RunSpec& run) {
  const auto device = plain_device(run);
  // Ranks on a CPU have threads of their own, so their ceilings add up.
  const int ranks = device->traits().has_own_memory() ? 1 : run.parallel.ranks;
  return device->roof_tflops(run.precision) * ranks;
}

struct KnownRoof {
  double tflops = 0;
  std::optional<double> others_cores = {};
};

KnownRoof& known_roof(const RunSpec& run) {
  static std::map<std::string, KnownRoof> all;
  const std::string key = fmt::format("{} {} {} {}", run.place.device, run.place.threads,
                                      run.parallel.ranks, name_of(run.precision));
  const auto [found, is_new] = all.try_emplace(key);
  if (is_new) found->second.tflops = measured_tflops(run);
  return found->second;
}

bool is_measured_on_host(const RunSpec& run) {
  return !traits_named(run.place.device).has_own_memory();
}

}  // namespace

RoofTime roof_time(const Cost& cost, bool is_product, DType dtype, const Ceilings& ceilings) {
  if (!ceilings.known()) return {};
  const auto found = ceilings.products_gflops.find(dtype);
  const bool has_own = is_product && found != ceilings.products_gflops.end();
  const double gflops = has_own ? found->second : ceilings.arithmetic_gflops;
  return roof_time(cost, gflops * 1e-3, ceilings.bandwidth_gb_s);
}

RoofTime roof_time(const Program& program, const Node& node, const Ceilings& ceilings) {
  const ValueId typed = node.inputs.empty() ? node.outputs[0] : node.inputs[0];
  return roof_time(cost_of(program, node), is_product(node), program.type(typed).dtype, ceilings);
}

Ceilings device_ceilings(const RunSpec& run) {
  const auto device = plain_device(run);
  const HostFacts before = read_host_facts();
  Ceilings out = device->ceilings(run.precision);
  if (out.known() && is_measured_on_host(run)) {
    out.others_cores = others_cores(before, read_host_facts());
  }
  return out;
}

double roof_tflops(const RunSpec& run) {
  return known_roof(run).tflops;
}

double roof_tflops_for(const RunSpec& run, double reached) {
  constexpr double kMostSeconds = 2;
  double best = roof_tflops(run);
  if (best <= 0.0 || best >= reached) return best;
  KnownRoof& known = known_roof(run);
  const HostFacts before = read_host_facts();
  for (HostFacts now = before; best < reached && now.at_s - before.at_s < kMostSeconds;) {
    best = std::max(best, measured_tflops(run));
    now = read_host_facts();
    if (is_measured_on_host(run)) known.others_cores = others_cores(before, now);
  }
  return known.tflops = best;
}

std::optional<double> roof_others_cores(const RunSpec& run) {
  return known_roof(run).others_cores;
}

}  // namespace tracestep
