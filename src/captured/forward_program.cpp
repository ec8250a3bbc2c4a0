#include "captured/forward_program.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "captured/captured_model.h"
#include "ir/op_def.h"
#include "ir/parse.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

// The most bytes of all values together, so that what passes add cannot exceed 64 bits.
constexpr double kMaxValueBytes = 0x1p56;

bool is_of_forward(const OpDef& op) {
  switch (op.kernel_class) {
    case KernelClass::kOptimizer:
    case KernelClass::kCollective:
    case KernelClass::kFused: return false;
    default: return !op.is_assembly();
  }
}

void check_leaves(const Program& program, const std::string& where) {
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf == LeafKind::kState || leaf.role != Role::kNone) {
      fail_input(where, "{} is a state; a captured program has inputs, parameters and constants",
                 leaf.name);
    }
    if (leaf.memory != Memory::kDevice || is_float8(leaf.type.dtype)) {
      fail_input(where, "{} is no leaf of a captured program", leaf.name);
    }
    if (leaf.leaf == LeafKind::kParameter && !is_floating(leaf.type.dtype)) {
      fail_input(where, "parameter {} is {}, which is not floating", leaf.name, leaf.type.str());
    }
    for (const std::string_view taken : {"lr", "step_size", "loss", "loss_scale"}) {
      if (leaf.name != taken) continue;
      fail_input(where, "a leaf is called {}, as what every step has beside a module's own", taken);
    }
  }
}

void check_nodes(const Program& program, const std::string& where) {
  for (const Node& node : program.nodes) {
    const Origin& origin = node.origin();
    const auto fail = [&](std::string_view why) {
      fail_input(where, "{} of {} is {}", node.op->name,
                 origin.path.empty() ? "the program" : origin.path, why);
    };
    if (!is_of_forward(*node.op)) fail("no op of a forward program");
    const bool is_forward = std::ranges::all_of(
        node.origins, [](const Origin& o) { return o.phase == Phase::kForward; });
    if (!is_forward || node.epoch != 0) fail("not of the forward phase");
    const bool has_role = std::ranges::any_of(
        node.outputs, [&](ValueId id) { return program.value(id).role != Role::kNone; });
    if (has_role) fail("a value with a role, which only a step has");
  }
}

void check_outputs(const Program& program, const std::string& where) {
  if (!program.updates.empty()) fail_input(where, "it updates a leaf; a forward program does not");
  for (const Output& output : program.outputs) {
    if (output.name == kLossOutput || output.name == kLogitsOutput) continue;
    fail_input(where, "output \"{}\" is neither loss nor logits", printable(output.name));
  }
  const ValueId loss = program.find_output(kLossOutput),
                logits = program.find_output(kLogitsOutput);
  if (loss == kNoValue) fail_input(where, "there is no output \"loss\"");
  const Type& type = program.type(loss);
  if (!type.shape.empty() || !is_floating(type.dtype)) {
    fail_input(where, "the loss is {}, not one floating number", type.str());
  }
  if (logits != kNoValue && !is_floating(program.type(logits).dtype)) {
    fail_input(where, "the logits are {}", program.type(logits).str());
  }
}

void check_size(const Program& program, const std::string& where) {
  double bytes = 0.0;
  for (const Value& value : program.values) bytes += static_cast<double>(value.type.bytes());
  if (bytes > kMaxValueBytes) fail_input(where, "its values have {:.3g} bytes", bytes);
}

}  // namespace

Program read_forward_program(const std::string& text, const std::string& where) {
  ops::register_all();
  Program out = parse_program(text, where);
  check_leaves(out, where);
  check_nodes(out, where);
  check_outputs(out, where);
  check_size(out, where);
  return out;
}

}  // namespace tracestep
