#include "planning/needs.h"

#include <algorithm>

#include "planning/workspace_rules.h"

namespace tracestep {
namespace {

std::span<const WorkspaceRule> rules_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu: return cpu_workspace_rules();
    case DeviceKind::kCuda: return cuda_workspace_rules();
    case DeviceKind::kReference: break;
  }
  return {};
}

}  // namespace

DeviceTraits traits_named(std::string_view device, int threads) {
  const std::string_view name = device.substr(0, device.find(':'));
  DeviceTraits out{.threads = threads, .computes = name != "null"};
  for (const DeviceKind kind : {DeviceKind::kCuda, DeviceKind::kReference}) {
    if (name == name_of(kind)) out.kind = kind;
  }
  return out;
}

bool runs_whole(DeviceKind kind, const OpDef& op) {
  if (op.kernel_class == KernelClass::kFused || op.only_on_gpus) return kind == DeviceKind::kCuda;
  return !op.always_decompose;
}

bool computes_in(DeviceKind kind, DType dtype) {
  if (kind == DeviceKind::kReference) return dtype == DType::kF64 || !is_floating(dtype);
  return dtype != DType::kF64;
}

namespace {

// Returns the workspace of the largest product that runtime/added_rows.h may launch: of all
// rows, or of those of one tensor.
std::int64_t workspace_of_added_rows(const OpCall& call, const DeviceTraits& traits) {
  const OpDef& sum = find_op("matmul_add");
  const int axis = call.attrs.flag("transpose_a") ? 1 : 0;
  std::int64_t out = 0;
  const auto count = [&](std::int64_t rows) {
    std::vector<Type> inputs{call.inputs[0], call.inputs[1], call.outputs[0]};
    inputs[0].shape[axis] = rows;
    inputs[2].shape[0] = rows;
    out = std::max(out, workspace_bytes({sum, call.attrs, inputs, {&inputs[2], 1}}, traits));
  };
  count(call.inputs[0].shape[axis]);
  for (const Type& y : call.outputs) count(y.shape[0]);
  return out;
}

}  // namespace

std::int64_t workspace_bytes(const OpCall& call, const DeviceTraits& traits) {
  if (call.op.name == "matmul_add_rows") return workspace_of_added_rows(call, traits);
  const auto rules = rules_of(traits.kind);
  const auto rule = std::ranges::find(rules, call.op.name, &WorkspaceRule::op);
  return rule == rules.end() ? 0 : rule->bytes(call, traits);
}

}  // namespace tracestep
