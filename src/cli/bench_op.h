// Implements `bench --op`: times single ops over shapes, precisions and cache states.
#pragma once

#include "cli/cells.h"
#include "cli/devices.h"
#include "cli/option_set.h"
#include "lab/op/op.h"
#include "spec/run_grid.h"

namespace tracestep::cli {

struct OpOptions {
  std::vector<std::string> calls;  // The ops to time; empty: whole steps are measured instead.
  std::vector<std::string> shapes;
  std::vector<std::string> caches = {"warm", "cold"};

  bool is_used() const { return !calls.empty(); }
};
void add_op_options(OptionSet& set, OpOptions& options);

// The cells of the request. Throws Error{kUsage} if --op lacks --shape for an op with operands, or
// if a field is given that has no meaning for an op alone.
std::vector<OpSpec> op_specs(const OpOptions& options, const RunGrid& grid,
                             const Protocol& protocol, DeviceUse use);
// Measures the cells and writes the result. `roof` is the option of `bench`; 0: no ceilings are
// measured.
int run_ops(const OutputOptions& output, std::vector<OpSpec> specs, RoundOptions rounds,
            std::optional<double> roof, Cells& cells);

}  // namespace tracestep::cli
