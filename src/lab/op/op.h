// One op by itself: a call of it forward and its gradient, each timed from an idle device until it
// is idle again, with operands that the caches may hold or with swept caches, beside the time that
// the device's bandwidth and arithmetic allow at best. Any registered op will do, one of a user's
// own too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lab/measure/ceilings.h"
#include "lab/measure/parts.h"
#include "lab/measure/rounds.h"
#include "lab/report/table.h"
#include "session/devices.h"
#include "spec/protocol.h"

namespace tracestep {

struct OpSpec {
  RunSpec run = {};       // its model, shape and mode are ignored; precision: of the operands
  std::string call = {};  // "matmul{transpose_b=true}", as programs are printed (ir/print.h)
  // The operands' shapes in the op's order, "512x64+64x256"; behind one ":i32" is another dtype
  // than the precision's, ":50257" are indices (i64) below that number. Empty: no operands.
  std::string shape = {};
  bool is_cold = false;  // the caches are swept before each part
  int copy = 1;          // of the same cell, measured as another one
  Protocol protocol = {};
};

// "matmul 512x64+64x256 fp32 cold", as tables and notes call a cell.
std::string label_of(const OpSpec& spec);
Json key_of(const OpSpec& spec);
double visit_weight(const OpSpec& spec);  // elements of operands

// Error{kUsage} naming "op", "shape" or the op for a call that is none, for a view (it launches
// nothing), for a collective, and for operands that do not fit.
void check_op(const OpSpec& spec);
// The program after all passes. Without a gradient rule the op has only a forward part.
PartsProgram op_program(const OpSpec& spec, const Device& device);

struct OpResult : PartsResult {
  OpSpec spec;
};
OpResult visit(const DeviceFactory& make_device, const OpSpec& spec, const StopSignal* stop);
std::vector<double> beside_samples(const OpResult& result);  // of forward, if it is ok

// FLOPs, bytes and best times of a part's kernels. A kernel takes at least as long as its bytes and
// its FLOPs do; the sums are of these times.
struct PartWork {
  double flops = 0, bytes = 0, roof_ms = 0, by_bytes_ms = 0;
};
struct OpWork {
  PartWork forward, backward;
};
OpWork work_of(const PartsProgram& program, const Ceilings& ceilings);

// Rows: the parts of each cell, judged by the validity checker. `work`: of each result.
Table op_table(std::span<const OpResult> results, std::span<const OpWork> work,
               const Json& environment);

}  // namespace tracestep
