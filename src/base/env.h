// The environment variables that the program reads: nothing else calls getenv. Those of launchers
// are in backends/comm/launch/launched.h. `doctor` prints both tables, and main() checks them
// before any command starts.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tracestep {

// How much the program says on stderr; each level includes the ones before it.
enum class LogLevel { kQuiet, kWarn, kInfo };

namespace env {

struct Variable {
  std::string_view name;
  std::string_view doc;
  std::string_view default_value;
  // Reads the variable as the program does and throws if it is malformed; nullptr: any text is
  // right.
  void (*check)() = nullptr;
  bool is_secret = false;  // True: its value must not be printed.
};

// Reads a variable by `kAccessor`, which throws if the value is malformed; for Variable::check.
template <auto kAccessor>
void check_by() {
  (void)kAccessor();
}

// Returns all variables but those of launchers, in the order of the accessors below.
std::span<const Variable> variables();
// Throws Error{kUsage} with the variable, its value and what is allowed, if one is malformed.
void check(std::span<const Variable> variables);
// Returns the text a variable has now, or nullopt when it is unset or empty.
std::optional<std::string> value_of(const Variable& variable);

// Each accessor reads the environment anew and throws Error{kUsage} naming the variable when its
// value is malformed.

// OMP_NUM_THREADS: threads to use; of a list ("4,2") the first entry.
std::optional<int> threads();
// NO_COLOR: true, for no colours, if it has any value that is not empty.
bool no_color();
// TRACESTEP_VERIFY: true if passes are verified; unset: only in builds with assertions.
bool verify_after_every_pass();
// TRACESTEP_ALLOCATOR: true for the guarded allocator, which never reuses memory and fills guard
// bytes around each block with a pattern.
bool guarded_allocator();
// TRACESTEP_ALLOCATOR: true for the plain allocator, which asks the device for every allocation,
// so that memory checkers see each one.
bool plain_allocator();
// TRACESTEP_LOG: how much the program writes to stderr.
LogLevel log_level();
// TRACESTEP_KERNEL_CACHE: the folder of compiled kernels; empty: none are kept between processes.
std::string kernel_cache();
// TRACESTEP_SYSTEM_ROOT: the folder in which the host's memory is looked up (base/host_memory.h).
std::string system_root();
// TERM: true for "dumb", a terminal that cannot rewrite a line.
bool dumb_terminal();
// TRACESTEP_COMM_TIMEOUT: seconds after which a rank that does not come to a collective has failed.
double comm_timeout_s();

inline constexpr Variable kCommTimeout = {"TRACESTEP_COMM_TIMEOUT",
                                          "seconds to wait for another process in a collective",
                                          "300", check_by<comm_timeout_s>};

}  // namespace env
}  // namespace tracestep
