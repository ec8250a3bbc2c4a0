#include "lab/op/op.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/ranges.h>

#include "analysis/cost.h"
#include "base/error.h"
#include "base/units.h"
#include "ir/builder.h"
#include "ir/parse.h"
#include "ops/functions.h"
#include "spec/fields.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

// The elements of the array by which caches are swept, larger than those of any device here:
// reading it and writing as much leaves nothing of what they held.
constexpr std::int64_t kSweptElements = std::int64_t{32} << 20;
constexpr const char *kSwept = "swept", *kUpstream = "upstream";

std::string operand_name(std::size_t i) {
  return fmt::format("operand.{}", i);
}

struct Operand {
  Type type;
  std::int64_t below = 2;  // integers are drawn below it
};

Operand parse_operand(std::string_view text, DType usual) {
  Operand out{.type = {usual, {}}};
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto count = [](std::string_view number) {
    return parse_count("shape"_field, number, 1, std::int64_t{1} << 40);
  };
  const std::string_view sizes = text.substr(0, colon);
  for (std::size_t start = 0; sizes != "scalar" && start <= sizes.size();) {
    const std::size_t end = std::min(sizes.find('x', start), sizes.size());
    if (out.type.shape.rank() == kMaxRank)
      fail_usage("shape"_field, "more than {} dimensions", kMaxRank);
    out.type.shape.push_back(count(sizes.substr(start, end - start)));
    start = end + 1;
  }
  if (colon == text.size()) return out;
  const std::string_view kind = text.substr(colon + 1);
  const std::optional<DType> dtype = named<DType>(kind);
  out.type.dtype = dtype.value_or(DType::kI64);
  if (!dtype && !kind.empty() && std::isalpha(static_cast<unsigned char>(kind[0])) != 0) {
    throw Error(ErrorCode::kUsage, "shape"_field, fmt::format("there is no dtype \"{}\"", kind),
                "give one such as f32, bf16 or i64, or the number that indices are below");
  }
  if (!dtype) out.below = count(kind);
  return out;
}

std::vector<Operand> operands_of(const OpSpec& spec, const OpDef& op) {
  std::vector<Operand> out;
  const std::string_view shape = spec.shape;
  for (std::size_t start = 0; !shape.empty() && start <= shape.size();) {
    const std::size_t plus = std::min(shape.find('+', start), shape.size());
    out.push_back(parse_operand(shape.substr(start, plus - start), spec.run.precision.parameters));
    start = plus + 1;
  }
  const std::size_t named = op.inputs.size();
  const auto optional = static_cast<std::size_t>(std::ranges::count_if(
      op.inputs, [](const std::string& name) { return name.ends_with('?'); }));
  std::vector<std::string> names = op.inputs;
  for (std::string& name : names) {
    if (name.ends_with('?')) name.replace(name.size() - 1, 1, " (optional)");
  }
  const bool fits = op.is_variadic() ? out.size() >= named
                                     : out.size() <= named && out.size() + optional >= named;
  if (!fits && named == 0) {
    throw Error(ErrorCode::kUsage, "shape"_field, fmt::format("{} has no operands", op.name),
                "leave it out");
  }
  if (!fits && out.empty()) {
    throw Error(
        ErrorCode::kUsage, "shape"_field,
        fmt::format("it is missing: {} has the operands {}", op.name, fmt::join(names, ", ")),
        "give one shape for each, joined by +, as 512x64+64x256");
  }
  if (!fits) {
    throw Error(
        ErrorCode::kUsage, "shape"_field,
        fmt::format("{} has the operands {}, and \"{}\" has {} {}", op.name, fmt::join(names, ", "),
                    spec.shape, out.size(), out.size() == 1 ? "shape" : "shapes"),
        "join one shape for each by +, as 512x64+64x256");
  }
  return out;
}

OpText call_of(const OpSpec& spec) {
  OpText call = parse_call(spec.call, "op"_field);
  const auto refuse = [&](const char* why, const char* hint) {
    throw Error(ErrorCode::kUsage, "op"_field, fmt::format("{} {}", call.op->name, why), hint);
  };
  if (!call.op->has_launches()) refuse("launches nothing", "give one that makes no view");
  if (call.op->kernel_class == KernelClass::kCollective) {
    refuse("needs several ranks", "tracestep comm times collectives");
  }
  return call;
}

