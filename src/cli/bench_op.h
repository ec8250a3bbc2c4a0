// bench --op: single ops over shapes, precisions and states of the caches.
#pragma once

#include "cli/cells.h"
#include "cli/devices.h"
#include "cli/option_set.h"
#include "lab/op/op.h"
#include "spec/run_grid.h"

namespace tracestep::cli {

struct OpOptions {
  std::vector<std::string> calls;  // empty: steps are measured
  std::vector<std::string> shapes;
  std::vector<std::string> caches = {"warm", "cold"};

  bool is_used() const { return !calls.empty(); }
};
void add_op_options(OptionSet& set, OpOptions& options);

// The cells of the request. Error{kUsage}: --op without --shape for an op that has operands, fields
// that mean nothing for an op alone.
std::vector<OpSpec> op_specs(const OpOptions& options, const RunGrid& grid,
                             const Protocol& protocol, DeviceUse use);
// `roof`: as bench's option: 0: no ceilings are measured.
int run_ops(const OutputOptions& output, std::vector<OpSpec> specs, RoundOptions rounds,
            std::optional<double> roof, Cells& cells);

}  // namespace tracestep::cli
