// Shows the effect of mixed precision on a small model, read from the program after the pass.
#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "lab/precision/tables.h"
#include "lab/report/known_columns.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "passes/form_passes.h"

namespace tracestep {
namespace {

constexpr std::int64_t kRows = 4, kIn = 20, kHidden = 10, kClasses = 5;
constexpr PrecisionClass kClassesOfOps[] = {PrecisionClass::kLow, PrecisionClass::kFull,
                                            PrecisionClass::kPromote, PrecisionClass::kKeep};

// Builds (x - mean) / sqrt(variance + eps) · weight over the last axis (Ba, Kiros and Hinton 2016,
// eq. 4) op by op, so that each of its ops is cast by its own class.
Val layer_norm(Val x, Val weight) {
  const double part = 1.0 / static_cast<double>(x.dim(-1));
  const auto mean = [&](Val v) {
    return ops::broadcast_to(ops::affine(ops::sum(v, {1}, true), part), v.shape());
  };
  const Val centred = ops::sub(x, mean(x));
  const Val variance = mean(ops::unary("square", centred));
  const Val scale = ops::unary("rsqrt", ops::affine(variance, 1.0, 1e-5));
  return ops::mul(ops::mul(centred, scale), ops::broadcast_to(weight, x.shape()));
}

// The model of the study's mixed-precision question. Results that the table shows are outputs.
Program toy_model() {
  ops::register_all();
  Builder b("toy");
  const Val x = b.input("x", {DType::kF32, {kRows, kIn}});
  const Val targets = b.input("targets", {DType::kI64, {kRows}});
  const auto weight = [&](const char* name, Shape shape) {
    return b.parameter(name, {DType::kF32, shape});
  };
  const auto shown = [&](const char* name, auto&& make) {
    const auto scope = b.scope(name);
    const Val v = make();
    b.output(name, v);
    return v;
  };
  const Val fc1 = shown("fc1", [&] {
    return ops::linear(x, weight("fc1.weight", {kHidden, kIn}));
  });
  const Val relu = shown("relu", [&] { return ops::unary("relu", fc1); });
  const Val ln = shown("ln", [&] { return layer_norm(relu, weight("ln.weight", {kHidden})); });
  const Val logits = shown("logits", [&] {
    return ops::linear(ln, weight("fc2.weight", {kClasses, kHidden}));
  });
  shown("loss", [&] { return ops::cross_entropy(logits, targets); });
  return b.finish();
}

// The scope of layer norm in the model, and its name on autocast's list, which has it as one op.
constexpr std::string_view kListedWhole = "ln", kListedOp = "layer_norm";

// Returns the class that an op has in effect: an op of one operand has nothing to promote.
PrecisionClass effective_class(const OpDef& op) {
  const bool is_alone = op.precision_class == PrecisionClass::kPromote && op.inputs.size() == 1;
  return is_alone ? PrecisionClass::kKeep : op.precision_class;
}

std::string rule_of(PrecisionClass precision_class) {
  return std::string(word_of(
      precision_class,
      {"operands are cast to the low dtype", "low operands are cast to f32",
       "operands are cast to the widest among them", "on no list: takes operands as they are"}));
}

std::string operands_of(const Program& program, const Node& node) {
  std::vector<std::string_view> out;
  out.reserve(node.inputs.size());
  for (ValueId id : node.inputs) out.push_back(name_of(program.type(id).dtype));
  return fmt::format("{}", fmt::join(out, ", "));
}

bool has_narrow_copy(const Program& program, ValueId leaf) {
  return std::ranges::any_of(program.values, [&](const Value& v) {
    return v.role == Role::kWeightCast && program.node(v.producer).inputs[0] == leaf;
  });
}

void add_value(Table& table, DType low, const Program& program, const std::string& title,
               ValueId id) {
  const Value& v = program.value(id);
  if (v.producer == kNoNode) {
    table.add_cells({{"autocast", name_of(low)},
                     {"value", title},
                     {"dtype", name_of(v.type.dtype)},
                     {"reason", has_narrow_copy(program, id)
                                    ? "a leaf keeps its dtype; products read a narrow copy of it"
                                    : "a leaf keeps its dtype, and is read as it is"}});
    return;
  }
  const Node& node = program.node(v.producer);
  const bool is_listed = title == kListedWhole;
  const PrecisionClass c = is_listed ? PrecisionClass::kFull : effective_class(*node.op);
  std::string reason = rule_of(c);
  const bool is_cast =
      node.inputs.size() == 1 && program.type(node.inputs[0]).dtype != v.type.dtype;
  if (is_cast) {
    reason = "passes back through the cast of its weight, to the weight's dtype";
  }
  table.add_cells({{"autocast", name_of(low)},
                   {"value", title},
                   {"dtype", name_of(v.type.dtype)},
                   {"op", is_listed ? std::string(kListedOp) : node.op->name},
                   {"operands", operands_of(program, node)},
                   {"class", name_of(c)},
                   {"reason", reason}});
}

}  // namespace

Table autocast_table() {
  Table table{.name = "autocast", .title = "Dtypes of a small model under mixed precision"};
  table.columns = {text_column("autocast"),
                   col::value,
                   col::dtype,
                   col::op("that makes it"),
                   text_column("operands", "", "their dtypes after the pass"),
                   col::class_("precision class of the op's record"),
                   col::reason};
  for (DType low : {DType::kF16, DType::kBF16}) {
    const Program program = autograd(autocast(toy_model(), low));
    for (ValueId id : program.leaves) {
      const Value& leaf = program.value(id);
      if (leaf.leaf == LeafKind::kParameter) {
        add_value(table, low, program, "parameter " + leaf.name, id);
      }
    }
    for (const char* name : {"fc1", "relu", "ln", "logits", "loss"}) {
      add_value(table, low, program, name, program.find_output(name));
    }
    for (const Output& output : program.outputs) {
      if (output.name.starts_with("grad.")) {
        add_value(table, low, program, "gradient " + output.name.substr(5), output.value);
      }
    }
  }
  return table;
}

Table precision_class_table() {
  ops::register_all();
  Table table{.name = "precision_classes", .title = "What mixed precision does with each op"};
  table.columns = {col::class_, text_column("rule"), col::count.titled("ops"),
                   col::ops.titled("which")};
  for (PrecisionClass c : kClassesOfOps) {
    std::vector<std::string> names;
    for (const OpDef* op : all_ops()) {
      if (effective_class(*op) == c) names.push_back(op->name);
    }
    std::ranges::sort(names);
    table.add_cells({{"class", name_of(c)},
                     {"rule", rule_of(c)},
                     {"count", static_cast<std::int64_t>(names.size())},
                     {"ops", fmt::format("{}", fmt::join(names, " "))}});
  }
  return table;
}

}  // namespace tracestep
