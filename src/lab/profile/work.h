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
  double gap_ms = 0;  // between the end of the kernel before and the start of these
  double flops = 0, bytes = 0;
  double roof_ms = 0;           // least time by the roofline
  double roof_by_bytes_ms = 0;  // the part of it that bytes limit

  WorkSums& operator+=(const WorkSums& other);
  double gflops() const { return ms > 0 ? flops / ms * 1e-6 : 0.0; }
  double gb_s() const { return ms > 0 ? bytes / ms * 1e-6 : 0.0; }
  // "bytes" or "FLOPs": which of them limits the roofline time; empty when it has neither.
  std::string bound() const {
    if (roof_ms <= 0) return {};
    return roof_by_bytes_ms > 0.5 * roof_ms ? "bytes" : "FLOPs";
  }
};

struct Work {
  std::string component = {};  // kOutside when it belongs to no node
  std::string phase = {};
  std::string op = {};
  std::string kernel = {};
  KernelClass kernel_class = KernelClass::kCopy;
  bool has_node = true;
  bool is_modelled = false;  // the kernel is for several nodes or origins: see origin_shares()
  WorkSums sums = {};
};

inline constexpr std::string_view kOutside = "outside the program";

struct StepWork {
  std::vector<Work> rows;  // by time
  double span_ms = 0, gaps_ms = 0;
  double kernels_ms = 0;  // the sum of the kernels' times
  double overlap_ms = 0;  // time counted more than once in it, as kernels run at the same time
  double busy_ms = 0;     // in which kernels run: their sum less the overlap
  // The time of held-up launches beyond what counts for them (undisturbed_ms()), which is in no
  // row: span = busy + interrupted + gaps.
  double interrupted_ms = 0;

  WorkSums total() const;
};

// For each launch the time that counts for it, which is less where other work held it up
// (lab/measure/recorded_times.h).
std::vector<double> counted_ms(const Profile& profile);

// When a node runs several kernels, its FLOPs and bytes are counted at the longest one. The kernel
// of a batch is shared out among the batch's nodes by the bytes that each moves.
StepWork work_of(const Profile& profile, const Ceilings& ceilings);

bool is_product(const Work& work);

// "attention" and "attn.softmax" as parts of component names. Error{kUsage} naming `where` for a
// part that occurs in no component of the program.
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
