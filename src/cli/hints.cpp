#include "cli/hints.h"

#include <fmt/format.h>

#include "base/host_memory.h"
#include "base/shell_words.h"
#include "base/units.h"
#include "cli/devices.h"
#include "lab/fit/search.h"
#include "lab/memory/run.h"
#include "run/memory_limit.h"
#include "session/room.h"

namespace tracestep::cli {
namespace {

// The hint if the host's memory ran out, where changes of the device's bytes would not help.
std::string host_hint(const RunSpec& run) {
  const std::int64_t bytes = host_bytes(predict_memory(run, traits_of(run.place)).program);
  RunSpec without = run;
  without.offload = Offload::kNone;
  const bool may_shrink = run.optimizer.moments == Moments::kF32;
  return fmt::format(
      "--offload needs {} of the host's memory that can be page-locked{}; tracestep fit {} "
      "--memory-limit SIZE says what would fit without it",
      format_bytes(bytes), may_shrink ? ", with --moments bf16 less" : "", flags_of(without));
}

// Returns the host memory that a run may take now, as a flag takes it: in whole MiB.
std::string room_text() {
  constexpr std::int64_t kMiB = 1 << 20;
  const std::int64_t room = usable_part(available_memory().value_or(0)) / kMiB * kMiB;
  return room > 0 ? exact_bytes(room) : "SIZE";
}

}  // namespace

std::string oom_hint(const RunSpec& run, const Lack& lack) {
  const bool has_own_memory = traits_of(run.place).has_own_memory();
  if (run.offload != Offload::kNone && has_own_memory && lack.is_on_host) return host_hint(run);
  const std::int64_t limit = limit_in_bytes(run.place);
  if (lack.is_foreseen && !has_own_memory) {  // needs no search
    return fmt::format("tracestep fit {} --memory-limit {} says what would fit", flags_of(run),
                       room_text());
  }
  if (limit == 0) {
    return fmt::format("tracestep fit {} --memory-limit SIZE says what would fit", flags_of(run));
  }
  const Advice advice = advise({.step = run,
                                .traits = traits_of(run.place),
                                .limit_bytes = limit,
                                .division = BatchDivision::kIfNeeded});
  if (advice.remedies.empty()) {
    return fmt::format("no smaller step of this model that was tried fits {}; the least peak is {}",
                       format_bytes(limit),
                       format_bytes(advice.least_sequence->figures.peak_bytes));
  }
  // The command fit plans for one rank.
  const std::string more = run.parallel.is_on()
                               ? std::string()
                               : fmt::format("; more ways: tracestep fit {} --memory-limit {}",
                                             flags_of(run), exact_bytes(limit));
  const Remedy& first = advice.remedies[0];
  return fmt::format("{} would fit, with a peak of {}: {}{}", first.what,
                     format_bytes(first.figures.peak_bytes),
                     first.micro_batches > 1 ? command_of(first) : first.command, more);
}

std::string nsys_command(const std::filesystem::path& program,
                         std::span<const std::string> arguments, std::size_t cells) {
  // The range `measure` of our domain is a registered string, so nsys finds it without more flags.
  std::string out = "nsys profile --trace=cuda,nvtx,cublas --sample=none --cpuctxsw=none";
  out += " --capture-range=nvtx --nvtx-capture=measure@tracestep";
  out += cells > 1 ? fmt::format(" --capture-range-end=repeat:{}", cells)
                   : std::string(" --capture-range-end=stop");
  out += " --output=tracestep " + shell_quoted(program.string());
  for (const std::string& word : arguments) {
    if (word != "--nsys-hint") out += " " + shell_quoted(word);
  }
  return out;
}

}  // namespace tracestep::cli
