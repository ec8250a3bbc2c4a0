#include "lab/measure/recorded_times.h"

#include <map>
#include <tuple>

#include "lab/measure/statistics.h"

namespace tracestep {

std::vector<double> undisturbed_ms(std::span<const RecordedLaunch> launches) {
  constexpr double kInterrupted = 1.5;  // times the median
  constexpr std::size_t kFewest = 3;    // of two, neither is the usual one
  // Launches of two steps are the same one if node, kernel and index among those of both agree.
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int32_t> seen;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::vector<std::size_t>> alike;
  std::vector<double> out;
  for (const RecordedLaunch& l : launches) {
    const std::int32_t place = seen[{l.step, l.node, l.name}]++;
    alike[{l.node, l.name, place}].push_back(out.size());
    out.push_back(l.ms);
  }
  for (const auto& [launch, places] : alike) {
    if (places.size() < kFewest) continue;
    std::vector<double> ms;
    for (std::size_t i : places) ms.push_back(launches[i].ms);
    const double usual = median_of(ms);
    for (std::size_t i : places) {
      if (out[i] > kInterrupted * usual) out[i] = usual;
    }
  }
  return out;
}

}  // namespace tracestep
