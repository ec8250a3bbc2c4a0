// Measures one op by itself: a call forward and its gradient, each timed from an idle device until
// the device is idle again, with warm caches or with caches that were swept. The times stand beside
// the least times that the device's bandwidth and arithmetic allow. Any registered op works, also
// one of a user.
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
  // The run's model, shape and mode are ignored; its precision is that of the operands.
  RunSpec run = {};
  // The op with its attributes, as programs are printed (ir/print.h): "matmul{transpose_b=true}".
  std::string call = {};
  // The operands' shapes in order: "512x64+64x256". A suffix ":i32" gives an operand another dtype
  // than the precision's; ":50257" makes it indices (i64) below that number. Empty: the op has no
  // operands.
  std::string shape = {};
  bool is_cold = false;  // True: the caches are swept before each part.
  int copy = 1;  // Numbers cells that are otherwise equal, so that one is measured several times.
  Protocol protocol = {};
};

// Names a cell in tables and notes: "matmul 512x64+64x256 fp32 cold".
std::string label_of(const OpSpec& spec);
Json key_of(const OpSpec& spec);
// Returns the relative time of a visit: the elements of the operands.
double visit_weight(const OpSpec& spec);

// Throws Error{kUsage} naming "op", "shape" or the op: for text that is no call, for a view (it
// launches nothing), for a collective, and for operands that the op does not accept.
void check_op(const OpSpec& spec);
// Returns the program after all passes; an op without a gradient rule has only a forward part.
PartsProgram op_program(const OpSpec& spec, const Device& device);

struct OpResult : PartsResult {
  OpSpec spec;
};
OpResult visit(const DeviceFactory& make_device, const OpSpec& spec, const StopSignal* stop);
// Returns the times of forward; empty if the cell failed.
std::vector<double> beside_samples(const OpResult& result);

// The FLOPs and bytes of a part's kernels and their least times. A kernel takes at least the time
// of its bytes and at least that of its FLOPs; the sums add the larger of the two over all kernels.
struct PartWork {
  double flops = 0, bytes = 0, roof_ms = 0, by_bytes_ms = 0;
};
struct OpWork {
  PartWork forward, backward;
};
OpWork work_of(const PartsProgram& program, const Ceilings& ceilings);

// Makes a table with a row for each part of each cell, judged by the validity checker. `work`: the
// work of each result, in the same order.
Table op_table(std::span<const OpResult> results, std::span<const OpWork> work,
               const Json& environment);

}  // namespace tracestep