// Builds the program of the call; floating operands are parameters, so that they have gradients.
Program forward_graph(const OpSpec& spec, bool& has_gradient) {
  const OpText call = call_of(spec);
  Builder b(call.op->name);
  const std::vector<Operand> operands = operands_of(spec, *call.op);
  std::vector<Val> inputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Type& type = operands[i].type;
    const std::string name = operand_name(i);
    inputs.push_back(is_floating(type.dtype) ? b.parameter(name, type) : b.input(name, type));
  }
  const Val swept = spec.is_cold ? b.input(kSwept, {DType::kF32, {kSweptElements}}) : Val();
  const auto sweep = [&](const char* name, double by) {
    if (!swept) return;
    const auto scope = b.scope(kOutsideParts);
    b.output(name, ops::affine(swept, by));
  };
  sweep("sweep.forward", 2);
  std::vector<Val> results;
  {
    const auto scope = b.scope("op");
    results = b.call(*call.op, inputs, call.attrs);
  }
  const Val y = results[0];
  has_gradient = call.op->gradient && is_floating(y.dtype()) &&
                 std::ranges::any_of(inputs, [](Val x) { return is_floating(x.dtype()); });
  if (!has_gradient) {
    for (std::size_t i = 0; i < results.size(); ++i) b.output(fmt::format("y{}", i), results[i]);
    return b.finish();
  }
  const Val upstream = b.input(kUpstream, y.type());
  sweep("sweep.backward", 3);
  return with_upstream_loss(b, y, upstream);
}

void set_values(const OpSpec& spec, Store& store, Executor& executor) {
  const Program& program = executor.program();
  const auto random = [&](std::string_view name, std::int64_t below) {
    return random_tensor(program.type(program.find_leaf(name)), spec.run.seed, name, below);
  };
  const std::vector<Operand> operands = operands_of(spec, *call_of(spec).op);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::string name = operand_name(i);
    const ValueId leaf = program.find_leaf(name);
    if (leaf == kNoValue) continue;  // nothing reads it
    if (program.value(leaf).leaf == LeafKind::kInput) {
      executor.set_input(name, random(name, operands[i].below));
    } else {
      store.set(name, random(name, operands[i].below));
    }
  }
  if (program.find_leaf(kUpstream) != kNoValue) {
    executor.set_input(kUpstream, random(kUpstream, 2));
  }
  if (const ValueId swept = program.find_leaf(kSwept); swept != kNoValue) {
    const Type& type = program.type(swept);
    executor.set_input(kSwept, HostTensor::zeros(type.dtype, type.shape));
  }
}

void add_work(const Program& program, NodeId id, const Ceilings& ceilings, PartWork& out) {
  const Node& node = program.node(id);
  const Cost cost = cost_of(program, node);
  const RoofTime roof = roof_time(program, node, ceilings);
  out.flops += static_cast<double>(cost.flops);
  out.bytes += static_cast<double>(cost.bytes_read + cost.bytes_written);
  out.roof_ms += roof.ms();
  out.by_bytes_ms += roof.is_by_bytes() ? roof.ms() : 0.0;
}

}  // namespace

std::string label_of(const OpSpec& spec) {
  return fmt::format("{} {} {}{}", spec.call, spec.shape, name_of(spec.run.precision),
                     spec.is_cold ? " cold" : "");
}

Json key_of(const OpSpec& spec) {
  Json out = part_of_key(spec.run, [](const RunField& field) {
    return is_of_attention(field) && !is_shape(field) && field.name != "attention";
  });
  out["op"] = spec.call;
  out["shape"] = spec.shape;
  out["cache"] = spec.is_cold ? "cold" : "warm";
  if (spec.copy > 1) out["copy"] = spec.copy;
  return out;
}

double visit_weight(const OpSpec& spec) {
  double out = spec.is_cold ? kSweptElements : 0;
  for (const Operand& operand : operands_of(spec, *call_of(spec).op)) {
    out += static_cast<double>(operand.type.count());
  }
  return out;
}

void check_op(const OpSpec& spec) {
  bool has_gradient = false;
  (void)forward_graph(spec, has_gradient);
}

PartsProgram op_program(const OpSpec& spec, const Device& device) {
  bool has_gradient = false;
  const Program forward = forward_graph(spec, has_gradient);
  RunSpec run = spec.run;
  run.mode = has_gradient ? Mode::kForwardBackward : Mode::kInference;
  run.gradients = GradientKind::kTransient;
  run.verify = false;
  Program program = program_for(forward, run, device);
  program.name = label_of(spec);
  return parts_of(std::move(program));
}

OpResult visit(const DeviceFactory& make_device, const OpSpec& spec, const StopSignal* stop) {
  OpResult out;
  out.spec = spec;
  const std::unique_ptr<Device> device = make_device(spec.run);
  const PartsProgram program = op_program(spec, *device);
  measure_parts(
      *device,
      {.program = program,
       .run = spec.run,
       .protocol = spec.protocol,
       .set_values = [&](Store& store, Executor& executor) { set_values(spec, store, executor); },
       .with_whole = false},
      stop, out);
  return out;
}

std::vector<double> beside_samples(const OpResult& result) {
  return result.status == Status::kOk ? result.forward.samples_ms : std::vector<double>();
}

OpWork work_of(const PartsProgram& p, const Ceilings& ceilings) {
  OpWork out;
  const BufferPlan buffer_plan = plan_buffers(p.program);
  for (std::size_t i = 0; i < p.program.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    if (!buffer_plan.runs[i]) continue;
    if (p.is_forward(id)) add_work(p.program, id, ceilings, out.forward);
    if (p.is_backward(id)) add_work(p.program, id, ceilings, out.backward);
  }
  return out;
}

}  // namespace tracestep
