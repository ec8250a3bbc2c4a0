// Checks properties of any program on random ones: text and back, the meaning under every pass,
// both executors, recomputation of random nodes, fusion as for a GPU, predicted bytes, and each
// node beside the reference.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "backends/op_cases.h"
#include "passes/pipeline.h"
#include "support/random_program.h"

namespace tracestep::testing {

// Counts of what the programs checked so far contained.
struct RandomShares {
  std::int64_t programs = 0, nodes = 0;
  std::int64_t with_views = 0, with_donation = 0, with_updates = 0, with_fan_out = 0,
               with_recomputation = 0;
  std::int64_t views = 0;
  std::int64_t compared_nodes = 0, nodes_not_finite = 0;  // beside the reference
  std::map<std::string, std::int64_t> with_op;            // programs that had the op at any stage

  RandomShares& operator+=(const RandomShares& other);
  std::string text() const;
};

class RandomChecks {
 public:
  struct Wish {
    int threads = 1;
    bool guarded = false;
  };
  // `make`: the device whose executors are checked; by default the CPU.
  using DeviceMaker = std::function<std::unique_ptr<Device>(const Wish&)>;
  explicit RandomChecks(DeviceMaker make = {});

  // Names the first thing that does not hold; empty: everything does.
  std::string fault_in(const RandomCase& random);
  const RandomShares& shares() const { return shares_; }

 private:
  void check(const RandomCase& random);  // throws what does not hold
  struct Stage {
    std::string pass;
    Program program;
  };
  // The program as it is, then after every pass that changed it.
  std::vector<Stage> stages_of(const RandomCase& random, const PassContext& context) const;
  Tensors in_float64(const RandomCase& random, const Program& program);
  void check_passes(const RandomCase& random, const std::vector<Stage>& stages);
  void check_executors(const RandomCase& random, const Program& program);
  void check_recomputation(const RandomCase& random, const PassContext& context);
  void check_compiled_passes(const RandomCase& random, const Program& plain);
  void check_fusion(const RandomCase& random);
  void check_nodes(const RandomCase& random, const Program& program);
  void count(const std::vector<Stage>& stages);
  void note_ops(const Program& program);

  const std::unique_ptr<Device> device_, three_threads_, guarded_, reference_;
  RandomShares shares_;
  std::set<std::string> ops_;  // of the program at hand, at any stage
};

// --- for check_nodes() --------------------------------------------------------------------------
// Operands and results of every launch of an eager run.
struct ObservedNode {
  NodeId node = kNoNode;
  std::vector<HostTensor> operands = {};
  std::vector<std::optional<HostTensor>> results = {};  // none: nobody reads it
};
std::vector<ObservedNode> observed_nodes(Device& device, const Program& program,
                                         const Tensors& leaves);

// Names the first result, with its node, that is further from the float64 answer than the record of
// its op allows; empty: there is none.
std::string first_inexact_result(const Program& program, const std::vector<ObservedNode>& observed,
                                 Device& device, Device& reference);

}  // namespace tracestep::testing
