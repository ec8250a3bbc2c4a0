// The rows of a profile: every launch of the profiled steps under its component, phase, op and
// kernel, with FLOPs, bytes and the time that the roofline allows. All figures are per step.
#pragma once

#include <string>
#include <vector>

#include "ir/op_def.h"
#include "lab/measure/ceilings.h"
#include "lab/profile/run.h"

namespace tracestep {

// Counts and times of any group of launches.
struct WorkSums {
  double launches = 0;
  double ms = 0;
  // The time from the end of the kernel before to the start of each of these launches, added up.
  double gap_ms = 0;
  double flops = 0, bytes = 0;
  double roof_ms = 0;           // The least time that the roofline allows.
  double roof_by_bytes_ms = 0;  // The part of roof_ms of launches that bytes limit.

  WorkSums& operator+=(const WorkSums& other);
  double gflops() const { return ms > 0 ? flops / ms * 1e-6 : 0.0; }
  double gb_s() const { return ms > 0 ? bytes / ms * 1e-6 : 0.0; }
  // Says which of "bytes" and "FLOPs" limits the roofline time; empty when there is neither.
  std::string bound() const {
    if (roof_ms <= 0) return {};
    return roof_by_bytes_ms > 0.5 * roof_ms ? "bytes" : "FLOPs";
  }
};

struct Work {
  std::string component = {};  // The component; kOutside if the launch belongs to no node.
  std::string phase = {};
  std::string op = {};
  std::string kernel = {};
  KernelClass kernel_class = KernelClass::kCopy;
  bool has_node = true;
  // True if the kernel serves several nodes or origins, so that its time is divided by a model: see
  // origin_shares().
  bool is_modelled = false;
  WorkSums sums = {};
};

inline constexpr std::string_view kOutside = "outside the program";

struct StepWork {
  std::vector<Work> rows;  // Sorted by time.
  double span_ms = 0, gaps_ms = 0;
  double kernels_ms = 0;  // The sum of the kernels' times.
  double overlap_ms = 0;  // The time that kernels_ms counts more than once because kernels overlap.
  double busy_ms = 0;     // The time in which kernels run: kernels_ms minus overlap_ms.
  // Delays of single launches by other work (undisturbed_ms()), which no row includes: span = busy
  // + interrupted + gaps.
  double interrupted_ms = 0;

  WorkSums total() const;
};

// Returns for each launch the time that counts: its own, or a shorter one if other work delayed it
// (lab/measure/recorded_times.h).
std::vector<double> counted_ms(const Profile& profile);

// Adds up a profile's work. If a node runs several kernels, FLOPs and bytes count at the longest. A
// batch's kernel is shared out among the batch's nodes by the bytes that each moves.
StepWork work_of(const Profile& profile, const Ceilings& ceilings);

bool is_product(const Work& work);

// Selects components by parts of their names, such as "attention" and "attn.softmax". Throws
// Error{kUsage} naming `where` for a part that occurs in no component of the program.
class ComponentFilter {
 public:
  ComponentFilter() = default;
  ComponentFilter(const About& where, const std::vector<std::string>& names,
                  const Program& program);
  bool has(std::string_view component) const;
  bool is_all() const { return names_.empty(); }

 private:
  std::vector<std::string> names_;
};

}  // namespace tracestep
