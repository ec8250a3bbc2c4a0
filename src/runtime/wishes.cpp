#include "runtime/wishes.h"

#include "runtime/processes.h"

namespace tracestep {
namespace {

constexpr std::uint64_t kSave = 1 << 16;  // above the numbers of signals

}  // namespace

Wishes wishes_of(Communicator* group, const StopSignal* stop) {
  if (stop == nullptr) return {};
  Processes* const processes = group == nullptr ? nullptr : group->processes();
  if (processes == nullptr) return {stop->requested(), stop->asks_to_save()};
  const std::uint64_t own = static_cast<std::uint64_t>(stop->signal_number()) |
                            (stop->asks_to_save() ? kSave : std::uint64_t{0});
  Wishes out;
  for (const std::uint64_t each : processes->exchange(own)) {
    const int number = static_cast<int>(each % kSave);
    if (number != 0) stop->take_over(number);
    out.stop |= number != 0;
    out.save |= each >= kSave;
  }
  return out;
}

}  // namespace tracestep
